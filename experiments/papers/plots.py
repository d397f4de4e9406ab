"""How figures look. What draws reads numbers, it never trains."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxformer.runtime import figure_style
from jaxformer.runtime.figure_style import COLOURS, COLUMN, ENDINGS, PAGE, bar, headed, name, titled

__all__ = ["COLOURS", "COLUMN", "ENDINGS", "PAGE", "bar", "headed", "name", "titled"]

DOT = {"ms": 3, "capsize": 2, "elinewidth": 0.8}
PALE = {"green": "#c9e8d9", "yellow": "#fbe5c0", "red": "#f6cdb8"}  # Behind the words of a table.
ERRORS = "Bars: standard errors over seeds."
ROW = 0.135  # inches of a table's row


def by_layer(file: Path, runs: Mapping[str, Mapping[str, Any]]) -> None:
    """Metrics named "statistic/block_i/..." against the layer, one panel a statistic."""
    names, words = sorted({n.split("/")[0] for metrics in runs.values() for n in metrics}), []
    figure, axes = row(len(names), (PAGE if len(names) > 1 else COLUMN, 1.9))
    for axis, statistic in zip(axes, names, strict=True):
        for colour, (label, metrics) in zip(cycle(len(runs)), runs.items(), strict=True):
            points = [
                (int(n.split("/")[1].removeprefix("block_")) + 1, value)
                for n, value in metrics.items()
                if n.startswith(f"{statistic}/block_")
            ]
            layers, values = zip(*sorted(points), strict=True)
            means, errors = [v.mean for v in values], [v.sem for v in values]
            axis.errorbar(layers, means, errors, fmt="o-", color=colour, label=label, **DOT)
        axis.set(xlabel="layer (1 is block_0)", ylabel=statistic.replace("_", " "), xticks=layers)
        words.append(f"{statistic.replace('_', ' ')} {means[-1]:.3g}")
    headed(figure, f"After layer {layers[-1]}: {', '.join(words)}", ERRORS, axes[0])
    save(figure, file)


def grid(rows: int, columns: int, size: tuple[float, float], **shared):
    """A figure and its (rows, columns) panels; `size` is (COLUMN or PAGE, height) in inches."""
    figure_style.apply()
    return figure_style.panels(rows, columns, size, **shared)


def row(columns: int, size: tuple[float, float], **shared):
    """A figure and its panels, side by side."""
    figure, axes = grid(1, columns, size, **shared)
    return figure, axes[0]


def means(axis, x, values_SxK: np.ndarray, **look) -> None:
    """Means over the first axis with their standard errors; a single value has none."""
    n = len(values_SxK)
    error = values_SxK.std(0, ddof=1) / n**0.5 if n > 1 else None
    axis.errorbar(x, values_SxK.mean(0), error, **DOT | look)


def band(axis, x, low, middle, high, colour: str, label: str = "", alpha: float = 0.15) -> None:
    """A line within its range."""
    axis.plot(x, middle, color=colour, label=label)
    axis.fill_between(x, low, high, color=colour, alpha=alpha, lw=0)


def bars(axis, groups: Mapping[str, np.ndarray], **look) -> None:
    """Bars of the means over the first axis, those of the groups side by side."""
    size, look = 0.8 / len(groups), {"error_kw": {"elinewidth": 0.8}} | look
    for k, (colour, (label, values_SxK)) in enumerate(zip(COLOURS, groups.items())):
        at = np.arange(values_SxK.shape[1]) + (k - (len(groups) - 1) / 2) * size
        error = values_SxK.std(0) / max(len(values_SxK) - 1, 1) ** 0.5
        axis.bar(
            at, values_SxK.mean(0), size, yerr=error, **{"color": colour, "label": label} | look
        )


def heat(axis, U, names, most: float = 0.0):
    """A symmetric matrix, red positive and blue negative, its values written in if few.

    `most` is where the colours end; the image needs a colour bar, or shares that of another.
    """
    top = most or np.abs(U).max()
    image = axis.imshow(U, cmap=figure_style.SIGNED, vmin=-top, vmax=top)
    axis.spines[:].set_visible(True)
    if len(names) > 8:
        axis.set(xticks=[], yticks=[])
        return image
    axis.set_xticks(range(len(names)), names)
    axis.set_yticks(range(len(names)), names)
    axis.tick_params(length=0)
    for (i, j), value in np.ndenumerate(U):
        colour = "white" if abs(value) > 0.6 * top else "black"
        look = {"ha": "center", "va": "center", "fontsize": figure_style.SMALLEST, "color": colour}
        axis.text(j, i, f"{value:.2f}", **look)
    return image


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], at: Sequence[float], pale):
    """A figure of words: columns begin at these shares of the width, `pale` is behind the last."""
    figure, (axis,) = row(1, (PAGE, ROW * (len(rows) + 1)))
    axis.set(xlim=(0, 1), ylim=(len(rows) + 0.5, -0.5))
    axis.set_axis_off()
    for i, cells in enumerate((heads, *rows)):
        if i and pale[i - 1]:
            axis.axhspan(i - 0.5, i + 0.5, at[-1] - 0.01, 1, color=pale[i - 1], lw=0)
        for x, words in zip(at, cells, strict=True):
            axis.text(x, i, words, va="center", fontsize=figure_style.SMALL, parse_math=False)
    axis.axhline(0.5, color="0.3", lw=0.6)
    return figure


def pyplot():
    """matplotlib without a screen, in the style of all our figures."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure_style.apply()
    return plt


def save(figure, file: Path) -> None:
    """Writes the figure whole or not at all."""
    figure_style.save(figure, file)


def cycle(n: int) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(n)]
