"""The figures of a ledger row: the PNG of a figure run, or charts of what was trained.

A figure comes with its alternative text, its numbers as CSV and the records behind it.
"""

import base64
import re
import struct
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from configs.common import VARIANTS
from experiments.ledger import tables
from experiments.ledger.ledger import Row
from experiments.ledger.read import figure_table
from experiments.ledger.record import Record
from experiments.ledger.write import small
from experiments.page import svg
from experiments.page.svg import Axis, Series

SWEPT = re.compile(r"(?:(?P<line>.*), )?(?P<letter>\w+)=(?P<value>[\d.]+)$")
# A PNG says what it shows in its own title; this is for those who cannot see it.
ALT = "Figure of the run {where}: {words}"


class Figure(NamedTuple):
    title: str
    html: str  # <svg> or <img>, side by side where there is room
    legend: str
    csv: str
    records: list[Record]


def figures(row: Row) -> list[Figure]:
    """What to show for a row; [] if nothing of it was run."""
    found = [picture(r, r.figure) for r in row.records.values() if r.figure]
    trained = {name: r for name, r in row.records.items() if _has_curves(r)}
    sweep = _sweep(row)
    if beside := _beside(row):
        found.append(beside)
    if sweep:
        found.append(sweep)
    elif 0 < len(trained) <= svg.COLOURS:
        found.append(curves(trained, row.item.metric, _level(row)))
    return [figure for figure in found if figure.html]


def picture(record: Record, file: Path) -> Figure:
    """A run's own figure."""
    names = list(record.metrics)[:3]
    words = ", ".join(f"{n} {tables.measured(record.metrics[n])}" for n in names)
    alt = ALT.format(where=record.config_file, words=words)
    content = small(file)
    data = base64.b64encode(content).decode()
    wide, high = struct.unpack(">II", content[16:24])
    shape = f'width="{wide}" height="{high}"' + (' class="wide"' if wide > 900 else "")
    html = f'<img alt="{escape(alt)}" {shape} src="data:image/png;base64,{data}">'
    return Figure("", html, "", figure_table(record), [record])


def curves(records: dict[str, Record], metric: str, levels: dict[str, float]) -> Figure:
    """Training loss and the validation metric of some runs: the mean and range over their seeds."""
    scored = {n: _scored(r.curves["validation"], metric) for n, r in records.items()}
    metric = next(iter(scored.values()))
    loss = [_line(n, r, "training", "loss") for n, r in records.items()]
    score = [_line(n, r, "validation", scored[n]) for n, r in records.items()]
    ends = ", ".join(f"{s.label} {s.y[-1]:.3f}" for s in score if s.y)
    title = f"Validation {metric.replace('_', ' ')} at the end: {ends}."
    steps = Axis("training step")
    panels = []
    if all(s.y for s in loss):
        alt = "Training loss against the step. " + title
        floor = [
            s._replace(y=_positive(s.y), low=_positive(s.low), high=_positive(s.high)) for s in loss
        ]
        panels.append(svg.line_chart(alt, floor, steps, Axis("training loss, nats", log=True)))
    if all(s.y for s in score):
        share = Axis(f"validation {metric}", limits=(0, 1) if "accuracy" in metric else None)
        shown = levels if "accuracy" in metric else {}
        panels.append(svg.line_chart(title, score, steps, share, shown))
    text = svg.as_csv({"training loss": loss, f"validation {metric}": score})
    return Figure(title, "".join(panels), svg.legend(score), text, list(records.values()))


def _beside(row: Row) -> Figure | None:
    """Our numbers beside the published ones and the baseline, where the paper prints several."""
    lines = [line for line in tables.lines(row) if line.metric == row.item.metric]
    lines = [line for line in lines if line.value and not line.stale]
    both = [line for line in lines if line.published is not None]
    if len(both) < 2:
        return None
    dots = [
        svg.Dot(line.cell, held["mean"], held["sem"] or 0.0, line.published, line.baseline)
        for line in lines
        if (held := line.value)
    ]
    pairs = ", ".join(
        f"{d.label} {d.published:.4g} and {d.measured:.4g}"
        for d in dots
        if d.published is not None and d.measured is not None
    )
    title = f"{row.item.metric.replace('_', ' ')}, published and ours: {pairs}."
    share = "accuracy" in row.item.metric
    axis = Axis(row.item.metric.replace("_", " "), limits=(0, 1) if share else None)
    keys = (
        '<ul class="legend"><li><span class="swatch b0"></span>ours; bars are standard errors</li>'
    )
    keys += "<li>◇ published</li><li>¦ trivial baseline</li></ul>"
    records = [line.record for line in lines if line.record]
    return Figure("", svg.dot_chart(title, dots, axis), keys, "", records)


def _positive(values: Sequence[float]) -> list[float]:
    return [max(value, 1e-9) for value in values]


def _sweep(row: Row) -> Figure | None:
    """Cells named "LINE, X=3": the item's metric against X, a line each; baselines as a line."""
    places = {name: SWEPT.match(name) for name in row.item.cells}
    if not places or not all(places.values()):
        return None
    lines = [line for line in tables.lines(row) if line.metric == row.item.metric and line.value]
    points: dict[str, list[tuple[float, float, float]]] = {}
    trivial: dict[str, list[tuple[float, float, float]]] = {}
    xs = sorted({float(m["value"]) for m in places.values() if m})
    letter = next(m["letter"] for m in places.values() if m)
    for line in lines:
        match, value = places[line.cell], line.value
        if match and value and value["mean"] is not None and not line.stale:
            at = float(xs.index(float(match["value"])))
            mine = points.setdefault(match["line"] or "measured", [])
            mine.append((at, value["mean"], value["sem"] or 0.0))
            if line.baseline is not None:
                level = trivial.setdefault(line.baseline_name.replace("_", " "), [])
                if at not in [x for x, *_ in level]:
                    level.append((at, line.baseline, 0.0))
    if max((len(p) for p in points.values()), default=0) < 2:
        return None
    series = [_swept(name, sorted(p), _colour(name)) for name, p in points.items()]
    series += [_swept(name, sorted(p), svg.COLOURS - 1) for name, p in trivial.items()]
    ends = ", ".join(f"{s.label} {s.y[0]:.3g} to {s.y[-1]:.3g}" for s in series)
    title = f"{row.item.metric} from {letter} = {xs[0]:g} to {xs[-1]:g}: {ends}."
    x = Axis(letter, limits=(-0.3, len(xs) - 0.7), ticks={i: f"{v:g}" for i, v in enumerate(xs)})
    y = Axis(row.item.metric, limits=(0, 1) if "accuracy" in row.item.metric else None)
    chart = svg.line_chart(title, series, x, y, marks=True)
    records = [line.record for line in lines if line.record]
    return Figure(title, chart, svg.legend(series), svg.as_csv({row.item.metric: series}), records)


def _swept(name: str, points: list[tuple[float, float, float]], colour: int) -> Series:
    low, high = [y - e for _, y, e in points], [y + e for _, y, e in points]
    return Series(name, [x for x, *_ in points], [y for _, y, _ in points], low, high, colour)


def _colour(label: str) -> int:
    """A variant has the same colour in every chart."""
    names = [*VARIANTS]
    return names.index(label) if label in names else -1


def _line(label: str, record: Record, split: str, metric: str) -> Series:
    """The mean and the range over the chosen seeds; what is not finite is left out."""
    chosen = [bool(m.get("chosen", True)) for m in record.members]
    x, y, low, high = [], [], [], []
    for step, held in record.curves.get(split, {}).get(metric, ()):
        values = [v for v, c in zip(held, chosen) if c and v is not None]
        if values:
            x.append(step)
            y.append(sum(values) / len(values))
            low.append(min(values))
            high.append(max(values))
    return Series(label, x, y, low, high, _colour(label))


def _has_curves(record: Record) -> bool:
    return "validation" in record.curves and not record.figure


def _scored(scores: Mapping[str, Any], metric: str) -> str:
    return next(n for n in (metric, "accuracy", *scores) if n in scores)


def _level(row: Row) -> dict[str, float]:
    """The item's trivial predictor, if all its cells are scored on one set."""
    held = {(line.baseline_name, line.baseline) for line in tables.lines(row) if line.baseline_name}
    return {n: v for n, v in held if v is not None} if len(held) == 1 else {}
