"""Decides each comparison of a report with the ledger's statistic.

A cell is a variant at its chosen learning rate. Each cell has one comparison: its score minus that
of the whole network, seed by seed, against a border. The border is -margin x lead, and the lead is
the distance from the trivial predictor to the whole network. The comparison has four outcomes:

no worse      the interval lies above the border: at most a margin is lost
worse         the interval lies below the border: more than a margin is lost
open          the interval contains the border
not trained   it would be worse, but the variant was not shown to be trained

The p values of all cells are corrected together (Benjamini and Hochberg), so that at most 5 % of
the decided cells are expected to be wrong. An open cell gets more seeds and is judged again, up to
LOOKS times in all. Each p value is multiplied by LOOKS to correct for the repeated tests.

`jaxformer.stats.controls` has the last word on what is worse: the loser must have been trained.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jaxformer.core.errors import UserError
from jaxformer.stats import controls
from jaxformer.stats.controls import NOT_TRAINED, State, Training
from jaxformer.stats.differences import (
    ABOVE,
    LEVEL,
    UNDECIDED,
    Difference,
    Number,
    difference,
    mean_and_sem,
    p_value,
)
from jaxformer.stats.members import record_number
from jaxformer.stats.multiplicity import benjamini_hochberg
from jaxformer.studies.anatomy.parts import FROZEN, REMOVED, Variant

MARGIN = 0.05  # share of the lead that a network that is "no worse" may lose
LOOKS = 3  # how often a cell is judged at most
SEEDS_AT_LOOK = (3, 5, 8)  # the number of seeds at each look
NO_WORSE, WORSE, OPEN = "no worse", "worse", "open"
MUST_TRAIN, MAY_STAY_RANDOM, CAN_GO = "must be trained", "may stay random", "can go"
CANNOT_TELL = "cannot tell yet"
# The baselines of a text task that ignore the preceding tokens.
FREQUENCIES = ("best_constant", "unigram_loss")


class Cell(NamedTuple):
    """The score of a variant on the test set; higher is better."""

    variant: Variant
    score: Number
    rate: float  # the learning rate that validation chose
    rates: tuple[float, ...] = ()  # that were tried
    steps: int = 0  # of a training
    longer: Number | None = None  # the score with twice the steps
    best_elsewhere: float = -math.inf  # the best score at the other rates
    is_rising: bool = False  # whether the loss of a seed rises at its end
    missing: str = ""  # why a longer run is missing


class Judged(NamedTuple):
    """A cell with the outcome of its comparison."""

    cell: Cell
    gap: Difference  # cell - whole network
    p: float  # two-sided p value of gap = border, times LOOKS, at most 1; nan without an interval
    q: float  # p corrected for the number of cells
    raw: str  # the outcome without a look at how the variant was trained
    outcome: str
    control: State  # the word of `jaxformer.stats.controls`

    @property
    def is_decided(self) -> bool:
        return self.outcome in (NO_WORSE, WORSE)

    @property
    def word(self) -> str:
        """The outcome with what the controls add to it."""
        if self.outcome == OPEN:
            has_word = self.control.word in (controls.TWO_MODES, controls.CANNOT_TELL)
            return str(self.control) if has_word and self.control.reason else CANNOT_TELL
        if self.outcome == NO_WORSE:
            at_ceiling = self.control.word == controls.AT_CEILING
            return f"{NO_WORSE}, {controls.AT_CEILING}" if at_ceiling else NO_WORSE
        return str(self.control)


class Table(NamedTuple):
    """All cells of a report with their outcomes."""

    whole: Cell
    trivial: float
    trivial_name: str
    margin: float
    rows: tuple[Judged, ...]
    is_learned: bool  # whether the whole network is above the trivial predictor

    @property
    def lead(self) -> float:
        """The distance from the trivial predictor to the whole network."""
        return self.whole.score.mean - self.trivial

    def share(self, row: Judged) -> float:
        """Returns the share of the lead that a variant keeps: 1 is the whole network's score."""
        return 1 + row.gap.gap / self.lead if self.lead > 0 else math.nan

    def share_half_width(self, row: Judged) -> float:
        """Returns the half width of the share's 95 % interval, without the error of the lead."""
        return row.gap.half / self.lead if self.lead > 0 else math.inf

    def find(self, part: str, method: str, layer: int | None = None) -> Judged | None:
        """Returns the row of a variant, if it was trained."""
        for row in self.rows:
            variant = row.cell.variant
            if (variant.part, variant.method, variant.layer) == (part, method, layer):
                return row
        return None

    def verdicts(self) -> dict[tuple[str, int | None], str]:
        """Returns the verdict on each (part, layer) of which a variant was trained."""
        keys = ((row.cell.variant.part, row.cell.variant.layer) for row in self.rows)
        return {key: self.verdict(*key) for key in dict.fromkeys(keys)}

    def verdict(self, part: str, layer: int | None = None) -> str:
        """Returns the verdict on a part, from its decided comparisons."""
        outcomes = {
            method: row.outcome
            for method in (REMOVED, FROZEN)
            if (row := self.find(part, method, layer)) is not None
        }
        if outcomes.get(REMOVED) == NO_WORSE:
            return CAN_GO
        if outcomes.get(FROZEN) == NO_WORSE:
            return MAY_STAY_RANDOM
        if outcomes.get(FROZEN) == WORSE:
            return MUST_TRAIN
        return CANNOT_TELL

    @property
    def is_decided(self) -> bool:
        return all(row.is_decided for row in self.rows)


def judge(
    whole: Cell,
    cells: Sequence[Cell],
    trivial: float,
    trivial_name: str = "guessing",
    margin: float = MARGIN,
) -> Table:
    """Returns the table of all cells.

    Args:
      whole: the whole network.
      cells: the variants.
      trivial: the score of the best trivial predictor.
      trivial_name: its name.
      margin: the share of the lead that a network that is "no worse" may lose.
    """
    is_learned = difference(whole.score, Number(trivial)).verdict() == ABOVE
    border = -margin * (whole.score.mean - trivial)
    gaps, p_values = [], []
    for cell in cells:
        score, whole_score = on_shared_seeds(cell.score, whole.score)
        gaps.append(difference(score, whole_score))
        p = p_value(score, whole_score, border) if is_learned else math.nan
        p_values.append(at_any_look(p))
    q_values = corrected(p_values)
    rows = []
    for cell, gap, p, q in zip(cells, gaps, p_values, q_values, strict=True):
        raw = outcome(gap, q, border)
        control = controls.compare(
            training(cell, trivial), training(whole, trivial), max(-border, 0.0)
        )
        rows.append(Judged(cell, gap, p, q, raw, _controlled(raw, control), control))
    return Table(whole, trivial, trivial_name, margin, tuple(rows), is_learned)


def _controlled(raw: str, control: State) -> str:
    """The outcome of a comparison, once it is known how the variant was trained."""
    if raw != WORSE or control.word in (controls.WORSE, controls.DOES_NOT_LEARN):
        return raw
    return NOT_TRAINED if control.word == NOT_TRAINED else OPEN


def training(cell: Cell, trivial: float) -> Training:
    """The tries of a cell, as the controls read them."""
    return Training(
        cell.score,
        cell.rate,
        cell.rates or (cell.rate,),
        cell.steps,
        trivial,
        # A loss has no score from which a task is solved.
        solved=controls.SOLVED if cell.score.is_share else math.inf,
        longer=cell.longer,
        best_elsewhere=cell.best_elsewhere,
        solved_at=solved_at(cell),
        is_rising=cell.is_rising,
        missing=cell.missing,
    )


def solved_at(cell: Cell) -> int | None:
    """The steps with which all seeds of a cell solved the task; None if they did not."""
    by_seed = cell.score.by_seed
    is_solved = cell.score.is_share and by_seed and min(by_seed.values()) >= controls.SOLVED
    return cell.steps if is_solved else None


def at_any_look(p: float) -> float:
    """The p value of a comparison that is judged up to LOOKS times; nan stays nan."""
    return p if math.isnan(p) else min(1.0, p * LOOKS)


def corrected(p_values: Sequence[float]) -> list[float]:
    """The p values corrected together for their number, except those that are nan."""
    tested = [i for i, p in enumerate(p_values) if not math.isnan(p)]
    q_values = [math.nan] * len(p_values)
    for i, q in zip(tested, benjamini_hochberg([p_values[i] for i in tested]), strict=True):
        q_values[i] = q
    return q_values


def outcome(gap: Difference, q: float, border: float) -> str:
    """The outcome of one comparison, from its interval and its corrected p value."""
    if math.isnan(q) or q > 1 - LEVEL or gap.verdict(border) == UNDECIDED:
        return OPEN
    return NO_WORSE if gap.verdict(border) == ABOVE else WORSE


def on_shared_seeds(left: Number, right: Number) -> tuple[Number, Number]:
    """Returns both numbers over their shared seeds; unchanged if they share fewer than two."""
    shared = [seed for seed in left.by_seed if seed in right.by_seed]
    if len(shared) < 2:
        return left, right
    return left.of_seeds(shared), right.of_seeds(shared)


def score_number(
    scores: Mapping[int, Mapping[str, Any]], metric: str, diverged: Sequence[int] = ()
) -> Number:
    """Returns the score over seeds with its errors; a loss becomes negative.

    Args:
      scores: {seed: {metric: Mean}} of one learning rate.
      metric: "accuracy" or "loss".
      diverged: the seeds that diverged; with one of them the error is unknown.
    """
    score_of_seed = {seed: by_metric[metric] for seed, by_metric in scores.items()}
    members = [
        {
            "seed": seed,
            "metrics": {metric: dict(zip(("mean", "sem", "n"), score, strict=True))},
            "diverged_at": 0 if seed in diverged else None,
        }
        for seed, score in score_of_seed.items()
    ]
    mean, sem = mean_and_sem([score[0] for score in score_of_seed.values()])
    number = record_number({"mean": mean, "sem": sem, "n": len(members)}, members, metric)
    return number if metric != "loss" else negative(number)


def negative(number: Number) -> Number:
    """Returns -number with the same errors."""
    by_seed = {seed: -value for seed, value in number.by_seed.items()}
    return number._replace(mean=-number.mean, by_seed=by_seed)


def best_trivial(
    baselines: Mapping[str, float], metric: str, is_text: bool = False
) -> tuple[str, float]:
    """Returns name and score of the best trivial predictor; a loss becomes negative.

    The trivial predictor of a text guesses by the frequency of tokens or classes. Predictors that
    read the text, such as trigrams, do not count as trivial.
    """
    is_loss = metric == "loss"
    if is_text:
        by_frequency = {name: x for name, x in baselines.items() if name in FREQUENCIES}
        return "guessing by frequency", best_trivial(by_frequency, metric)[1]
    scores = {
        name: -value if is_loss else value
        for name, value in baselines.items()
        if name.endswith("_loss") == is_loss
    }
    if not scores:
        kind = "a name that ends in _loss" if is_loss else "an accuracy"
        raise UserError(f"the task has no trivial predictor with {kind}: add one to `baselines`.")
    return max(scores.items(), key=lambda item: item[1])
