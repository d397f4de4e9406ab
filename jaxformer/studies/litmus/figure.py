"""The figure of the litmus test: a bar for each variant, and a line for the trivial predictor."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxformer.core.variants import label
from jaxformer.report import figure_style
from jaxformer.stats.differences import Number, difference
from jaxformer.studies.litmus.rule import CANNOT_TELL, HELPS, NEEDED, NOT_NEEDED

TITLES = {
    CANNOT_TELL: "Attention to the content cannot be judged",
    NOT_NEEDED: "Attention to the content is not needed",
    HELPS: "Attention to the content helps",
    NEEDED: "Attention to the content is needed",
}


@figure_style.styled
def draw(
    accuracies: Mapping[str, Number],
    trivial: tuple[str, float],
    verdict: str,
    settings: str,
    file: Path | None,
) -> Any:
    """Draws accuracies with 95 % intervals, and the trivial predictor as a dashed line.

    Args:
      accuracies: by variant
      trivial: name and accuracy of the trivial predictor
      verdict: a key of TITLES
      settings: names the task in the legend
      file: where the figure is saved; None: nowhere
    """
    bars = {label(variant): accuracy for variant, accuracy in accuracies.items()}
    trivial_name, trivial_accuracy = trivial
    trivial_percent = 100 * trivial_accuracy
    size = (figure_style.COLUMN if len(bars) < 6 else figure_style.PAGE, 2.0)
    figure, ((axis,),) = figure_style.panels(1, 1, size, figure_style.notebook_figure())
    heights = [100 * number.mean for number in bars.values()]
    errors = [100 * _half_interval(number) for number in bars.values()]
    colours = [figure_style.COLOURS[i % len(figure_style.COLOURS)] for i in range(len(bars))]
    style = {"capsize": 3, "color": colours, "width": 0.62}
    axis.bar(list(bars), heights, yerr=errors, error_kw={"elinewidth": 0.8}, **style)
    for i, (height, error) in enumerate(zip(heights, errors, strict=True)):
        top = min(height + error, 108)  # the number stays inside the panel
        axis.text(i, top + 1.5, f"{height:.1f}", ha="center", va="bottom")
    line_label = f"{trivial_name.replace('_', ' ')} ({trivial_percent:.1f} %)"
    axis.axhline(trivial_percent, color="black", ls="--", lw=1, label=line_label)
    axis.set(ylabel="test accuracy (%)", ylim=(0, 118))
    axis.set_yticks(range(0, 101, 20))
    figure_style.label_panel(axis)
    legend = f"{settings}. Bars: 95 % intervals. Dashed: trivial predictor."
    figure_style.add_finding(figure, TITLES[verdict], legend)
    if file is not None:
        figure_style.save(figure, file)
    return figure


def _half_interval(number: Number) -> float:
    """Returns the half width of the 95 % interval; 0 if it is unknown."""
    half = difference(number, Number(0.0)).half
    return half if math.isfinite(half) else 0.0
