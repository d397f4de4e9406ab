"""The arrays of a record, read back from its CSV or from the arrays.npz of a run.

`ledger.write.table` thins long axes, so each array says whether it is whole: only then may a
drawing that computes from it be made again.
"""

import re
from typing import NamedTuple

import numpy as np

from experiments.ledger import trust
from experiments.ledger.record import Record
from experiments.ledger.write import FIRST

WHOLE = re.compile(r"-?\d{1,15}")


class Array(NamedTuple):
    values: np.ndarray
    is_whole: bool


def arrays_of(record: Record) -> dict[str, Array]:
    """By name; {} if nothing lies beside the record. Raises ValueError or KeyError if damaged."""
    file = record.table
    if file is None:
        return {}
    if file.suffix == ".npz":
        trust.check_arrays(file)
        with np.load(file) as held:
            return {name: Array(held[name], True) for name in held.files}
    rows: dict[str, list[tuple[list[str], list[str]]]] = {}
    for name, indices, *values in trust.rows(trust.text(file))[1:]:
        rows.setdefault(name, []).append((indices.split(), values))
    return {name: _array(lines, len(record.seeds)) for name, lines in rows.items()}


def _array(lines: list[tuple[list[str], list[str]]], seeds: int) -> Array:
    """From lines of ("2 0:41:2", values): the last axis is a line, the others are its place."""
    first, _ = lines[0]
    values = _typed([cell for _, cells in lines for cell in cells])
    if not first:
        return Array(values.reshape(()), True)
    *_, stride = map(int, first[-1].split(":"))
    places = np.array([[int(word) for word in words[:-1]] for words, _ in lines], int)
    axes = [np.unique(column) for column in places.T]
    whole = stride == 1 and all(np.array_equal(axis, np.arange(len(axis))) for axis in axes)
    # Of an axis before the last two only the first entries are kept; seeds are rarely more.
    cut = any(len(axis) == FIRST and seeds > FIRST for axis in axes[:-1])
    shape = [*map(len, axes), len(lines[0][1])]
    return Array(values.reshape(shape), whole and not cut)


def _typed(cells: list[str]) -> np.ndarray:
    if {*cells} <= {"True", "False"}:
        return np.array([cell == "True" for cell in cells])
    if all(WHOLE.fullmatch(cell) for cell in cells):
        return np.array([int(cell) for cell in cells])
    try:
        return np.array([float(cell) for cell in cells])
    except ValueError:
        return np.array([cell.removeprefix("'") for cell in cells])
