"""How figures look. What draws reads numbers, it never trains."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxformer.errors import UserError
from jaxformer.records import write_atomically
from jaxformer.training.curves import COLOURS

STYLE = {"axes.titlesize": 10, "figure.titlesize": 10, "legend.fontsize": 8}
ENDINGS = (".png", ".pdf", ".svg")
DOT = {"ms": 4, "capsize": 3}
PALE = {"green": "#c9e8d9", "yellow": "#fbe5c0", "red": "#f6cdb8"}  # Behind the words of a table.


def by_layer(file: Path, runs: Mapping[str, Mapping[str, Any]]) -> None:
    """Metrics named "statistic/block_i/..." against the layer, one panel a statistic."""
    names = sorted({name.split("/")[0] for metrics in runs.values() for name in metrics})
    figure, axes = row(len(names), (3.2 * len(names), 3))
    for axis, statistic in zip(axes, names, strict=True):
        for colour, (label, metrics) in zip(cycle(len(runs)), runs.items(), strict=True):
            points = [
                (int(name.split("/")[1].removeprefix("block_")) + 1, value)
                for name, value in metrics.items()
                if name.startswith(f"{statistic}/block_")
            ]
            layers, values = zip(*sorted(points), strict=True)
            means, errors = [v.mean for v in values], [v.sem for v in values]
            axis.errorbar(layers, means, errors, fmt="o-", color=colour, label=label, **DOT)
        axis.set(xlabel="layer", ylabel=statistic.replace("_", " "), xticks=layers)
        axis.set_title(f"{values[-1].mean:.3g} after layer {layers[-1]}")
    axes[0].legend()
    save(figure, file)


def grid(rows: int, columns: int, size: tuple[float, float], **shared):
    """A figure and its (rows, columns) panels; `size` is in inches."""
    return pyplot().subplots(
        rows, columns, figsize=size, layout="constrained", squeeze=False, **shared
    )


def row(columns: int, size: tuple[float, float], **shared):
    """A figure and its panels, side by side."""
    figure, axes = grid(1, columns, size, **shared)
    return figure, axes[0]


def means(axis, x, values_SxK: np.ndarray, **style) -> None:
    """Means over the first axis with their standard errors; a single value has none."""
    n = len(values_SxK)
    error = values_SxK.std(0, ddof=1) / n**0.5 if n > 1 else None
    axis.errorbar(x, values_SxK.mean(0), error, **DOT | style)


def band(axis, x, low, middle, high, colour: str, label: str = "", alpha: float = 0.15) -> None:
    """A line within its range."""
    axis.plot(x, middle, color=colour, label=label)
    axis.fill_between(x, low, high, color=colour, alpha=alpha, lw=0)


def bars(axis, groups: Mapping[str, np.ndarray], **look) -> None:
    """Bars of the means over the first axis, those of the groups side by side."""
    size = 0.8 / len(groups)
    for k, (colour, (label, values_SxK)) in enumerate(zip(COLOURS, groups.items())):
        at = np.arange(values_SxK.shape[1]) + (k - (len(groups) - 1) / 2) * size
        error = values_SxK.std(0) / max(len(values_SxK) - 1, 1) ** 0.5
        axis.bar(
            at, values_SxK.mean(0), size, yerr=error, **{"color": colour, "label": label} | look
        )


def legend_below(figure, axis, columns: int) -> None:
    """The names of one panel's curves, below all panels."""
    figure.legend(*axis.get_legend_handles_labels(), loc="outside lower center", ncols=columns)


def heat(axis, U, names) -> None:
    """A symmetric matrix, red positive and blue negative, its values written in if few."""
    top = np.abs(U).max()
    axis.imshow(U, cmap="RdBu_r", vmin=-top, vmax=top)
    if len(names) > 8:
        axis.set(xticks=[], yticks=[])
        return
    axis.set_xticks(range(len(names)), names, fontsize=8)
    axis.set_yticks(range(len(names)), names, fontsize=8)
    for (i, j), value in np.ndenumerate(U):
        colour = "white" if abs(value) > 0.6 * top else "black"
        axis.text(j, i, f"{value:.2f}", ha="center", va="center", fontsize=8, color=colour)


def pyplot():
    """matplotlib without a screen, in the style of all our figures."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.style.use(STYLE)
    return plt


def save(figure, file: Path) -> None:
    """Writes the figure whole or not at all."""
    try:
        figure.savefig(drawn := io.BytesIO(), dpi=150, format=file.suffix[1:])
        write_atomically(file, drawn.getvalue())
    except OSError as error:
        raise UserError(f"cannot write the figure {file}: {error.strerror}.") from None
    finally:
        pyplot().close(figure)


def cycle(n: int) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(n)]
