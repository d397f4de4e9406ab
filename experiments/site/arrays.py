"""The numbers behind a record's figure, from its CSV or from the arrays.npz of a run."""

import re

import numpy as np

from experiments.ledger import validate_record
from experiments.ledger.record import Record
from experiments.ledger.write import table

# A cell of a CSV line that has decimals.
DECIMAL = re.compile(r"(?<=,)-?\d*\.\d+(?:e[-+]?\d+)?(?=[,\n])")


def table_of(record: Record) -> str:
    """Returns the arrays as CSV with four digits; "" if the record has none."""
    if record.table is None:
        return ""
    is_npz = record.table.suffix == ".npz"
    text = table(record.table) if is_npz else validate_record.read_text(record.table)
    return DECIMAL.sub(lambda match: f"{float(match[0]):.4g}", text)


def array_of(record: Record, name: str) -> np.ndarray:
    """Returns an array of numbers; raises ValueError or KeyError if it is missing or damaged."""
    if record.table is None:
        raise KeyError(name)
    if record.table.suffix == ".npz":
        validate_record.check_arrays(record.table)
        with np.load(record.table) as arrays:
            return arrays[name]
    rows = validate_record.rows(validate_record.read_text(record.table))
    lines = [(indices, values) for array, indices, *values in rows[1:] if array == name]
    if not lines:
        raise KeyError(name)
    # In "2 0:41:2", 2 is the index on the first axis, and the slice selects from the last axis. The
    # numbers of the line are the selected ones.
    indices = np.array([text.split()[:-1] for text, _ in lines], int)
    axes = [len(np.unique(column)) for column in indices.T]
    values = np.array([[float(cell) for cell in cells] for _, cells in lines])
    return values.reshape(*axes, -1)
