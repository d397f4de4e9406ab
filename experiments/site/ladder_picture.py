"""A picture of a ladder: the effect at each size, its line, and the paper's size."""

import textwrap
from pathlib import Path

import numpy as np

from experiments.ladders.controlled import Control
from experiments.ladders.judgement import Judged, line
from experiments.ladders.table import verdict
from experiments.papers import plots

LABEL_WIDTH = 36  # characters of a line beside the axis
NEAR = 0.5  # doublings between a size and the paper's, below which their labels would overlap
STAR = " The star is the published number."


def draw(judged: Judged, control: Control, file: Path) -> bool:
    """Draws a ladder that has at least one size; returns whether it did."""
    ladder = judged.ladder
    done = [m for m in judged.measured if m.counts and m.value]
    if not done or ladder.paper_size is None:
        return False
    figure, (axis,) = plots.row(1, (plots.COLUMN, 2.3))
    blue, red = plots.COLOURS[:2]
    for m in done:
        colour = red if m.rung.on_card else blue
        if m.rung.size in control.untrained:
            colour = "0.6"
        # Seeds in steps or in two modes have no bar: it would describe none of them.
        seeds = [*(m.number.by_seed.values() if m.number else ())]
        axis.plot([m.rung.size] * len(seeds), seeds, ".", color=colour, ms=3, alpha=0.6)
        if not (control.withdrawn or m.rung.size in control.modes):
            mean, low, high = m.value or (0.0, 0.0, 0.0)
            bar = [[mean - low], [high - mean]]
            axis.errorbar([m.rung.size], [mean], bar, fmt="o", color=colour, **plots.DOT)
    used = [m for m in done if not m.rung.on_card]
    if judged.slope is not None and control.has_slope:
        ends = sorted((used[0].rung.size, used[-1].rung.size, ladder.paper_size))
        sizes = np.geomspace(ends[0], ends[-1], 41)
        lines = np.array([line(ladder, used, float(size))[1] for size in sizes])
        axis.plot(sizes, lines[:, 0], color=blue, lw=1)
        axis.fill_between(sizes, lines[:, 1], lines[:, 2], color=blue, alpha=0.15, lw=0)
    axis.axvline(ladder.paper_size, color="0.5", lw=0.8, ls=":")
    if ladder.published is not None:
        axis.plot([ladder.paper_size], [ladder.published], "*", color="black", ms=7)
    axis.annotate(
        "paper",
        (ladder.paper_size, 1.01),
        xycoords=("data", "axes fraction"),
        ha="center",
        va="bottom",
        fontsize=plots.figure_style.SMALLEST,
    )
    paper = ladder.paper_size
    apart = [m.rung.size for m in done if abs(np.log2(m.rung.size / paper)) > NEAR]
    ticks = [*apart, paper]
    label = textwrap.fill(ladder.quantity, LABEL_WIDTH)
    axis.set(xscale="log", xlabel=ladder.parameter, ylabel=label)
    axis.set_xticks(ticks, [f"{size:g}" for size in ticks])
    axis.set_xticks([], minor=True)
    plots.add_finding(
        figure,
        f"{ladder.name}: {ladder.rule}: {verdict(judged, control)}",
        "Points: seeds. Bars and band: 95 % intervals."
        + " Grey: not trained." * bool(control.untrained)
        + STAR * (ladder.published is not None),
        axis,
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file)
    return True
