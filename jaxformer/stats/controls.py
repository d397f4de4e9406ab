"""Did it train? A comparison of two trainings counts only if the loser did.

Two networks differ in a part, and one scores less. That says something about the part only if the
worse network was trained as well as it can be. So each comparison gets one of few words:

    worse            the loser was trained: its best learning rate lies inside its grid, and it
                     ended, because it solved the task or because twice the steps score the same
    not trained      the loser was not shown to be trained, so nothing is said about the part
    does not learn   the loser stays at a guess, after enough tries to believe it
    at a ceiling     both are above CEILING: "not needed to solve this task at this size" may be
                     said, a cost or a trend may not
    two modes        some seeds solve the task and others do not, so they are counted
    as good          the interval leaves no room for a loss above the margin
    cannot tell      the interval leaves room for both

Only the loser must be tuned: a part that wins or equals needs no better training. A curve that is
flat at its end proves nothing, because schedules fall to 0; only a run of twice the steps, from the
start and with its own schedule, shows that a network has ended.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jaxformer.stats.differences import (
    ABOVE,
    BELOW,
    Difference,
    Number,
    difference,
    difference_on_shared_seeds,
)

CEILING = 0.995  # of an accuracy
SOLVED = 0.9  # the accuracy from which a task counts as solved, where nothing else is given
LEAST_RATES = 3  # an inner rate has one on each side
EXTRA_RATES = 2  # beyond each end of a grid at which the best rate of a loser lies
LEAST_SEEDS = 5  # of a network that does not learn
TIMES_STEPS = 4  # steps of a network that does not learn, over those that solved the task
SAME_STEPS = 2  # the longer run that shows that a network has ended
LONGER = (2, 4)  # times its steps with which a loser runs again; the last is TIMES_STEPS
# A curve of losses rises at its end if its last point lies above its lowest one by so much of its
# whole fall, and by so much of its first point, which the noise of a flat curve does not reach.
RISE_OF_FALL, RISE_OF_FIRST = 0.1, 0.02

WORSE, AS_GOOD, CANNOT_TELL = "worse", "as good", "cannot tell"
TRAINED, NOT_TRAINED, DOES_NOT_LEARN = "trained", "not trained", "does not learn"
AT_CEILING, TWO_MODES = "at a ceiling", "two modes"
WITHIN_BUDGET = "within the budget"  # the reason of a network whose next tries were not paid for
CANNOT_TELL_END = "cannot tell whether it ended"


class Training(NamedTuple):
    """The tries to train a network, and its score; more is better, so negate a loss.

    Attributes:
        score: at the best rate, on the test set
        rate: that validation chose
        rates: all that were tried
        steps: of a run
        guess: the score of the best trivial predictor on the same examples
        solved: the score from which a seed has solved the task; infinite: there is none
        longer: the same rate with SAME_STEPS times the steps
        best_elsewhere: the best mean score at the other rates
        solved_at: the steps with which every seed had solved the task; None: it is not solved
        is_rising: whether the loss of a seed rises at its end (`rises`)
        is_at_target: whether the training stopped because it had reached the score asked for
        missing: why further tries are missing, such as WITHIN_BUDGET; "": none is due
    """

    score: Number
    rate: float
    rates: Sequence[float]
    steps: int
    guess: float
    solved: float = math.inf
    longer: Number | None = None
    best_elsewhere: float = -math.inf
    solved_at: int | None = None
    is_rising: bool = False
    is_at_target: bool = False
    missing: str = ""

    @property
    def is_solved(self) -> bool:
        """Whether every seed solved the task."""
        return bool(self.score.by_seed) and min(self.score.by_seed.values()) >= self.solved

    @property
    def is_dead(self) -> bool:
        """Whether no rate, and no longer run, is above a guess."""
        runs = [self.score] if self.longer is None else [self.score, self.longer]
        at_guess = all(at_or_below(run, self.guess) for run in runs)
        return at_guess and self.best_elsewhere <= self.guess

    @property
    def edge(self) -> str:
        """Which end of the grid the best rate is: "lowest", "highest" or ""."""
        if self.rate == min(self.rates):
            return "lowest"
        return "highest" if self.rate == max(self.rates) else ""


class State(NamedTuple):
    """Whether a network trained, and why not."""

    word: str
    reason: str = ""

    def __str__(self) -> str:
        if self.reason == WITHIN_BUDGET:
            return f"{self.word} {self.reason}"
        return f"{self.word} ({self.reason})" if self.reason else self.word


def state(training: Training) -> State:
    """`TRAINED`, or `NOT_TRAINED` with the first reason."""
    score = training.score
    is_unknown = score.n > 1 and math.isnan(score.sem)  # as members of a record with a diverged one
    if is_unknown or any(math.isnan(value) for value in score.by_seed.values()):
        return State(NOT_TRAINED, "a seed diverged")
    if training.missing:
        return State(NOT_TRAINED, training.missing)
    n_rates = len(set(training.rates))
    if n_rates < LEAST_RATES:
        tried = "one learning rate" if n_rates == 1 else f"{n_rates} learning rates"
        return State(NOT_TRAINED, f"{tried} tried, {LEAST_RATES} are needed")
    if training.edge:
        rate = f"its best rate {training.rate:g}"
        return State(NOT_TRAINED, f"{rate} is the {training.edge} that was tried")
    if training.longer is not None:
        return _ended(training, training.longer)
    if training.is_at_target or training.is_solved:
        return State(TRAINED)
    if training.is_rising:
        return State(NOT_TRAINED, "its loss rises at the end")
    return State(NOT_TRAINED, f"{CANNOT_TELL_END}: no run of twice the steps")


def _ended(training: Training, longer: Number) -> State:
    """Whether a run of twice the steps scores the same."""
    gain = difference_on_shared_seeds(longer, training.score)
    if math.isinf(gain.half):
        return State(NOT_TRAINED, f"{CANNOT_TELL_END}: the error is unknown")
    if gain.verdict() == ABOVE:
        return State(
            NOT_TRAINED,
            f"{SAME_STEPS} x {training.steps:,} steps score {longer.mean:.4g}, "
            f"not {training.score.mean:.4g}",
        )
    if training.is_rising:
        return State(NOT_TRAINED, "its loss rises at the end")
    return State(TRAINED)


def does_not_learn(training: Training, steps_of_winner: int | None) -> State:
    """`DOES_NOT_LEARN` if a network stays at a guess after enough tries, else why not.

    Args:
        training: of the network. A longer run counts as a try of its own.
        steps_of_winner: the steps with which the network of comparison solved the task; None if it
            did not.
    """
    longest, steps = training.score, training.steps
    if training.longer is not None:
        longest, steps = training.longer, SAME_STEPS * training.steps
    if not (at_or_below(training.score, training.guess) and at_or_below(longest, training.guess)):
        return State(NOT_TRAINED, "it is above a guess")
    if len(set(training.rates)) < LEAST_RATES or (training.edge and not training.is_dead):
        return State(NOT_TRAINED, f"fewer than {LEAST_RATES} rates, or the best one at an edge")
    if steps_of_winner is None:
        return State(NOT_TRAINED, "the other network did not solve the task")
    if steps < TIMES_STEPS * steps_of_winner:
        needed = TIMES_STEPS * steps_of_winner
        return State(NOT_TRAINED, f"{steps:,} steps of {needed:,} that are needed")
    if longest.n < LEAST_SEEDS:
        return State(NOT_TRAINED, f"{longest.n} seeds of {LEAST_SEEDS} that are needed")
    return State(DOES_NOT_LEARN)


def compare(left: Training, right: Training, margin: float = 0.0) -> State:
    """Says how `left` compares with `right`, a network in which a part was not changed.

    Args:
        left: the network in which a part was removed, frozen or replaced.
        right: the network of comparison.
        margin: a loss that counts as none.

    Returns:
        A `State` of the words at the top of this module. `WORSE`, `NOT_TRAINED` and
        `DOES_NOT_LEARN` speak of `left`.
    """
    if min(left.score.mean, right.score.mean) > CEILING:
        return State(AT_CEILING, "not needed to solve this task at this size")
    gap = _gap(left.score, right.score)
    if gap.verdict(-margin) == ABOVE:
        return State(AS_GOOD)
    for name, training in (("", left), ("the whole network: ", right)):
        if counted := modes(training.score.by_seed, training.solved, training.guess):
            return State(TWO_MODES, name + counted)
    if gap.verdict(-margin) != BELOW:
        return State(CANNOT_TELL)
    dead = does_not_learn(left, right.solved_at)
    if dead.word == DOES_NOT_LEARN:
        return dead
    trained = state(left)
    if trained.word != TRAINED:
        return trained
    if left.is_at_target:
        return State(CANNOT_TELL, "its training stopped at its target")
    # The longer run is as fair a comparison, and a wide interval of its gain hides nothing here.
    if left.longer is not None and _gap(left.longer, right.score).verdict(-margin) != BELOW:
        return State(CANNOT_TELL, f"{SAME_STEPS} x {left.steps:,} steps leave room for no loss")
    return State(WORSE)


def modes(by_seed: Mapping[int, float], solved: float, guess: float) -> str:
    """Counts the seeds that solve a task, as "3 of 5 seeds solve it"; "" without two modes.

    Two modes are seeds that solve the task and seeds that end in the lower half of the way from a
    guess to the solution. Their mean describes none of them.
    """
    solvers = [seed for seed, score in by_seed.items() if score >= solved]
    low = [seed for seed, score in by_seed.items() if score < (solved + guess) / 2]
    if not solvers or not low:
        return ""
    return f"{len(solvers)} of {len(by_seed)} seeds solve it"


def rate_beyond(grid: Sequence[float], tried: Sequence[float], best: float) -> float | None:
    """The next rate beyond the end of a grid at which the best one lies; None if there is no such.

    Args:
        grid: the rates to choose from, whose spacing continues; one rate has no spacing.
        tried: the rates that were tried, of the grid and beyond its ends.
        best: the best of them.
    """
    grid, tried = sorted(grid), sorted(tried)
    if len(grid) < 2:
        return None
    n_below = sum(rate < grid[0] for rate in tried)
    n_above = sum(rate > grid[-1] for rate in tried)
    if best == tried[-1] and n_above < EXTRA_RATES:
        return float(f"{tried[-1] * grid[-1] / grid[-2]:.2g}")
    if best == tried[0] and n_below < EXTRA_RATES:
        return float(f"{tried[0] * grid[0] / grid[1]:.2g}")
    return None


def compared_times(scores: Mapping[int, Number]) -> int:
    """The steps at which a network is compared, over those of its first run.

    They are doubled as long as that helps. Where it does not, the longest run is kept for showing
    that the one before has ended.

    Args:
        scores: by times the steps; the first run is 1.
    """
    double, fourfold = LONGER
    if fourfold in scores:
        return fourfold if _gains(scores[fourfold], scores[double]) else double
    return double if double in scores and _gains(scores[double], scores[1]) else 1


def next_times(scores: Mapping[int, Number], can_be_dead: bool) -> int | None:
    """The run that a loser needs next, as times its steps; None: it has had all.

    Args:
        scores: by times the steps; the first run is 1.
        can_be_dead: whether it stays at a guess beside a network that solves the task, so that four
            times the steps would show that it does not learn.
    """
    double, fourfold = LONGER
    if double not in scores:
        return double
    is_due = can_be_dead or _gains(scores[double], scores[1])
    return fourfold if is_due and fourfold not in scores else None


def _gains(longer: Number, score: Number) -> bool:
    return difference_on_shared_seeds(longer, score).verdict() == ABOVE


def rises(losses: Sequence[float]) -> bool:
    """Whether a curve of training losses rises at its end, as that of too high a rate does."""
    finite = [loss for loss in losses if math.isfinite(loss)]
    if len(finite) < len(losses):
        return True
    if len(losses) < 3:
        return False
    first, lowest, last = losses[0], min(losses), losses[-1]
    least = max(RISE_OF_FALL * (first - lowest), RISE_OF_FIRST * abs(first))
    return last - lowest > least


def at_or_below(score: Number, guess: float) -> bool:
    """Whether a score is not above a guess."""
    return difference(score, Number(guess)).verdict() != ABOVE


def _gap(left: Number, right: Number) -> Difference:
    """The difference over the seeds that both have, if these are two or more."""
    shared = [seed for seed in left.by_seed if seed in right.by_seed]
    return (difference_on_shared_seeds if len(shared) > 1 else difference)(left, right)
