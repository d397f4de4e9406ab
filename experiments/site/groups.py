"""Charts of the accuracy by kind of example, such as the number of pairs, hops or carries."""

import re
from typing import NamedTuple

from configs.common import VARIANTS
from experiments.ledger.ledger import Row
from experiments.ledger.record import Record
from experiments.site import svg
from experiments.site.figures import Figure
from experiments.site.svg import Axis, Series

GROUP = re.compile(r"accuracy/(?P<name>\w+)=(?P<label>(?P<low>\d+)(-\d+)?)$")


class Kinds(NamedTuple):
    """Accuracies of a record by kind of example, in the order of the kinds."""

    name: str  # "pairs"
    labels: tuple[str, ...]  # ("1-2", "3-4")
    means: tuple[float, ...]
    errors: tuple[float, ...]


def by_kind(row: Row) -> list[Figure]:
    """Returns a chart of the runs with the widest range of kinds; [] if no run has kinds."""
    found = {name: kinds for name, record in row.records.items() if (kinds := of_record(record))}
    if not found:
        return []
    widest = max(found.values(), key=_reach)
    name, labels = widest.name, widest.labels
    alike = [(cell, k) for cell, k in found.items() if (k.name, k.labels) == (name, labels)]
    found = dict(alike[: svg.COLOURS])
    known = {*found} <= {*VARIANTS}  # variants have fixed colours
    colours = {cell: [*VARIANTS].index(cell) if known else -1 for cell in found}
    series = [_series(cell, kinds, colours[cell]) for cell, kinds in found.items()]
    ends = ", ".join(f"{s.label} {s.y[0]:.3g} to {s.y[-1]:.3g}" for s in series)
    caption = f"Accuracy by {name}, {labels[0]} to {labels[-1]}: {ends}."
    limits = (-0.3, len(labels) - 0.7)
    x = Axis(name, limits=limits, ticks=dict(enumerate(labels)))
    chart = svg.line_chart(caption, series, x, Axis("accuracy", limits=(0, 1)), marks=True)
    records = [row.records[cell] for cell in found]
    numbers = svg.as_csv({f"accuracy by {name}": series})
    return [Figure(caption, chart, svg.legend(series), numbers, records)]


def of_record(record: Record) -> Kinds | None:
    """Returns the accuracies by kind; None if there are fewer than two."""
    matched = [(match, value) for n, value in record.metrics.items() if (match := GROUP.match(n))]
    known = [(match, value) for match, value in matched if value["mean"] is not None]
    known = sorted(known, key=lambda pair: int(pair[0]["low"]))
    if len(known) < 2 or len({match["name"] for match, _ in known}) > 1:
        return None
    labels, means, errors = zip(*((m["label"], v["mean"], v["sem"] or 0.0) for m, v in known))
    return Kinds(known[0][0]["name"], labels, means, errors)


def _reach(kinds: Kinds) -> int:
    """Returns the largest number among the labels."""
    return int(kinds.labels[-1].rpartition("-")[2])


def _series(cell: str, kinds: Kinds, colour: int) -> Series:
    pairs = [*zip(kinds.means, kinds.errors)]
    low, high = ([m + sign * e for m, e in pairs] for sign in (-1, 1))
    return Series(cell, [*range(len(pairs))], list(kinds.means), low, high, colour)
