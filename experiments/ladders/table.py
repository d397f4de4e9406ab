"""The table of ladders, and the sentences that people read."""

import math
from collections.abc import Sequence
from math import floor, log10

from experiments.ladders.controlled import OURS, Control
from experiments.ladders.judgement import Judged, Measured, line
from experiments.ledger.ladder import card_seconds
from experiments.ledger.rules import HELD, NOT_HELD, NOT_RUN
from jaxformer.core.text_format import duration
from jaxformer.stats.trend import Estimate

COLUMNS = (
    "ladder",
    "sizes run",
    "effect at each size",
    "per doubling",
    "predicted at the paper's size",
    "published",
    "verdict",
    "core hours",
    "next size costs",
)
MOST_DECIMALS = 5
TOO_FEW = "fewer than three sizes"


NO_CONTROL = Control()  # of a ladder whose records were not looked at


def row(judged: Judged, control: Control = NO_CONTROL) -> tuple[str, ...]:
    """The cells of a ladder's row, in the order of COLUMNS."""
    ladder = judged.ladder
    on_cpu = [m for m in judged.measured if not m.rung.on_card]
    done = [m for m in judged.measured if m.counts]
    values = "; ".join(f"{m.rung.size:g}: {short(m.value)}" for m in done if m.value)
    predicted = "-"
    if judged.predicted and control.has_slope:
        predicted = f"{short(judged.predicted)} at {ladder.paper_size:g}"
    return (
        ladder.name,
        f"{sum(m.counts for m in on_cpu)} of {len(on_cpu)}",
        values or "-",
        short(judged.slope) if control.has_slope else "-",
        predicted,
        "-" if ladder.published is None else f"{ladder.published:.3g}",
        verdict(judged, control),
        f"{sum(m.core_seconds for m in judged.measured) / 3600:.2f}",
        next_cost(judged),
    )


def short(estimate: Estimate | None) -> str:
    """The mean and its interval, to two significant digits of half the interval; "-" for None."""
    if estimate is None:
        return "-"
    half = (estimate.high - estimate.low) / 2
    decimals = min(max(1 - floor(log10(half)), 0), MOST_DECIMALS) if half > 0 else MOST_DECIMALS
    # Adding 0 turns what is rounded to -0 into 0.
    mean, low, high = (f"{round(value, decimals) + 0.0:.{decimals}f}" for value in estimate)
    return f"{mean} ({low} to {high})"


def by_progress(
    all_judged: Sequence[tuple[Judged, Control]],
) -> list[tuple[Judged, Control]]:
    """Ladders with a verdict first, then those of which most sizes ran."""

    def key(pair: tuple[Judged, Control]) -> tuple[bool, int]:
        judged, _ = pair
        return judged.verdict == NOT_RUN, -sum(m.counts for m in judged.measured)

    return sorted(all_judged, key=key)


def verdict(judged: Judged, control: Control = NO_CONTROL) -> str:
    """The verdict, which can change as long as sizes are missing."""
    if judged.verdict == NOT_RUN:
        return TOO_FEW if any(m.counts for m in judged.measured) else NOT_RUN
    word = control.verdict(judged.verdict)
    if word not in (HELD, NOT_HELD):
        return word
    return word if judged.is_complete else f"so far: {word}"


def sentence(judged: Judged, control: Control = NO_CONTROL) -> str:
    """The prediction at the paper's size, marked as an extrapolation where it is one."""
    ladder = judged.ladder
    if judged.predicted is None or ladder.paper_size is None:
        return f"{ladder.quantity}: {TOO_FEW}"
    if not control.has_slope:
        return f"no prediction at the paper's size, {ladder.paper_size:g}: {no_trend(control)}"
    sizes = [m.rung.size for m in judged.measured if m.counts and not m.rung.on_card]
    factor = max(ladder.paper_size / sizes[-1], sizes[0] / ladder.paper_size)
    where = f", an extrapolation by a factor of {factor:.3g}" if factor > 1 else ""
    return (
        f"at the paper's size, {ladder.paper_size:g}, the trend predicts {short(judged.predicted)}"
        f"{where}; {_beside_published(judged)}"
    )


def _beside_published(judged: Judged) -> str:
    """The published number, and whether the prediction misses it."""
    published, predicted = judged.ladder.published, judged.predicted
    if published is None:
        return "the paper prints no number"
    text = f"published {published:.3g}"
    if predicted is not None and not predicted.low <= published <= predicted.high:
        text += ": the published value lies outside, so this trend does not lead to it"
    return text


def no_trend(control: Control) -> str:
    """Why no change per doubling is told."""
    if control.withdrawn or control.untrained:
        return "its verdict is not about networks that were shown to be trained"
    if control.at_ceiling:
        sizes = ", ".join(f"{size:g}" for size in control.at_ceiling)
        return f"both networks solve the task at {sizes}, where there is nothing to lose"
    return "the values of the seeds bend, so that a line describes none of them"


def control_lines(judged: Judged, control: Control) -> list[str]:
    """The findings of the second look at the records, a line for each."""
    ladder, lines = judged.ladder, []
    if control.withdrawn:
        lines.append(f"Withdrawn: {control.withdrawn}.")
    if judged.verdict in (HELD, NOT_HELD) and control.verdict(judged.verdict) != judged.verdict:
        lines.append(f"By its rule alone the verdict was: {judged.verdict}.")
    for size, reason in control.untrained.items():
        lines.append(f"{ladder.parameter} = {size:g}: not trained: {reason}")
    if control.at_ceiling and not control.untrained:
        lines.append("At a ceiling a part is not needed to solve this task at this size, no more.")
    for size, counted in control.modes.items():
        lines.append(f"{ladder.parameter} = {size:g}, two modes: {counted}")
    if not math.isnan(control.q):
        lines.append(f"Corrected for the number of rules: q = {control.q:.2g}.")
    if ladder.seen:
        seen = ", ".join(f"{size:g}" for size in ladder.seen)
        counted = [m.rung.size for m in judged.measured if m.counts and not m.rung.on_card]
        all_seen = counted and {*counted} <= {*ladder.seen}
        whole = ": all of those that count" if all_seen else ""
        lines.append(f"Seen with other seeds before the rule was written: {seen}{whole}.")
    if ladder.name in OURS:
        lines.append(f"Ours: {OURS[ladder.name]}.")
    return lines


def card_sentences(judged: Judged) -> list[str]:
    """Comparisons of sizes that an accelerator ran with what the smaller ones predicted."""
    used = [m for m in judged.measured if m.counts and not m.rung.on_card]
    if judged.slope is None:
        return []
    return [
        f"size {m.rung.size:g} on a card: predicted "
        f"{short(line(judged.ladder, used, m.rung.size)[1])}, measured {short(m.value)}"
        for m in judged.measured
        if m.counts and m.rung.on_card
    ]


def details(judged: Judged, control: Control = NO_CONTROL) -> list[str]:
    """The lines below a ladder's row: its rule, its sentence, and what is left out and why."""
    ladder = judged.ladder
    left_out = [
        f"{ladder.parameter} = {m.rung.size:g} does not count: {m.problem}"
        for m in judged.measured
        if m.problem not in ("", NOT_RUN)
    ]
    lines = [f"{ladder.claim} Rule: {ladder.rule}.", sentence(judged, control)]
    lines += control_lines(judged, control)
    return [*lines, *card_sentences(judged), *left_out]


def next_cost(judged: Judged) -> str:
    """The guessed time of the next size on one core, corrected by the sizes that ran."""
    waiting = [m for m in judged.measured if not m.counts and not m.core_seconds]
    if not waiting:
        return "-"
    rung = waiting[0].rung
    seconds = 60 * rung.minutes * _correction(judged.measured)
    if not rung.on_card:
        return f"{rung.size:g}: {duration(seconds)}"
    return f"{rung.size:g}: {duration(card_seconds(60 * rung.minutes))} on an H100"


def _correction(measured: Sequence[Measured]) -> float:
    """The time that sizes took over the time that was guessed for them."""
    done = [m for m in measured if m.core_seconds and not m.rung.on_card]
    guessed = sum(60 * m.rung.minutes for m in done)
    return sum(m.core_seconds for m in done) / guessed if guessed else 1.0


def markdown(all_judged: Sequence[tuple[Judged, Control]]) -> str:
    """The table of all ladders as Markdown."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    lines += ["| " + " | ".join(row(*pair)) + " |" for pair in all_judged]
    return "\n".join(lines)
