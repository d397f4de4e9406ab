"""The rule of the litmus test: what trained models say of a task's need for attention.

Differences count beyond two combined standard errors, over seeds and of the test set. The rule is
written out in experiments/litmus.py.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from experiments.cli.describe import label
from experiments.ledger.statistics import Number
from jaxformer.core.errors import UserError

ERRORS = 2.0  # combined standard errors
CANNOT_TELL, NOT_NEEDED, HELPS, NEEDED = "cannot be told", "not needed", "helps", "needed"
PHRASES = {
    CANNOT_TELL: "cannot be judged",
    NOT_NEEDED: "is not needed",
    HELPS: "helps",
    NEEDED: "is needed",
}


class Trained(NamedTuple):
    """A variant's accuracy on the test set at the rate that validation chose."""

    accuracy: Number  # the error is that over seeds and that of the test set, combined
    seeds: int
    rates: tuple[float, ...]  # chosen
    tried: int
    workdir: str


class Findings(NamedTuple):
    """What came out: a verdict and the sentence that says it with its numbers."""

    verdict: str
    sentence: str


def read(result: Mapping[str, Any], workdir: Path) -> Trained:
    """The accuracy of a finished training with its combined error."""
    chosen = [member for member in result["members"] if member["chosen"]]
    mean = result["metrics"]["accuracy"]["mean"]
    seeds = result["metrics"]["accuracy"]["sem"] or 0.0
    # All seeds are scored on one test set: its error does not shrink with more of them.
    tests = [member["metrics"]["accuracy"]["sem"] or 0.0 for member in chosen]
    error = math.hypot(seeds, sum(tests) / len(tests))
    rates = tuple(dict.fromkeys(member["learning_rate"] for member in chosen))
    tried = len({member["learning_rate"] for member in result["members"]})
    return Trained(Number(mean, error), len(chosen), rates, tried, str(workdir))


def strongest(baselines: Mapping[str, float]) -> tuple[str, float]:
    """The best of the trivial predictors that are scored by accuracy."""
    scores = {name: value for name, value in baselines.items() if not name.endswith("_loss")}
    if not scores:
        raise UserError("the task names no trivial predictors: add some to its `baselines`.")
    return max(scores.items(), key=lambda item: item[1])


def judge(name: str, trained: Mapping[str, Trained], trivial: str, value: float) -> Findings:
    """The verdict on the task of this name, with `trivial` the best trivial predictor."""
    chance, guess = Number(value, 0.0), trivial.replace("_", " ")
    standard, mixit = trained["standard"].accuracy, trained["mixit"].accuracy
    hidden = ERRORS * math.hypot(standard.sem, mixit.sem) > (standard.mean - value) / 2
    if not is_above(standard, chance):
        verdict = CANNOT_TELL
        words = (
            f"{name} cannot be told at this scale: Standard does not beat the trivial predictor "
            f"({guess})"
        )
    elif not is_above(standard, mixit) and hidden:
        verdict = CANNOT_TELL
        words = f"{name} cannot be told: the error bars hide a difference; take more seeds"
    elif is_above(mixit, chance) and not is_above(standard, mixit):
        verdict = NOT_NEEDED
        words = f"{name} does not need attention that looks at the content"
    elif is_above(mixit, chance):
        verdict = HELPS
        way = 100 * (mixit.mean - value) / (standard.mean - value)
        words = (
            f"attention that looks at the content helps {name}: MixiT gets {way:.0f} % of the way "
            f"from the trivial predictor ({guess}) to Standard"
        )
    else:
        verdict = NEEDED
        words = f"{name} needs attention that looks at the content"
        if "frozen_qk" in trained:
            words += _frozen(trained["frozen_qk"].accuracy, standard, chance)
    said = ", ".join(f"{label(v)} {percent(t.accuracy)}" for v, t in trained.items())
    untuned = "" if max(t.tried for t in trained.values()) > 1 else "; one learning rate each"
    numbers = f"{said}; {guess} {100 * value:.1f} %; {trained['standard'].seeds} seeds{untuned}"
    return Findings(verdict, f"{words} ({numbers}).")


def _frozen(frozen: Number, standard: Number, chance: Number) -> str:
    if not is_above(standard, frozen):
        return ", and random queries and keys are enough"
    if is_above(frozen, chance):
        return ", and random queries and keys go part of the way"
    return ", and queries and keys must be learned"


def is_above(one: Number, other: Number) -> bool:
    """Beyond two combined standard errors."""
    return one.mean - other.mean > ERRORS * math.hypot(one.sem, other.sem)


def percent(value: Number) -> str:
    return f"{100 * value.mean:.1f} ± {100 * value.sem:.1f} %"
