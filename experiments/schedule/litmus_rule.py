"""Rule of the litmus test: decides from trained models whether a task needs attention.

A difference counts if its 95 % interval excludes zero (experiments/ledger/statistics.py). The rule
is written out in experiments/litmus.py.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from experiments.cli.describe import label
from experiments.ledger.record_numbers import record_number
from experiments.ledger.statistics import ABOVE, Number, difference
from jaxformer.core.errors import UserError

CANNOT_TELL, NOT_NEEDED, HELPS, NEEDED = "cannot be told", "not needed", "helps", "needed"
PHRASES = {
    CANNOT_TELL: "cannot be judged",
    NOT_NEEDED: "is not needed",
    HELPS: "helps",
    NEEDED: "is needed",
}


class Trained(NamedTuple):
    """A variant's accuracy on the test set at the learning rate that validation chose."""

    accuracy: Number
    seeds: int
    rates: tuple[float, ...]  # chosen
    tried: int  # learning rates
    workdir: str


class Judgement(NamedTuple):
    """A verdict, and the sentence that states it with its numbers."""

    verdict: str
    sentence: str


def read(result: Mapping[str, Any], workdir: Path) -> Trained:
    """Returns the accuracy of a finished training with its errors."""
    members = result["members"]
    chosen = [member for member in members if member["chosen"]]
    accuracy = record_number(result["metrics"]["accuracy"], members, "accuracy")
    rates = tuple(dict.fromkeys(member["learning_rate"] for member in chosen))
    tried = len({member["learning_rate"] for member in members})
    return Trained(accuracy, len(chosen), rates, tried, str(workdir))


def strongest(baselines: Mapping[str, float]) -> tuple[str, float]:
    """Returns the name and the accuracy of the best trivial predictor."""
    scores = {name: value for name, value in baselines.items() if not name.endswith("_loss")}
    if not scores:
        raise UserError("the task names no trivial predictors: add some to its `baselines`.")
    return max(scores.items(), key=lambda item: item[1])


def judge(name: str, trained: Mapping[str, Trained], trivial: str, value: float) -> Judgement:
    """Judges a task.

    Args:
      name: of the task.
      trained: the variants, at least standard and mixit.
      trivial: the name of the best trivial predictor.
      value: its accuracy.
    """
    chance, guess = Number(value), trivial.replace("_", " ")
    standard, mixit = trained["standard"].accuracy, trained["mixit"].accuracy
    half_lead = (standard.mean - value) / 2
    mixit_is_below, mixit_beats_chance = is_above(standard, mixit), is_above(mixit, chance)
    hides_mixit = difference(standard, mixit).half > half_lead
    if not is_above(standard, chance):
        verdict = CANNOT_TELL
        sentence = (
            f"{name} cannot be told at this scale: Standard does not beat the trivial predictor "
            f"({guess})"
        )
    elif not mixit_is_below and hides_mixit:
        verdict = CANNOT_TELL
        sentence = f"{name} cannot be told: the error bars hide a difference; take more seeds"
    elif mixit_beats_chance and not mixit_is_below:
        verdict = NOT_NEEDED
        sentence = f"{name} does not need attention that looks at the content"
    elif mixit_beats_chance:
        verdict = HELPS
        way = 100 * (mixit.mean - value) / (standard.mean - value)
        sentence = (
            f"attention that looks at the content helps {name}: MixiT gets {way:.0f} % of the way "
            f"from the trivial predictor ({guess}) to Standard"
        )
    else:
        verdict = NEEDED
        sentence = f"{name} needs attention that looks at the content"
        if "frozen_qk" in trained:
            sentence += _frozen_clause(trained["frozen_qk"].accuracy, standard, chance)
    scores = ", ".join(f"{label(v)} {percent(t.accuracy)}" for v, t in trained.items())
    untuned = "" if max(t.tried for t in trained.values()) > 1 else "; one learning rate each"
    numbers = f"{scores}; {guess} {100 * value:.1f} %; {trained['standard'].seeds} seeds{untuned}"
    return Judgement(verdict, f"{sentence} ({numbers}).")


def _frozen_clause(frozen: Number, standard: Number, chance: Number) -> str:
    if not is_above(standard, frozen):
        return ", and random queries and keys are enough"
    if is_above(frozen, chance):
        return ", and random queries and keys go part of the way"
    return ", and queries and keys must be learned"


def is_above(left: Number, right: Number) -> bool:
    """Returns whether the 95 % interval of left - right lies above zero."""
    return difference(left, right).verdict() == ABOVE


def percent(value: Number) -> str:
    return f"{100 * value.mean:.1f} ± {100 * value.error:.1f} %"
