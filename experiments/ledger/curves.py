"""Training curves of a run as CSV: a line for each step and metric, a column for each member."""

import csv
import functools
import io
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from experiments.ledger.validate_record import LARGEST, is_number, read_text
from jaxformer.report.tables import csv_text

MAX_CURVE_ROWS = 30
HEAD = ("step", "split", "metric")

# split -> metric -> [(step, a number for each member or None where it is not finite)]
Curves = dict[str, dict[str, list[tuple[int, list[float | None]]]]]


class CurveFile(Mapping):
    """The curves of a CSV file, parsed when they are used. The last 64 files stay in memory."""

    def __init__(self, file: Path):
        self.file = file
        of_csv(read_text(file))  # raises ValueError for a damaged file

    def __getitem__(self, split: str) -> Any:
        return _parsed(self.file)[split]

    def __iter__(self) -> Iterator[str]:
        return iter(_parsed(self.file))

    def __len__(self) -> int:
        return len(_parsed(self.file))


@functools.lru_cache(64)
def _parsed(file: Path) -> Curves:
    return of_csv(read_text(file))


def of_rows(rows: Iterable[Mapping[str, Any]]) -> Curves:
    """Returns thinned curves from the rows of metrics.jsonl."""
    rows, curves = list(rows), {}
    separate = ("validation", "signal")  # kinds of row that are thinned separately
    training = [row for row in rows if not row.keys() & {*separate}]
    thinned = _thin(training)
    for kind in separate:
        thinned += _thin([row for row in rows if kind in row])
    for row in thinned:
        splits = {name: value for name, value in row.items() if isinstance(value, Mapping)}
        splits["training"] = {n: v for n, v in row.items() if n != "step" and n not in splits}
        for split, metrics in splits.items():
            for name, values in metrics.items():
                for metric, numbers in _metrics(name, values):
                    curve = curves.setdefault(split, {}).setdefault(metric, [])
                    curve.append((row["step"], numbers))
    return curves


def as_csv(curves: Curves) -> str:
    """Returns the curves as CSV with six digits; "" if there are none."""
    lines = [
        [step, split, metric, *("" if x is None else f"{x:.6g}" for x in numbers)]
        for split, metrics in curves.items()
        for metric, curve in metrics.items()
        for step, numbers in curve
    ]
    members = max(map(len, lines), default=0) - len(HEAD)
    return csv_text([[*HEAD, *(f"member {i}" for i in range(members))], *lines]) if lines else ""


def of_csv(table: str) -> Curves:
    """Parses the text of `as_csv`; raises ValueError with a message of one line."""
    head, *lines = csv.reader(io.StringIO(table))
    if tuple(head[: len(HEAD)]) != HEAD:
        raise ValueError(f"the curves should begin with {', '.join(HEAD)}, got {head[:3]}")
    curves: Curves = {}
    for step, split, metric, *cells in lines:
        numbers = [float(x) if x else None for x in cells]
        total = sum(abs(x) for x in numbers if x is not None)
        if not total < LARGEST:  # also if a number, and with it the total, is infinite or NaN
            raise _not_finite(metric, int(step), numbers)
        curves.setdefault(split, {}).setdefault(metric, []).append((int(step), numbers))
    return curves


def checked(curves: Curves) -> Curves:
    """Returns the curves; raises ValueError unless all entries are finite numbers or None."""
    for metrics in curves.values():
        for metric, curve in metrics.items():
            for step, numbers in curve:
                if not is_number(step) or not all(x is None or is_number(x) for x in numbers):
                    raise _not_finite(metric, step, numbers)
    return curves


def _not_finite(metric: str, step: Any, numbers: Any) -> ValueError:
    return ValueError(f"the curve of {metric} has {numbers!r:.60} at step {step!r}")


def _metrics(name: str, values: Any) -> list[tuple[str, list[float | None]]]:
    """Returns (metric, a value for each member) of each metric that a row has under a name.

    The values may be one number, a number for each member, or a list for each member. Each position
    of such lists becomes a metric.
    """
    by_member = values if isinstance(values, list) else [values]
    if by_member and isinstance(by_member[0], list):
        return [(f"{name}/{i}", list(numbers)) for i, numbers in enumerate(zip(*by_member))]
    return [(name, by_member)]


def _thin(rows: list[Any]) -> list[Any]:
    """Returns evenly spaced rows, including the last."""
    every = -(-len(rows) // MAX_CURVE_ROWS) or 1
    first = (len(rows) - 1) % every
    return rows[first::every]
