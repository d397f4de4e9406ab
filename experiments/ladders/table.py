"""The table of ladders, and the sentences that people read."""

from collections.abc import Sequence
from math import floor, log10

from experiments.ladders.judgement import Judged, Measured, line
from experiments.ledger.ladder import card_seconds
from experiments.ledger.rules import NOT_RUN
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


def row(judged: Judged) -> tuple[str, ...]:
    """The cells of a ladder's row, in the order of COLUMNS."""
    ladder = judged.ladder
    on_cpu = [m for m in judged.measured if not m.rung.on_card]
    done = [m for m in judged.measured if m.counts]
    values = "; ".join(f"{m.rung.size:g}: {short(m.value)}" for m in done if m.value)
    return (
        ladder.name,
        f"{sum(m.counts for m in on_cpu)} of {len(on_cpu)}",
        values or "-",
        short(judged.slope),
        f"{short(judged.predicted)} at {ladder.paper_size:g}" if judged.predicted else "-",
        "-" if ladder.published is None else f"{ladder.published:.3g}",
        verdict(judged),
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


def by_progress(all_judged: Sequence[Judged]) -> list[Judged]:
    """Ladders with a verdict first, then those of which most sizes ran."""
    return sorted(
        all_judged,
        key=lambda judged: (judged.verdict == NOT_RUN, -sum(m.counts for m in judged.measured)),
    )


def verdict(judged: Judged) -> str:
    """The verdict, which can change as long as sizes are missing."""
    if judged.verdict == NOT_RUN:
        return TOO_FEW if any(m.counts for m in judged.measured) else NOT_RUN
    return judged.verdict if judged.is_complete else f"so far: {judged.verdict}"


def sentence(judged: Judged) -> str:
    """The prediction at the paper's size, marked as an extrapolation where it is one."""
    ladder = judged.ladder
    if judged.predicted is None or ladder.paper_size is None:
        return f"{ladder.quantity}: {TOO_FEW}"
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


def details(judged: Judged) -> list[str]:
    """The lines below a ladder's row: its rule, its sentence, and what is left out and why."""
    ladder = judged.ladder
    left_out = [
        f"{ladder.parameter} = {m.rung.size:g} does not count: {m.problem}"
        for m in judged.measured
        if m.problem not in ("", NOT_RUN)
    ]
    lines = [f"{ladder.claim} Rule: {ladder.rule}.", sentence(judged)]
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


def markdown(all_judged: Sequence[Judged]) -> str:
    """The table of all ladders as Markdown."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    lines += ["| " + " | ".join(row(judged)) + " |" for judged in all_judged]
    return "\n".join(lines)
