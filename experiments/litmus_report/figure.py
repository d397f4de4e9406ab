"""The figure of the litmus test: a bar for each variant, and a line for the trivial predictor."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.cli.describe import label
from experiments.litmus_report.rule import CANNOT_TELL, HELPS, NEEDED, NOT_NEEDED
from experiments.papers import plots
from jaxformer.runtime import figure_style
from jaxformer.stats.differences import Number, difference

if TYPE_CHECKING:
    from experiments.litmus_report.report import Litmus

TITLES = {
    CANNOT_TELL: "Attention to the content cannot be judged",
    NOT_NEEDED: "Attention to the content is not needed",
    HELPS: "Attention to the content helps",
    NEEDED: "Attention to the content is needed",
}


@figure_style.styled
def draw(litmus: "Litmus", file: Path | None) -> Any:
    """Draws accuracies with 95 % intervals, and the trivial predictor as a dashed line."""
    bars = {label(variant): trained.accuracy for variant, trained in litmus.variants.items()}
    trivial_name, trivial_accuracy = litmus.trivial
    trivial_percent = 100 * trivial_accuracy
    size = (plots.COLUMN if len(bars) < 6 else plots.PAGE, 2.0)
    figure, ((axis,),) = figure_style.panels(1, 1, size, figure_style.notebook_figure())
    heights = [100 * number.mean for number in bars.values()]
    errors = [100 * _half_interval(number) for number in bars.values()]
    style = {"capsize": 3, "color": plots.cycle(len(bars)), "width": 0.62}
    axis.bar(list(bars), heights, yerr=errors, error_kw={"elinewidth": 0.8}, **style)
    for i, (height, error) in enumerate(zip(heights, errors, strict=True)):
        top = min(height + error, 108)  # the number stays inside the panel
        axis.text(i, top + 1.5, f"{height:.1f}", ha="center", va="bottom")
    line_label = f"{trivial_name.replace('_', ' ')} ({trivial_percent:.1f} %)"
    axis.axhline(trivial_percent, color="black", ls="--", lw=1, label=line_label)
    axis.set(ylabel="test accuracy (%)", ylim=(0, 118))
    axis.set_yticks(range(0, 101, 20))
    plots.label_panel(axis)
    settings = ", ".join(filter(None, (litmus.task, litmus.scale)))
    legend = f"{settings}. Bars: 95 % intervals. Dashed: trivial predictor."
    plots.add_finding(figure, TITLES[litmus.verdict], legend)
    if file is not None:
        plots.save(figure, file)
    return figure


def _half_interval(number: Number) -> float:
    """Returns the half width of the 95 % interval; 0 if it is unknown."""
    half = difference(number, Number(0.0)).half
    return half if math.isfinite(half) else 0.0
