"""The figure of the litmus test: a bar for each variant, and the trivial predictor."""

from collections.abc import Mapping
from pathlib import Path

from experiments.ledger.rules import Number
from experiments.shared.plots import COLOURS, pyplot, save


def draw(
    file: Path, bars: Mapping[str, Number], trivial: str, value: float, title: str
) -> None:  # fmt: skip
    """Accuracies with two standard errors; a dashed line where no reading is needed."""
    plt = pyplot()
    figure, axis = plt.subplots(figsize=(1.4 * len(bars) + 2.2, 3.6), layout="constrained")
    heights = [100 * number.mean for number in bars.values()]
    errors = [200 * number.sem for number in bars.values()]
    colours = [COLOURS[i % len(COLOURS)] for i in range(len(bars))]
    axis.bar(list(bars), heights, yerr=errors, capsize=5, color=colours, width=0.62)
    for i, (height, error) in enumerate(zip(heights, errors, strict=True)):
        axis.text(i, height + error + 1.5, f"{height:.1f}", ha="center", va="bottom", fontsize=10)
    name = trivial.replace("_", " ")
    axis.axhline(100 * value, color="black", ls="--", lw=1.3, label=f"{name} ({100 * value:.1f} %)")
    axis.set(
        ylabel="test accuracy (%), ± 2 standard errors", ylim=(0, 118), yticks=range(0, 101, 20)
    )
    axis.set_title(title, fontsize=11)
    look = {"loc": "upper right", "fontsize": 9, "title_fontsize": 9, "frameon": False}
    axis.legend(title="trivial predictor", **look)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    save(figure, file)
