"""The figure of the litmus test: a bar for each variant, and a line for the trivial predictor."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.cli.describe import label
from experiments.ledger.statistics import Number, difference
from experiments.papers import plots
from experiments.schedule.litmus_rule import CANNOT_TELL, HELPS, NEEDED, NOT_NEEDED

TITLES = {
    CANNOT_TELL: "Attention to the content cannot be judged",
    NOT_NEEDED: "Attention to the content is not needed",
    HELPS: "Attention to the content helps",
    NEEDED: "Attention to the content is needed",
}


def draw(file: Path, record: Mapping[str, Any]) -> None:
    """Draws accuracies with 95 % intervals, and the trivial predictor as a dashed line."""
    bars = {label(variant): one.accuracy for variant, one in record["variants"].items()}
    name, value = record["trivial"]["name"].replace("_", " "), record["trivial"]["accuracy"]
    figure, (axis,) = plots.row(1, (plots.COLUMN if len(bars) < 6 else plots.PAGE, 2.0))
    heights = [100 * number.mean for number in bars.values()]
    errors = [100 * _half_interval(number) for number in bars.values()]
    look = {"capsize": 3, "color": plots.cycle(len(bars)), "width": 0.62}
    axis.bar(list(bars), heights, yerr=errors, error_kw={"elinewidth": 0.8}, **look)
    for i, (height, error) in enumerate(zip(heights, errors, strict=True)):
        above = min(height + error, 108)
        axis.text(i, above + 1.5, f"{height:.1f}", ha="center", va="bottom")
    axis.axhline(100 * value, color="black", ls="--", lw=1, label=f"{name} ({100 * value:.1f} %)")
    axis.set(ylabel="test accuracy (%)", ylim=(0, 118))
    axis.set_yticks(range(0, 101, 20))
    plots.name(axis)
    legend = (
        f"{record['task']}, {record['scale']}. Bars: 95 % intervals. Dashed: trivial predictor."
    )
    plots.headed(figure, TITLES[record["verdict"]], legend)
    plots.save(figure, file)


def _half_interval(number: Number) -> float:
    """Returns the half width of the 95 % interval; 0 if it is unknown."""
    half = difference(number, Number(0.0)).half
    return half if math.isfinite(half) else 0.0
