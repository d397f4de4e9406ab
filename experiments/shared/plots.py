"""Figures of records. A figure reads files, it never trains."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxformer.training.curves import COLOURS


def by_layer(file: Path, runs: Mapping[str, Mapping[str, Any]]) -> None:
    """Metrics named "statistic/block_i/..." against the layer, one panel a statistic."""
    plt = pyplot()
    names = sorted({name.split("/")[0] for metrics in runs.values() for name in metrics})
    figure, axes = plt.subplots(
        1, len(names), figsize=(3.2 * len(names), 3), layout="constrained", squeeze=False
    )
    for axis, statistic in zip(axes[0], names, strict=True):
        for colour, (label, metrics) in zip(_cycle(len(runs)), runs.items(), strict=True):
            points = [
                (int(name.split("/")[1].removeprefix("block_")) + 1, value)
                for name, value in metrics.items()
                if name.startswith(f"{statistic}/block_")
            ]
            layers, values = zip(*sorted(points), strict=True)
            axis.errorbar(
                layers,
                [v.mean for v in values],
                [v.sem for v in values],
                color=colour,
                marker="o",
                ms=4,
                capsize=3,
                label=label,
            )
        axis.set(xlabel="layer", ylabel=statistic.replace("_", " "), xticks=layers)
        axis.set_title(f"{values[-1].mean:.3g} after layer {layers[-1]}", fontsize=10)
    axes[0, 0].legend(fontsize=8)
    save(figure, file)


def pyplot():
    """matplotlib without a screen."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def save(figure, file: Path) -> None:
    """Writes the figure whole or not at all."""
    temporary = file.with_name(f".{file.name}")
    figure.savefig(temporary, dpi=150, format=file.suffix[1:])
    temporary.replace(file)
    pyplot().close(figure)


def _cycle(n: int) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(n)]
