"""Rule of the litmus test: decides from trained models whether a task needs attention.

A difference counts if its 95 % interval excludes zero (jaxformer/stats/differences.py), and a model
that loses counts if it was trained (jaxformer/stats/controls.py). `jaxformer litmus --help`
describes the rule in full.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxformer.core.errors import UserError
from jaxformer.stats import controls
from jaxformer.stats.controls import DOES_NOT_LEARN, State, Training
from jaxformer.stats.differences import ABOVE, Number, difference
from jaxformer.stats.members import record_number
from jaxformer.stats.trainings import best_elsewhere, training_of
from jaxformer.studies.litmus import sentences

CANNOT_TELL, NOT_NEEDED, HELPS, NEEDED = "cannot be told", "not needed", "helps", "needed"
# {outcome: verdict}. An outcome is a key of `sentences.LITMUS`, which has a sentence for each.
VERDICTS = {
    "no interval": CANNOT_TELL,
    "at chance": CANNOT_TELL,
    "wide errors": CANNOT_TELL,
    "not trained": CANNOT_TELL,
    "not needed": NOT_NEEDED,
    "helps": HELPS,
}
VERDICTS |= {outcome: NEEDED for outcome in sentences.LITMUS if outcome not in VERDICTS}


class Trained(NamedTuple):
    """The accuracy of a variant on the test set, at the learning rate that validation chose."""

    accuracy: Number
    seeds: int
    rates: tuple[float, ...]  # the chosen learning rates
    tried: int  # the number of learning rates
    workdir: str  # "" if the run was not saved
    steps: int = 0  # of the run that is compared
    control: str = ""  # how it compares with Standard, in the words of `jaxformer.stats.controls`


class Judgement(NamedTuple):
    """A verdict, and the sentence that states it with its numbers."""

    verdict: str
    sentence: str


class Runs(NamedTuple):
    """The runs of a variant: the first one, and those with more steps."""

    results: Mapping[int, Mapping[str, Any]]  # {times the steps of the first: result.json}
    workdir: Path | None = None
    # The members among which the rate was chosen, if the first run has that rate alone.
    tries: Sequence[Mapping[str, Any]] = ()
    missing: str = ""  # why a longer run is missing

    def training(self, guess: float) -> Training:
        """The tries of the variant at the steps at which it is compared."""
        times = self.times
        training = training_of(self.results[times], guess=guess, longer=self.results.get(2 * times))
        assert training is not None  # a litmus test trains with accuracies
        # A longer run has the chosen rate alone, so the rates are those of the first one.
        tries = self.tries or self.results[1]["members"]
        training = training._replace(
            rates=sorted({member["learning_rate"] for member in tries}),
            best_elsewhere=best_elsewhere(tries, "accuracy"),
        )
        is_at_limit = times == controls.LONGER[-1]
        limit = f"{times} x the steps still help" if is_at_limit else ""
        return training._replace(missing=self.missing or limit)

    @property
    def scores(self) -> dict[int, Number]:
        return {times: _accuracy(result) for times, result in self.results.items()}

    @property
    def times(self) -> int:
        return controls.compared_times(self.scores)


def _accuracy(result: Mapping[str, Any]) -> Number:
    return record_number(result["metrics"]["accuracy"], result["members"], "accuracy")


def read(runs: Runs, standard: Runs, guess: float) -> Trained:
    """The accuracy of a variant with its errors, and how it compares with Standard."""
    result = runs.results[runs.times]
    chosen = [member for member in result["members"] if member["chosen"]]
    rates = tuple(dict.fromkeys(member["learning_rate"] for member in chosen))
    training = runs.training(guess)
    control = "" if runs is standard else str(compared(runs, standard, guess))
    return Trained(
        training.score,
        len(chosen),
        rates,
        len(training.rates),
        str(runs.workdir or ""),
        training.steps,
        control,
    )


def next_run(runs: Runs, standard: Runs, guess: float) -> tuple[int, int] | None:
    """The longer run that a variant which loses needs: times the steps, and the least seeds."""
    left, right = runs.training(guess), standard.training(guess)
    is_lost = is_above(right.score, left.score)
    if not is_lost or left.missing or len(set(left.rates)) < controls.LEAST_RATES:
        return None
    can_be_dead = controls.at_or_below(left.score, guess) and right.solved_at is not None
    if left.edge and not can_be_dead:
        return None  # no number of steps would make it count
    times = controls.next_times(runs.scores, can_be_dead)
    if times is None:
        return None
    return times, controls.LEAST_SEEDS if can_be_dead and times > 2 else 1


def compared(runs: Runs, standard: Runs, guess: float) -> State:
    """The comparison of a variant with Standard."""
    return compared_trainings(runs.training(guess), standard.training(guess))


def compared_trainings(left: Training, right: Training) -> State:
    if left.is_at_target and right.is_at_target:
        return State(controls.AT_CEILING, "both reached the target")
    state = controls.compare(left, right)
    if state.word == controls.WORSE and controls.at_or_below(left.score, left.guess):
        # That nothing is learned is a stronger claim than that less is learned.
        return controls.does_not_learn(left, right.solved_at)
    return state


def strongest(baselines: Mapping[str, float]) -> tuple[str, float]:
    """Returns the name and the accuracy of the best trivial predictor."""
    scores = {name: value for name, value in baselines.items() if not name.endswith("_loss")}
    if not scores:
        raise UserError(
            "the task has no trivial predictor to compare with: its `baselines` must return an "
            "accuracy, such as {'most_frequent': 0.1}."
        )
    return max(scores.items(), key=lambda item: item[1])


def judge(name: str, trainings: Mapping[str, Training], trivial: str) -> Judgement:
    """Judges a task.

    Args:
      name: the name of the task.
      trainings: the variants, at least standard and mixit.
      trivial: the name of the best trivial predictor.
    """
    standard = trainings["standard"]
    outcome = judge_trainings(trainings)
    sentence = sentences.litmus(
        name,
        outcome,
        {variant: training.score for variant, training in trainings.items()},
        (trivial, standard.guess),
        seeds=standard.score.n,
        control=str(compared_trainings(trainings["mixit"], standard)),
    )
    return Judgement(VERDICTS[outcome], sentence)


def judge_trainings(trainings: Mapping[str, Training]) -> str:
    """Returns the outcome, a key of `sentences.LITMUS`."""
    standard, mixit = trainings["standard"], trainings["mixit"]
    chance = Number(standard.guess)
    if math.isinf(difference(standard.score, chance).half):
        return "no interval"
    if not is_above(standard.score, chance):
        return "at chance"
    # An interval wider than this could hide that a variant has lost half of the lead over chance.
    half_lead = (standard.score.mean - chance.mean) / 2
    mixit_beats_chance = is_above(mixit.score, chance)
    state = compared_trainings(mixit, standard)
    if not is_above(standard.score, mixit.score):
        if difference(standard.score, mixit.score).half > half_lead:
            return "wide errors"
        if mixit_beats_chance:
            return "not needed"
    if state.word == controls.AT_CEILING:
        return "not needed"
    # From here on MixiT has lost, which says something only if it was trained.
    if state.word not in (controls.WORSE, DOES_NOT_LEARN):
        return "not trained"
    if mixit_beats_chance:
        return "helps"
    if (frozen := trainings.get("frozen_qk")) is None:
        return "needed"
    if not is_above(standard.score, frozen.score):
        is_wide = difference(standard.score, frozen.score).half > half_lead
        return "needed" if is_wide else "needed, random is enough"
    of_frozen = compared_trainings(frozen, standard).word
    if is_above(frozen.score, chance):
        return "needed, random helps" if of_frozen == controls.WORSE else "needed"
    return "needed, must be learned" if of_frozen == DOES_NOT_LEARN else "needed"


def is_above(left: Number, right: Number) -> bool:
    """Returns whether the 95 % interval of left - right lies above zero."""
    return difference(left, right).verdict() == ABOVE
