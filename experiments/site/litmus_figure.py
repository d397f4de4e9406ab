"""The figure of the litmus test: a bar for each variant, and the trivial predictor."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.papers import plots
from experiments.schedule.litmus_rule import PHRASES, label


def draw(file: Path, record: Mapping[str, Any]) -> None:
    """Accuracies with two standard errors; a dashed line where no reading is needed."""
    bars = {label(variant): one.accuracy for variant, one in record["variants"].items()}
    name, value = record["trivial"]["name"].replace("_", " "), record["trivial"]["accuracy"]
    found = f"attention to the content {PHRASES[record['verdict']]}"
    figure, (axis,) = plots.row(1, (plots.COLUMN if len(bars) < 6 else plots.PAGE, 2.0))
    heights = [100 * number.mean for number in bars.values()]
    errors = [200 * number.sem for number in bars.values()]
    look = {"capsize": 3, "color": plots.cycle(len(bars)), "width": 0.62}
    axis.bar(list(bars), heights, yerr=errors, error_kw={"elinewidth": 0.8}, **look)
    for i, (height, error) in enumerate(zip(heights, errors, strict=True)):
        axis.text(i, height + error + 1.5, f"{height:.1f}", ha="center", va="bottom")
    axis.axhline(100 * value, color="black", ls="--", lw=1, label=f"{name} ({100 * value:.1f} %)")
    axis.set(ylabel="test accuracy (%)", ylim=(0, 118))
    axis.set_yticks(range(0, 101, 20))
    plots.name(axis)
    beware = f"{record['task']}, {record['scale']}. Bars: two standard errors. Dashed: no reading."
    plots.headed(figure, found[0].upper() + found[1:], beware)
    plots.save(figure, file)
