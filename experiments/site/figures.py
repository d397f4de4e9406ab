"""Figures of a ledger row: pictures of figure runs, and charts of trained runs."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from experiments.ledger import tables
from experiments.ledger.ledger import Row
from experiments.ledger.record import Record
from experiments.site.arrays import table_of
from experiments.site.picture import image
from jaxformer.core.variants import VARIANTS
from jaxformer.report import svg
from jaxformer.report.svg import Axis, Series

FIGURE_RECIPES = ("solve", "recall", "posterior", "oneshot", "look")  # their runs draw a figure
NUMBER = re.compile(r"=[\d.]+(?=,|$)")  # the value of a config's argument that is a number
# The name of a cell in a sweep: "mixit, M=4" is the point M = 4 of the line "mixit".
SWEEP_CELL = re.compile(r"(?:(?P<line>.*), )?(?P<letter>\w+)=(?P<value>[\d.]+)$")
MAX_SIMILAR_PICTURES = 3  # of runs whose configs differ only in numbers


class Figure(NamedTuple):
    """A figure of the page with its numbers and the records that it shows."""

    title: str
    html: str  # <svg> or <img> elements
    legend: str
    csv: str
    records: list[Record]
    key: str = ""  # identifies the picture; if "", the title and the records identify it


def figures(row: Row) -> list[Figure]:
    """Returns the figures of a row; [] without records."""
    shown = [picture(row.records[name], caption) for name, caption in shown_runs(row).items()]
    trained = {
        name: record
        for name, record in row.records.items()
        if "validation" in record.curves and not draws(record)
    }
    sweep = _sweep(row)
    shown += [figure for figure in (_published_chart(row), sweep) if figure]
    if not sweep and 0 < len(trained) <= svg.COLOURS:
        levels = _trivial_level(row) if all(map(_is_split_by_hash, trained.values())) else {}
        shown.append(curves(trained, row.item.metric, levels))
    return [figure for figure in shown if figure.html]


def draws(record: Record) -> bool:
    """Returns whether the run of a record draws a figure."""
    return bool(record.figure) or record.config.get("recipe") in FIGURE_RECIPES


def missing_figures(row: Row) -> list[str]:
    """Returns a line for each shown run of a row whose figure is missing."""
    records = [row.records[name] for name in shown_runs(row)]
    return [
        f"The figure of {record.config_file} is missing: {record.where} has no picture."
        for record in records
        if not image(record)
    ]


def picture(record: Record, caption: str = "") -> Figure:
    """Returns the picture of a run with a caption."""
    return Figure(caption, image(record), "", table_of(record), [record], record.where)


def shown_runs(row: Row) -> dict[str, str]:
    """Returns {cell: caption} of the runs whose pictures are shown. Captions name omitted runs.

    If several runs have one config, or a rule takes the mean of several cells, only the first is
    shown. If the configs of more than three runs differ only in numbers, the first and the last are
    shown.
    """
    captions = {name: "" for name, record in row.records.items() if draws(record)}
    by_config: dict[str, list[str]] = {}
    by_kind: dict[str, list[str]] = {}
    for name, cell in row.item.cells.items():
        by_config.setdefault(cell.config, []).append(name)
        by_kind.setdefault(NUMBER.sub("=N", cell.config), []).append(name)
    # Each `side.among` names the cells of which one side of a rule takes the mean.
    means = {side.among for rule in row.item.rules.values() for side in rule.sides}
    for names in (*means, *by_config.values()):
        drawn = [name for name in names if name in captions]
        if len(drawn) > 1:
            first, *others = drawn
            captions[first] = f"This is one run; {_more_runs(len(others))}."
            _omit(captions, others)
    for similar in by_kind.values():
        names = [name for name in similar if captions.get(name) == ""]  # without a caption so far
        if len(names) > MAX_SIMILAR_PICTURES:
            first, *others, last = names
            captions[first] = (
                f"This is one run, {first}; {_more_runs(len(others))}; the last of them, {last}, "
                "is the next picture."
            )
            _omit(captions, others)
    return captions


def _more_runs(n: int) -> str:
    runs = f"{n} more runs" if n > 1 else "one more run"
    return f"{runs} of the same kind are in the numbers"


def _omit(captions: dict[str, str], names: Sequence[str]) -> None:
    for name in names:
        captions.pop(name, None)


def curves(records: dict[str, Record], metric: str, levels: dict[str, float]) -> Figure:
    """Returns curves of training loss and validation metric: mean and range over seeds."""
    metric_of_run = {name: _validated(record, metric) for name, record in records.items()}
    metric, *_ = metric_of_run.values()  # the name in the first run
    loss = [_curve(name, record, "training", "loss") for name, record in records.items()]
    score = [
        _curve(name, record, "validation", metric_of_run[name]) for name, record in records.items()
    ]
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


def by_category(
    title: str,
    letter: str,
    categories: Sequence[str],
    lines: Sequence[Series],
    metric: str,
    records: list[Record],
) -> Figure:
    """Returns a chart of lines over categories, which stand at x = 0, 1, .. of each line.

    Args:
      title: The beginning of the caption.
      letter: The label of the x axis.
      categories: The labels of its ticks.
      lines: The lines with their errors.
      metric: The label of the y axis.
      records: The records of the numbers.
    """
    ends = ", ".join(f"{line.label} {line.y[0]:.3g} to {line.y[-1]:.3g}" for line in lines)
    caption = f"{title} {categories[0]} to {categories[-1]}: {ends}."
    limits = (-0.3, len(categories) - 0.7)
    x = Axis(letter, limits=limits, ticks=dict(enumerate(categories)))
    chart = svg.line_chart(caption, lines, x, _axis(metric), marks=True)
    return Figure(caption, chart, svg.legend(lines), svg.as_csv({metric: lines}), records)


def colour_of(label: str) -> int:
    """Returns the colour of a variant, which is the same in every chart; -1 for other labels."""
    return [*VARIANTS].index(label) if label in VARIANTS else -1


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
    keys = svg.dot_legend("ours; bars are standard errors", "published", "trivial baseline")
    return Figure("", chart, keys, "", [line.record for line in lines if line.record])


def _sweep(row: Row) -> Figure | None:
    """Returns a chart of the metric against X for cells named "LINE, X=3"; baselines are lines."""
    cells = {name: match for name in row.item.cells if (match := SWEEP_CELL.match(name))}
    if not cells or len(cells) < len(row.item.cells):
        return None
    xs = sorted({float(cell["value"]) for cell in cells.values()})
    measured: dict[str, dict[int, tuple[float, float]]] = {}  # line -> index of x -> mean, error
    trivial: dict[str, dict[int, tuple[float, float]]] = {}
    lines = _measured(row)
    for line in lines:
        cell, value = cells[line.cell], line.value
        if not value or value["mean"] is None or line.stale:
            continue
        i = xs.index(float(cell["value"]))
        points = measured.setdefault(cell["line"] or "measured", {})
        points[i] = (value["mean"], value["sem"] or 0.0)
        if line.baseline is not None:
            levels = trivial.setdefault(line.baseline_name.replace("_", " "), {})
            levels.setdefault(i, (line.baseline, 0.0))
    if max(map(len, measured.values()), default=0) < 2:
        return None
    series = [Series.with_errors(name, p, colour_of(name)) for name, p in measured.items()]
    series += [Series.with_errors(name, p, svg.COLOURS - 1) for name, p in trivial.items()]
    letter, metric = next(iter(cells.values()))["letter"], row.item.metric
    title = f"{metric.replace('_', ' ').capitalize()} from {letter} ="
    records = [line.record for line in lines if line.record]
    return by_category(title, letter, [f"{x:g}" for x in xs], series, metric, records)


def _measured(row: Row) -> list[tables.Line]:
    """Returns the measured numbers of the item's metric."""
    return [line for line in tables.lines(row) if line.metric == row.item.metric and line.value]


def _axis(metric: str, prefix: str = "") -> Axis:
    """Returns the axis of a metric; accuracies have the limits 0 and 1."""
    return Axis(prefix + metric, limits=(0, 1) if "accuracy" in metric else None)


def _curve(label: str, record: Record, split: str, metric: str) -> Series:
    """Returns the mean and the range over the chosen seeds, without values that are not finite."""
    points = [(step, values) for step, values in _finite(record, split, metric) if values]
    steps, values = [step for step, _ in points], [values for _, values in points]
    means = [sum(ys) / len(ys) for ys in values]
    return Series(label, steps, means, [*map(min, values)], [*map(max, values)], colour_of(label))


def _finite(record: Record, split: str, metric: str) -> Iterator[tuple[int, list[float]]]:
    """Yields (step, finite values of the chosen members)."""
    is_chosen = [bool(member.get("chosen", True)) for member in record.members]
    for step, values in record.curves.get(split, {}).get(metric, ()):
        pairs = zip(values, is_chosen)
        yield step, [value for value, use in pairs if use and value is not None]


def _validated(record: Record, metric: str) -> str:
    """Returns the metric, or else another one that the validation curve has."""
    curve = record.curves["validation"]
    return next(name for name in (metric, "accuracy", *curve) if name in curve)


def _is_split_by_hash(record: Record) -> bool:
    """Whether test and validation set have one distribution, so that one trivial level fits both.

    A split by redrawing leaves the validation set the examples that the test set lacks.
    """
    return "data" in record.config and record.config["data"].get("split") == "hash"


def _trivial_level(row: Row) -> dict[str, float]:
    """Returns the trivial predictor's level if it is the same for all cells."""
    named = [line for line in tables.lines(row) if line.baseline_name]
    levels = {(line.baseline_name, line.baseline) for line in named}
    return {n: v for n, v in levels if v is not None} if len(levels) == 1 else {}
