"""Rule of the litmus test: decides from trained models whether a task needs attention.

A difference counts if its 95 % interval excludes zero (jaxformer/stats/differences.py).
`jaxformer litmus --help` describes the rule in full.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from jaxformer.core.errors import UserError
from jaxformer.stats.differences import ABOVE, Number, difference
from jaxformer.stats.members import record_number
from jaxformer.studies.litmus import sentences

CANNOT_TELL, NOT_NEEDED, HELPS, NEEDED = "cannot be told", "not needed", "helps", "needed"
# {outcome: verdict}. An outcome is a key of `sentences.LITMUS`, which has a sentence for each.
VERDICTS = {
    "no interval": CANNOT_TELL,
    "at chance": CANNOT_TELL,
    "wide errors": CANNOT_TELL,
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


class Judgement(NamedTuple):
    """A verdict, and the sentence that states it with its numbers."""

    verdict: str
    sentence: str


def read(result: Mapping[str, Any], workdir: Path | None) -> Trained:
    """Returns the accuracy of a finished training with its errors."""
    members = result["members"]
    chosen = [member for member in members if member["chosen"]]
    accuracy = record_number(result["metrics"]["accuracy"], members, "accuracy")
    rates = tuple(dict.fromkeys(member["learning_rate"] for member in chosen))
    tried = len({member["learning_rate"] for member in members})
    return Trained(accuracy, len(chosen), rates, tried, str(workdir or ""))


def strongest(baselines: Mapping[str, float]) -> tuple[str, float]:
    """Returns the name and the accuracy of the best trivial predictor."""
    scores = {name: value for name, value in baselines.items() if not name.endswith("_loss")}
    if not scores:
        raise UserError(
            "the task has no trivial predictor to compare with: its `baselines` must return an "
            "accuracy, such as {'most_frequent': 0.1}."
        )
    return max(scores.items(), key=lambda item: item[1])


def judge(name: str, trained: Mapping[str, Trained], trivial: str, value: float) -> Judgement:
    """Judges a task.

    Args:
      name: the name of the task.
      trained: the variants, at least standard and mixit.
      trivial: the name of the best trivial predictor.
      value: the accuracy of this predictor.
    """
    accuracies = {variant: result.accuracy for variant, result in trained.items()}
    outcome = judge_accuracies(accuracies, Number(value))
    sentence = sentences.litmus(
        name,
        outcome,
        accuracies,
        (trivial, value),
        seeds=trained["standard"].seeds,
        tuned=any(result.tried > 1 for result in trained.values()),
    )
    return Judgement(VERDICTS[outcome], sentence)


def judge_accuracies(accuracies: Mapping[str, Number], chance: Number) -> str:
    """Returns the outcome, a key of `sentences.LITMUS`."""
    standard, mixit = accuracies["standard"], accuracies["mixit"]
    if math.isinf(difference(standard, chance).half):
        return "no interval"
    if not is_above(standard, chance):
        return "at chance"
    # An interval wider than this could hide that a variant has lost half of the lead over chance.
    half_lead = (standard.mean - chance.mean) / 2
    mixit_beats_chance = is_above(mixit, chance)
    if not is_above(standard, mixit):
        if difference(standard, mixit).half > half_lead:
            return "wide errors"
        if mixit_beats_chance:
            return "not needed"
    if mixit_beats_chance:
        return "helps"
    if (frozen := accuracies.get("frozen_qk")) is None:
        return "needed"
    if not is_above(standard, frozen):
        is_wide = difference(standard, frozen).half > half_lead
        return "needed" if is_wide else "needed, random is enough"
    return "needed, random helps" if is_above(frozen, chance) else "needed, must be learned"


def is_above(left: Number, right: Number) -> bool:
    """Returns whether the 95 % interval of left - right lies above zero."""
    return difference(left, right).verdict() == ABOVE
