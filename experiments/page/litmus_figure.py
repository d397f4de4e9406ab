"""The figure of the litmus test: a bar for each variant, and the trivial predictor."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.schedule.judging import PHRASES, label
from experiments.shared import plots


def draw(file: Path, record: Mapping[str, Any]) -> None:
    """Accuracies with two standard errors; a dashed line where no reading is needed."""
    bars = {label(variant): one.accuracy for variant, one in record["variants"].items()}
    name, value = record["trivial"]["name"].replace("_", " "), record["trivial"]["accuracy"]
    found = f"attention to the content {PHRASES[record['verdict']]}"
    figure, (axis,) = plots.row(1, (1.4 * len(bars) + 2.2, 3.6))
    heights = [100 * number.mean for number in bars.values()]
    errors = [200 * number.sem for number in bars.values()]
    look = {"capsize": 5, "color": plots.cycle(len(bars)), "width": 0.62}
    axis.bar(list(bars), heights, yerr=errors, **look)
    for i, (height, error) in enumerate(zip(heights, errors, strict=True)):
        axis.text(i, height + error + 1.5, f"{height:.1f}", ha="center", va="bottom", fontsize=10)
    axis.axhline(100 * value, color="black", ls="--", lw=1.3, label=f"{name} ({100 * value:.1f} %)")
    axis.set(ylabel="test accuracy (%), ± 2 standard errors", ylim=(0, 118))
    axis.set_yticks(range(0, 101, 20))
    axis.set_title(f"{record['task']}, {record['scale']}: {found}", fontsize=11)
    look = {"loc": "upper right", "fontsize": 9, "title_fontsize": 9, "frameon": False}
    axis.legend(title="trivial predictor", **look)
    axis.spines[["top", "right"]].set_visible(False)
    plots.save(figure, file)
