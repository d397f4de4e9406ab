"""The arrays of a record, read back from its CSV or from the arrays.npz of a run.

`ledger.write.table` thins long arrays, so each says whether it is whole: only then may a drawing
that computes from it be made again. What a page saves of them is thinned further.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from experiments.cli.describe import csv_text
from experiments.ledger import validate_record
from experiments.ledger.record import Record
from experiments.ledger.write import FIRST, rows, table

DECIMAL = re.compile(r"(?<=,)-?\d*\.\d+(?:e[-+]?\d+)?(?=[,\n])")
SAVED, LEAST = 2400, 24  # values of a record that a page holds, and of each of its arrays
COUNT = re.compile(r"-?\d{1,15}")


class Array(NamedTuple):
    values: np.ndarray
    is_whole: bool


def arrays_of(record: Record) -> dict[str, Array]:
    """By name; {} if nothing lies beside the record. Raises ValueError or KeyError if damaged."""
    file = record.table
    if file is None:
        return {}
    if file.suffix == ".npz":
        validate_record.check_arrays(file)
        with np.load(file) as held:
            return {name: Array(held[name], True) for name in held.files}
    return {
        name: _array(lines, len(record.seeds)) for name, lines in _lines(validate_record.text(file))
    }


def table_of(record: Record) -> str:
    """The numbers behind a record's figure as short CSV, or "".

    Four digits of what is no count, and of a long array every k-th row: a line says which it is.
    Each array has an equal share of what a page holds of a record.
    """
    file = record.table
    if file is None:
        return ""
    text = table(file) if file.suffix == ".npz" else validate_record.text(file)
    short: list[Sequence[str]] = [("array", "indices", "values")]
    try:
        held = dict(_lines(text))
        share = max(SAVED // max(len(held), 1), LEAST)
        for name, lines in held.items():
            array = _array(lines, len(record.seeds))
            lines = [*rows(array.values)] if array.is_whole else lines
            step = -(-len(lines) * len(lines[0]) // share)
            short += [(name, *line) for line in lines[::step]]
    except (ValueError, IndexError):  # whoever wrote it: a table all the same
        short = [*validate_record.rows(text)]
    return DECIMAL.sub(lambda m: f"{float(m[0]):.4g}", csv_text(short))


def _lines(text: str) -> Iterator[tuple[str, list[list[str]]]]:
    """(name, its lines of [indices, values]) of each array of a CSV."""
    by_name: dict[str, list[list[str]]] = {}
    for name, *line in validate_record.rows(text)[1:]:
        by_name.setdefault(name, []).append(line)
    yield from by_name.items()


def _array(lines: list[list[str]], seeds: int) -> Array:
    """From lines such as ["2 0:41:2", *values]: the last axis is a line, the others its place."""
    first = lines[0][0].split()
    values = _typed([cell for _, *cells in lines for cell in cells])
    if not first:
        return Array(values.reshape(()), True)
    *_, stride = map(int, first[-1].split(":"))
    places = np.array([[int(word) for word in words.split()[:-1]] for words, *_ in lines], int)
    axes = [np.unique(column) for column in places.T]
    whole = stride == 1 and all(np.array_equal(axis, np.arange(len(axis))) for axis in axes)
    # Of an axis before the last two only the first entries are kept; seeds are rarely more.
    cut = any(len(axis) == FIRST and seeds > FIRST for axis in axes[:-1])
    shape = [*map(len, axes), len(lines[0]) - 1]
    return Array(values.reshape(shape), whole and not cut)


def _typed(cells: list[str]) -> np.ndarray:
    if {*cells} <= {"True", "False"}:
        return np.array([cell == "True" for cell in cells])
    if all(COUNT.fullmatch(cell) for cell in cells):
        return np.array([int(cell) for cell in cells])
    for number in (float, complex):
        try:
            return np.array([number(cell) for cell in cells])
        except ValueError:
            pass
    return np.array([cell.removeprefix("'") for cell in cells])
