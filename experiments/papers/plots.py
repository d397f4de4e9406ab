"""Drawing functions shared by the figures of all papers: panels, curves, bars, heat maps, tables.

They draw finished numbers and compute only means and errors over seeds. S is the axis of seeds, K
that of points.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxformer.report import figure_style
from jaxformer.report.figure_style import (
    COLOURS,
    COLUMN,
    ENDINGS,
    PAGE,
    add_colour_bar,
    add_finding,
    label_panel,
    set_title,
)
from jaxformer.stats import standard_error

__all__ = [
    "COLOURS",
    "COLUMN",
    "ENDINGS",
    "PAGE",
    "add_colour_bar",
    "add_finding",
    "label_panel",
    "set_title",
]

DOT = {"ms": 3, "capsize": 2, "elinewidth": 0.8}  # the look of a dot with an error bar
PALE = {"green": "#c9e8d9", "yellow": "#fbe5c0", "red": "#f6cdb8"}  # backgrounds of table cells
ERRORS = "Bars: standard errors over seeds."
ROW_INCHES = 0.135  # the height of a table's row
MAX_WRITTEN_SIZE = 8  # a larger heat map shows colours without values


def by_layer(file: Path, runs: Mapping[str, Mapping[str, Any]]) -> None:
    """Draws metrics called "STATISTIC/block_i/..." against the layer, one panel per statistic."""
    statistics = sorted({name.split("/")[0] for metrics in runs.values() for name in metrics})
    size = (PAGE if len(statistics) > 1 else COLUMN, 1.9)
    figure, axes = row(len(statistics), size)
    last_values = []
    for axis, statistic in zip(axes, statistics, strict=True):
        for colour, (label, metrics) in zip(cycle(len(runs)), runs.items(), strict=True):
            points = [
                (int(name.split("/")[1].removeprefix("block_")) + 1, value)
                for name, value in metrics.items()
                if name.startswith(f"{statistic}/block_")
            ]
            layers, values = zip(*sorted(points), strict=True)
            means, errors = [v.mean for v in values], [v.sem for v in values]
            axis.errorbar(layers, means, errors, fmt="o-", color=colour, label=label, **DOT)
        title = statistic.replace("_", " ")
        axis.set(xlabel="layer (1 is block_0)", ylabel=title, xticks=layers)
        last_values.append(f"{title} {means[-1]:.3g}")
    add_finding(figure, f"After layer {layers[-1]}: {', '.join(last_values)}", ERRORS, axes[0])
    save(figure, file)


def grid(rows: int, columns: int, size: tuple[float, float], **shared):
    """Returns a figure and its (rows, columns) panels.

    Args:
      rows: Number of rows.
      columns: Number of columns.
      size: (COLUMN or PAGE, height) in inches.
      **shared: Arguments of matplotlib's `subplots`, like `sharex`.
    """
    figure_style.apply()
    return figure_style.panels(rows, columns, size, **shared)


def row(columns: int, size: tuple[float, float], **shared):
    """Returns a figure and a list of its panels, which stand in one row (see `grid`)."""
    figure, axes = grid(1, columns, size, **shared)
    return figure, axes[0]


def means(axis, x, values_SxK: np.ndarray, **style) -> None:
    """Draws means over seeds with standard errors; a single seed has no error bar."""
    n = len(values_SxK)
    error = standard_error(values_SxK) if n > 1 else None
    axis.errorbar(x, values_SxK.mean(0), error, **DOT | style)


def curves(axis, x, series: Mapping[str, np.ndarray], colours=COLOURS, **style) -> None:
    """Draws the means of several (S, K) arrays against the same x: one colour and label each."""
    for colour, (label, values_SxK) in zip(colours, series.items()):
        means(axis, x, values_SxK, **{"color": colour, "label": label} | style)


def band(axis, x, low, middle, high, colour: str, label: str = "", alpha: float = 0.15) -> None:
    """Draws a line inside the shaded range from `low` to `high`."""
    axis.plot(x, middle, color=colour, label=label)
    axis.fill_between(x, low, high, color=colour, alpha=alpha, lw=0)


def bars(axis, series: Mapping[str, np.ndarray], **style) -> None:
    """Draws the means of several (S, K) arrays as K groups of bars: one colour and label each."""
    width, style = 0.8 / len(series), {"error_kw": {"elinewidth": 0.8}} | style
    for k, (colour, (label, values_SxK)) in enumerate(zip(COLOURS, series.items())):
        x = np.arange(values_SxK.shape[1]) + (k - (len(series) - 1) / 2) * width
        error = values_SxK.std(0) / max(len(values_SxK) - 1, 1) ** 0.5
        axis.bar(
            x, values_SxK.mean(0), width, yerr=error, **{"color": colour, "label": label} | style
        )


def value_ticks(axis, values: Sequence[float] | np.ndarray) -> None:
    """Labels the given values of an x axis, which may be logarithmic, and no others."""
    axis.set_xticks(values, [f"{value:g}" for value in values])
    axis.set_xticks([], minor=True)


def heat(axis, U, names, limit: float = 0.0):
    """Draws a symmetric matrix: red is positive, blue negative; few values are written out.

    Args:
      axis: The panel.
      U: The matrix, (D, D).
      names: The labels of its D rows.
      limit: The value where the colour scale ends; 0 takes the largest entry.

    Returns:
      The image, for a colour bar. Panels with the same `limit` can share one.
    """
    limit = limit or np.abs(U).max()
    image = axis.imshow(U, cmap=figure_style.DIVERGING_MAP, vmin=-limit, vmax=limit)
    axis.spines[:].set_visible(True)
    if len(names) > MAX_WRITTEN_SIZE:
        axis.set(xticks=[], yticks=[])
        return image
    axis.set_xticks(range(len(names)), names)
    axis.set_yticks(range(len(names)), names)
    axis.tick_params(length=0)
    for (i, j), value in np.ndenumerate(U):
        colour = "white" if abs(value) > 0.6 * limit else "black"
        style = {"ha": "center", "va": "center", "fontsize": figure_style.SMALLEST, "color": colour}
        axis.text(j, i, f"{value:.2f}", **style)
    return image


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    starts: Sequence[float],
    backgrounds: Sequence[str],
):
    """Returns a figure with a table of text.

    Args:
      head: The text of the first row.
      rows: The text of the other rows.
      starts: Where each column begins, as a share of the width.
      backgrounds: The colour behind the last cell of each row; "" for none.
    """
    figure, (axis,) = row(1, (PAGE, ROW_INCHES * (len(rows) + 1)))
    axis.set(xlim=(0, 1), ylim=(len(rows) + 0.5, -0.5))
    axis.set_axis_off()
    for i, cells in enumerate((head, *rows)):
        if i and backgrounds[i - 1]:
            axis.axhspan(i - 0.5, i + 0.5, starts[-1] - 0.01, 1, color=backgrounds[i - 1], lw=0)
        for x, text in zip(starts, cells, strict=True):
            axis.text(x, i, text, va="center", fontsize=figure_style.SMALL, parse_math=False)
    axis.axhline(0.5, color="0.3", lw=0.6)
    return figure


def pyplot():
    """Returns matplotlib.pyplot without a display, in the style of all figures."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure_style.apply()
    return plt


def save(figure, file: Path) -> None:
    """Writes a figure atomically."""
    figure_style.save(figure, file)


def cycle(n: int) -> list[str]:
    """Returns n colours, repeated in order if there are more than in the palette."""
    return [COLOURS[i % len(COLOURS)] for i in range(n)]
