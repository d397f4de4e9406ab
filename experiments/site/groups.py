"""Charts of the accuracy by kind of example, such as the number of pairs, hops or carries."""

import re
from typing import NamedTuple

from experiments.ledger.ledger import Row
from experiments.ledger.record import Record
from experiments.site.figures import Figure, by_category, colour_of
from jaxformer.core.variants import VARIANTS
from jaxformer.report import svg
from jaxformer.report.svg import Series

GROUP = re.compile(r"accuracy/(?P<name>\w+)=(?P<label>(?P<low>\d+)(-\d+)?)$")


class Kinds(NamedTuple):
    """Accuracies of a record by kind of example, in the order of the kinds."""

    name: str  # "pairs"
    labels: tuple[str, ...]  # ("1-2", "3-4")
    points: dict[int, tuple[float, float]]  # (mean, standard error) of kind 0, 1, ..

    def largest_number(self) -> int:
        return int(self.labels[-1].rpartition("-")[2])


def by_kind(row: Row) -> list[Figure]:
    """Returns a chart of the runs with the widest range of kinds; [] if no run has kinds."""
    all_kinds = {cell: kinds for cell, r in row.records.items() if (kinds := of_record(r))}
    if not all_kinds:
        return []
    widest = max(all_kinds.values(), key=Kinds.largest_number)
    # Only runs with the same kinds share a chart.
    comparable = {c: k for c, k in all_kinds.items() if (k.name, k.labels) == widest[:2]}
    cells = list(comparable)[: svg.COLOURS]
    are_variants = {*cells} <= {*VARIANTS}
    lines = [
        Series.with_errors(cell, comparable[cell].points, colour_of(cell) if are_variants else -1)
        for cell in cells
    ]
    title = f"Accuracy by {widest.name},"
    records = [row.records[cell] for cell in cells]
    return [by_category(title, widest.name, widest.labels, lines, "accuracy", records)]


def of_record(record: Record) -> Kinds | None:
    """Returns the accuracies by kind; None if there are fewer than two kinds."""
    measured = [
        (match, value)
        for name, value in record.metrics.items()
        if (match := GROUP.match(name)) and value["mean"] is not None
    ]
    measured.sort(key=lambda pair: int(pair[0]["low"]))
    if len(measured) < 2 or len({match["name"] for match, _ in measured}) > 1:
        return None
    points = {i: (value["mean"], value["sem"] or 0.0) for i, (_, value) in enumerate(measured)}
    labels = tuple(match["label"] for match, _ in measured)
    return Kinds(measured[0][0]["name"], labels, points)
