"""Figures of a ledger row: pictures of figure runs, and charts of trained runs."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from configs.common import VARIANTS
from experiments.ledger import tables
from experiments.ledger.ledger import Row
from experiments.ledger.record import Record
from experiments.site import svg
from experiments.site.arrays import table_of
from experiments.site.picture import image
from experiments.site.svg import Axis, Series

FIGURE_RECIPES = ("solve", "recall", "posterior", "oneshot", "look")  # their runs draw a figure
NUMBER = re.compile(r"=[\d.]+(?=,|$)")  # the value of a config's argument that is a number
SWEPT = re.compile(r"(?:(?P<line>.*), )?(?P<letter>\w+)=(?P<value>[\d.]+)$")


class Figure(NamedTuple):
    title: str
    html: str  # <svg> or <img> elements
    legend: str
    csv: str
    records: list[Record]
    key: str = ""  # identifies the picture; "": the title and the records do


def figures(row: Row) -> list[Figure]:
    """Returns the figures of a row; [] without records."""
    drawn = {name: record for name, record in row.records.items() if draws(record)}
    alike = _alike(row, drawn)
    told = {name: alike.get(name, "") for name in drawn}
    shown = [picture(drawn[name], words) for name, words in told.items() if words is not None]
    trained = {n: r for n, r in row.records.items() if "validation" in r.curves and n not in drawn}
    sweep = _sweep(row)
    shown += [figure for figure in (_published_chart(row), sweep) if figure]
    if not sweep and 0 < len(trained) <= svg.COLOURS:
        shown.append(curves(trained, row.item.metric, _level(row)))
    return [figure for figure in shown if figure.html]


def draws(record: Record) -> bool:
    """Returns whether the run of a record draws a figure."""
    return bool(record.figure) or record.config.get("recipe") in FIGURE_RECIPES


def lost(row: Row) -> list[str]:
    """Returns a line for each record of a row whose figure is missing."""
    drawn = {name: record for name, record in row.records.items() if draws(record)}
    alike = _alike(row, drawn)
    return [
        f"The figure of {r.config_file} is missing: {r.where} has no picture."
        for name, r in drawn.items()
        if alike.get(name, "") is not None and not image(r)
    ]


def picture(record: Record, told: str = "") -> Figure:
    """Returns the picture of a run with a caption."""
    html = image(record)
    return Figure(told, html, "", table_of(record), [record], record.where)


def _alike(row: Row, drawn: Mapping[str, Record]) -> dict[str, str | None]:
    """Maps each drawn run to a caption such as "2 more runs", and each omitted run to None.

    Of runs of one config, and of cells whose mean a rule takes, only the first is drawn. Of more
    than three runs whose configs differ only in numbers, the first and the last are drawn.
    """
    found, of_config, of_kind = {}, {}, {}
    for name, cell in row.item.cells.items():
        of_config.setdefault(cell.config, []).append(name)
        of_kind.setdefault(NUMBER.sub("=N", cell.config), []).append(name)
    means = {side.among for rule in row.item.rules.values() for side in rule.sides}
    for names in (*means, *of_config.values()):
        first, *others = [name for name in names if name in drawn] or [None]
        if others:
            found |= {first: _others(len(others))} | dict.fromkeys(others)
    for names in of_kind.values():
        names = [name for name in names if name in drawn and name not in found]
        if len(names) > 3:
            first, *others, last = names
            told = f"{_others(len(others))[:-1]}; the last of them, {last}, is the next picture."
            found |= {first: told.replace("one run", f"one run, {first}", 1)} | dict.fromkeys(
                others
            )
    return found


def _others(count: int) -> str:
    runs = f"{count} more runs" if count > 1 else "one more run"
    return f"This is one run; {runs} of the same kind are in the numbers."


def curves(records: dict[str, Record], metric: str, levels: dict[str, float]) -> Figure:
    """Returns curves of training loss and validation metric: mean and range over seeds."""
    scored = {name: _scored(r.curves["validation"], metric) for name, r in records.items()}
    metric = next(iter(scored.values()))
    loss = [_line(name, r, "training", "loss") for name, r in records.items()]
    score = [_line(name, r, "validation", scored[name]) for name, r in records.items()]
    ends = ", ".join(f"{s.label} {s.y[-1]:.3f}" for s in score if s.y)
    caption = f"Validation {metric.replace('_', ' ')} at the end: {ends}."
    steps, panels = Axis("training step"), []
    if all(s.y for s in loss):
        alt = "Training loss against the step. " + caption
        panels.append(svg.line_chart(alt, loss, steps, Axis("training loss, nats", log=True)))
    if all(s.y for s in score):
        shown = levels if "accuracy" in metric else {}
        panels.append(svg.line_chart(caption, score, steps, _axis(metric, "validation "), shown))
    text = svg.as_csv({"training loss": loss, f"validation {metric}": score})
    return Figure(caption, "".join(panels), svg.legend(score), text, list(records.values()))


def _published_chart(row: Row) -> Figure | None:
    """Returns a dot chart of measured and published numbers if the paper prints several."""
    lines = [line for line in _measured(row) if not line.stale]
    if sum(line.published is not None for line in lines) < 2:
        return None
    dots = [
        svg.Dot(line.cell, value["mean"], value["sem"] or 0.0, line.published, line.baseline)
        for line in lines
        if (value := line.value)
    ]
    pairs = ", ".join(
        f"{dot.label} {dot.published:.4g} and {dot.measured:.4g}"
        for dot in dots
        if dot.published is not None and dot.measured is not None
    )
    metric = row.item.metric.replace("_", " ")
    axis = _axis(row.item.metric)._replace(label=metric)
    chart = svg.dot_chart(f"{metric}, published and ours: {pairs}.", dots, axis)
    keys = svg.marks("ours; bars are standard errors", "published", "trivial baseline")
    return Figure("", chart, keys, "", [line.record for line in lines if line.record])


def _sweep(row: Row) -> Figure | None:
    """Returns the metric against X for cells named "LINE, X=3", with baselines as lines."""
    cells = {name: match for name in row.item.cells if (match := SWEPT.match(name))}
    if not cells or len(cells) < len(row.item.cells):
        return None
    xs = sorted({float(cell["value"]) for cell in cells.values()})
    letter = next(iter(cells.values()))["letter"]
    points: dict[str, dict[float, tuple[float, float]]] = {}  # line -> place -> mean and error
    trivial: dict[str, dict[float, tuple[float, float]]] = {}
    lines = _measured(row)
    for line in lines:
        cell, value = cells[line.cell], line.value
        if not value or value["mean"] is None or line.stale:
            continue
        place, label = float(xs.index(float(cell["value"]))), cell["line"] or "measured"
        points.setdefault(label, {})[place] = (value["mean"], value["sem"] or 0.0)
        if line.baseline is not None:
            levels = trivial.setdefault(line.baseline_name.replace("_", " "), {})
            levels.setdefault(place, (line.baseline, 0.0))
    if max(map(len, points.values()), default=0) < 2:
        return None
    series = [_swept(name, by_place, _colour(name)) for name, by_place in points.items()]
    labels, metric = [f"{x:g}" for x in xs], row.item.metric
    series += [_swept(name, by_place, svg.COLOURS - 1) for name, by_place in trivial.items()]
    ends = ", ".join(f"{s.label} {s.y[0]:.3g} to {s.y[-1]:.3g}" for s in series)
    name = metric.replace("_", " ").capitalize()
    caption = f"{name} from {letter} = {xs[0]:g} to {xs[-1]:g}: {ends}."
    x = Axis(letter, limits=(-0.3, len(xs) - 0.7), ticks=dict(enumerate(labels)))
    chart = svg.line_chart(caption, series, x, _axis(metric), marks=True)
    records = [line.record for line in lines if line.record]
    return Figure(caption, chart, svg.legend(series), svg.as_csv({metric: series}), records)


def _measured(row: Row) -> list[tables.Line]:
    """Returns the measured numbers of the item's metric."""
    return [line for line in tables.lines(row) if line.metric == row.item.metric and line.value]


def _axis(metric: str, of: str = "") -> Axis:
    """Returns the axis of a metric; accuracies have the limits 0 and 1."""
    return Axis(of + metric, limits=(0, 1) if "accuracy" in metric else None)


def _swept(name: str, points: Mapping[float, tuple[float, float]], colour: int) -> Series:
    places = sorted(points)
    means, errors = zip(*(points[place] for place in places))
    low, high = ([m + sign * e for m, e in zip(means, errors)] for sign in (-1, 1))
    return Series(name, places, means, low, high, colour)


def _colour(label: str) -> int:
    """Returns the colour of a variant, which is the same in every chart."""
    return [*VARIANTS].index(label) if label in VARIANTS else -1


def _line(label: str, record: Record, split: str, metric: str) -> Series:
    """Returns the mean and the range over the chosen seeds, without values that are not finite."""
    chosen = [bool(member.get("chosen", True)) for member in record.members]
    curve = record.curves.get(split, {}).get(metric, ())
    finite = [(x, [v for v, c in zip(ys, chosen) if c and v is not None]) for x, ys in curve]
    steps, values = [x for x, ys in finite if ys], [ys for _, ys in finite if ys]
    means = [sum(ys) / len(ys) for ys in values]
    return Series(label, steps, means, [*map(min, values)], [*map(max, values)], _colour(label))


def _scored(scores: Mapping[str, Any], metric: str) -> str:
    return next(n for n in (metric, "accuracy", *scores) if n in scores)


def _level(row: Row) -> dict[str, float]:
    """Returns the trivial predictor's level if it is the same for all cells."""
    named = [line for line in tables.lines(row) if line.baseline_name]
    levels = {(line.baseline_name, line.baseline) for line in named}
    return {n: v for n, v in levels if v is not None} if len(levels) == 1 else {}
