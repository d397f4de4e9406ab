"""Short lines for the pages of results: each ladder, below the row that it follows."""

from pathlib import Path

from experiments.ladders import plan, runs, table
from experiments.ladders.controlled import Control
from experiments.ladders.judgement import Judged
from experiments.ledger.rules import HELD, NOT_HELD, NOT_RUN, OPEN
from experiments.papers.ladders import LADDERS
from experiments.site.paper_pages import Trend, Trends

CONCLUSIONS = {
    HELD: 'so "{}" held',
    NOT_HELD: 'so "{}" did not hold',
    OPEN: 'which leaves "{}" open',
}


def trends(folder: Path) -> Trends:
    """The ladders of each row of which a size was run; {} without a plan in the folder.

    Args:
      folder: where PLAN.json and the records are.
    """
    file = folder / "PLAN.json"
    if not file.exists():
        return {}
    planned = plan.read(file)
    plan.check(planned, LADDERS)
    found: dict[tuple[str, str], list[Trend]] = {}
    judged_all = runs.judge_with_controls(planned, LADDERS, folder / "records", folder / "runs")
    for judged, control in judged_all:
        if not any(m.counts for m in judged.measured):
            continue  # a plan says nothing about the effect
        paper, _, row = judged.ladder.row.partition(": ")
        found.setdefault((paper, row), []).append(
            Trend(
                judged.ladder.name,
                f"{judged.ladder.parameter}: {judged.ladder.rule}",
                _state(judged, control),
                _with_size(judged, control),
            )
        )
    return found


def _state(judged: Judged, control: Control) -> str:
    """The verdict, or how many sizes of the ladder ran."""
    on_cpu = [m for m in judged.measured if not m.rung.on_card]
    if judged.verdict == NOT_RUN:
        return f"{sum(m.counts for m in on_cpu)} of {len(on_cpu)} sizes"
    has_slope = judged.slope and control.has_slope
    slope = f", {table.short(judged.slope)} per doubling" if has_slope else ""
    return f"{table.verdict(judged, control)}{slope}"


def _with_size(judged: Judged, control: Control) -> str:
    """The first sentence of a row whose effect was followed over sizes; "" before all were run."""
    # A size whose task is not solved has a value too, which the verdict leaves out.
    counted = [m for m in judged.measured if m.counts and not m.rung.on_card]
    if not judged.is_complete or judged.slope is None:
        return ""
    first, last = counted[0], counted[-1]
    ladder = judged.ladder
    values = (
        f"{first.value.mean:.3g} to {last.value.mean:.3g}" if first.value and last.value else ""
    )
    word = control.verdict(judged.verdict)
    if word in CONCLUSIONS:
        conclusion = CONCLUSIONS[word].format(ladder.rule)
    else:
        # Nothing is concluded from networks that were not shown to be trained.
        conclusion = f'which says nothing about "{ladder.rule}": {word}'
    return (
        f"With size: from {first.rung.size:g} to {last.rung.size:g} ({ladder.parameter}) "
        f"the {ladder.quantity} goes from {values}, {conclusion} "
        f"([ladder](../ladders.md#{ladder.name}))."
    )
