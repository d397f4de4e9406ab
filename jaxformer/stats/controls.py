"""Did it train? A comparison of two trainings counts only if the loser did.

Two networks differ in a part, and one scores less. That says something about the part only if the
worse network was trained as well as it can be. So each comparison gets one of few words:

    worse            the loser was trained: its best learning rate lies inside its grid, and it
                     ended, because it solved the task or because twice the steps score the same
    not trained      the loser was not shown to be trained, so nothing is said about the part
    does not learn   the loser stays at a guess, after enough tries to believe it
    at a ceiling     both are above CEILING: "not needed to solve this task at this size" may be
                     said, a cost or a trend may not
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
    Number,
    difference,
    difference_on_shared_seeds,
)

CEILING = 0.995  # of an accuracy
LEAST_RATES = 3  # an inner rate has one on each side
LEAST_SEEDS = 5  # of a network that does not learn
TIMES_STEPS = 4  # steps of a network that does not learn, over those that solved the task
SAME_STEPS = 2  # the longer run that shows that a network has ended

WORSE, AS_GOOD, CANNOT_TELL = "worse", "as good", "cannot tell"
TRAINED, NOT_TRAINED, DOES_NOT_LEARN = "trained", "not trained", "does not learn"
AT_CEILING = "at a ceiling"


class Training(NamedTuple):
    """The tries to train a network, and its score; more is better, so negate a loss."""

    score: Number  # at the best rate, on the test set
    rate: float  # that validation chose
    rates: Sequence[float]  # all that were tried
    steps: int
    guess: float  # the score of the best trivial predictor on the same examples
    solved: float = math.inf  # the score from which a seed has solved the task; inf: there is none
    longer: Number | None = None  # the same rate with SAME_STEPS times the steps
    best_elsewhere: float = -math.inf  # the best mean score at the other rates
    solved_at: int | None = None  # the step at which every seed had solved the task

    @property
    def is_solved(self) -> bool:
        """Whether every seed solved the task."""
        return bool(self.score.by_seed) and min(self.score.by_seed.values()) >= self.solved


class State(NamedTuple):
    """Whether a network trained, and why not."""

    word: str
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.word} ({self.reason})" if self.reason else self.word


def state(training: Training) -> State:
    """Returns `TRAINED`, or `NOT_TRAINED` with the first reason."""
    if any(math.isnan(value) for value in training.score.by_seed.values()):
        return State(NOT_TRAINED, "a seed diverged")
    rates = sorted(set(training.rates))
    if len(rates) < LEAST_RATES:
        tried = "one learning rate" if len(rates) == 1 else f"{len(rates)} learning rates"
        return State(NOT_TRAINED, f"{tried} tried, {LEAST_RATES} are needed")
    if training.rate in (rates[0], rates[-1]):
        edge = "lowest" if training.rate == rates[0] else "highest"
        return State(NOT_TRAINED, f"its best rate {training.rate:g} is the {edge} that was tried")
    if training.is_solved:
        return State(TRAINED)
    if training.longer is None:
        return State(NOT_TRAINED, "cannot tell whether it ended: no run of twice the steps")
    gain = difference_on_shared_seeds(training.longer, training.score)
    if math.isinf(gain.half):
        return State(NOT_TRAINED, "cannot tell whether it ended: the error is unknown")
    if gain.verdict() == ABOVE:
        return State(
            NOT_TRAINED,
            f"{SAME_STEPS} x {training.steps:,} steps score {training.longer.mean:.4g}, "
            f"not {training.score.mean:.4g}",
        )
    return State(TRAINED)


def does_not_learn(training: Training, steps_of_winner: int | None) -> State:
    """Returns `DOES_NOT_LEARN` if a network stays at a guess after enough tries, else why not.

    Args:
        training: of the network.
        steps_of_winner: the steps with which the network of comparison solved the task; None if it
            did not.
    """
    is_at_guess = _at_guess(training.score, training.guess)
    is_dead = is_at_guess and training.best_elsewhere <= training.guess
    rates = sorted(set(training.rates))
    is_inside = training.rate not in (rates[0], rates[-1])
    if not is_at_guess:
        return State(NOT_TRAINED, "it is above a guess")
    if len(rates) < LEAST_RATES or not (is_inside or is_dead):
        return State(NOT_TRAINED, f"fewer than {LEAST_RATES} rates, or the best one at an edge")
    if steps_of_winner is None:
        return State(NOT_TRAINED, "the other network did not solve the task")
    if training.steps < TIMES_STEPS * steps_of_winner:
        needed = TIMES_STEPS * steps_of_winner
        return State(NOT_TRAINED, f"{training.steps:,} steps of {needed:,} that are needed")
    if training.score.n < LEAST_SEEDS:
        return State(NOT_TRAINED, f"{training.score.n} seeds of {LEAST_SEEDS} that are needed")
    return State(DOES_NOT_LEARN)


def compare(left: Training, right: Training, margin: float = 0.0) -> State:
    """Says how `left` compares with `right`, a network in which a part was not changed.

    Args:
        left: the network in which a part was removed, frozen or replaced.
        right: the network of comparison.
        margin: a loss that counts as none.

    Returns:
        A `State` of the words at the top of this module. `WORSE`, `NOT_TRAINED` and
        `DOES_NOT_LEARN` speak of `left`, unless the reason says that `right` lost.
    """
    if min(left.score.mean, right.score.mean) > CEILING:
        return State(AT_CEILING, "not needed to solve this task at this size")
    gap = difference(left.score, right.score)
    if gap.verdict(-margin) == ABOVE:
        return State(AS_GOOD)
    if gap.verdict(-margin) != BELOW:
        return State(CANNOT_TELL)
    dead = does_not_learn(left, right.solved_at)
    if dead.word == DOES_NOT_LEARN:
        return dead
    trained = state(left)
    return State(WORSE) if trained.word == TRAINED else trained


def modes(by_seed: Mapping[int, float], solved: float, guess: float) -> str:
    """Returns "3 of 5 seeds solve it" where seeds stand in two modes, else "".

    Two modes are seeds that solve the task and seeds that end in the lower half of the way from a
    guess to the solution. Their mean describes none of them.
    """
    solvers = [seed for seed, score in by_seed.items() if score >= solved]
    low = [seed for seed, score in by_seed.items() if score < (solved + guess) / 2]
    if not solvers or not low:
        return ""
    return f"{len(solvers)} of {len(by_seed)} seeds solve it"


def _at_guess(score: Number, guess: float) -> bool:
    """Whether a score is not above a guess."""
    return difference(score, Number(guess)).verdict() != ABOVE
