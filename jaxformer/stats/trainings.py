"""The tries of a run, as `jaxformer.stats.controls` reads them, from its result.json.

A record of one run says at which rates it was trained, which of them validation chose, and for how
many steps. It does not say whether it ended: that takes a run of twice the steps.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from jaxformer.stats import controls
from jaxformer.stats.controls import Training
from jaxformer.stats.differences import Number, mean_and_sem
from jaxformer.stats.members import record_number

# Losses of predictors that read the preceding tokens: better than a guess.
READERS = ("bigram", "trigram", "bag_of")


def training_of(
    result: Mapping[str, Any],
    metric: str = "accuracy",
    *,
    guess: float | None = None,
    longer: Mapping[str, Any] | None = None,
) -> Training | None:
    """The tries of a run; None if it trained no network or does not have the metric.

    Args:
        result: the content of result.json, or of a record
        metric: an accuracy, or a loss, which becomes negative so that more is better
        guess: the metric of a trivial predictor; None: the best one of the result
        longer: the result of the same run with twice the steps
    """
    members, recorded = result.get("members") or [], result.get("config") or {}
    chosen = [member for member in members if member.get("chosen", True)]
    rates = sorted({m["learning_rate"] for m in members if m.get("learning_rate") is not None})
    if not chosen or not rates or metric not in result["metrics"]:
        return None
    settings = recorded.get("train", {})
    planned = settings.get("steps", 0)
    done = result.get("steps") or planned
    reached = [member.get("reached_at") for member in chosen]
    has_reached = all(step is not None for step in reached)
    score = score_of(result, metric)
    is_solved = bool(score.by_seed) and min(score.by_seed.values()) >= controls.SOLVED
    # The run itself says when its seeds reached the target; else all its steps were needed.
    solved_at = done if score.is_share and is_solved else None
    if solved_at is not None and has_reached:
        solved_at = max(reached)
    return Training(
        score,
        chosen[0].get("learning_rate", rates[0]),
        rates,
        done,
        guess_of(result, metric) if guess is None else guess,
        solved=controls.SOLVED if score.is_share else math.inf,
        longer=None if longer is None else score_of(longer, metric),
        best_elsewhere=best_elsewhere(members, metric),
        solved_at=solved_at,
        is_at_target=has_reached and done < planned,
    )


def score_of(result: Mapping[str, Any], metric: str) -> Number:
    """A metric over the chosen members; a loss becomes negative."""
    number = record_number(result["metrics"][metric], result["members"], metric)
    return _signed(number) if is_loss(metric) else number


def is_loss(metric: str) -> bool:
    """Whether less of a metric is better."""
    return metric.split("/")[0].startswith("loss")


def guess_of(result: Mapping[str, Any], metric: str) -> float:
    """The score of the best predictor that reads nothing; infinitely low if there is none."""
    scores = [
        -value if is_loss(metric) else value
        for name, value in (result.get("baselines") or {}).items()
        if name.endswith("_loss") == is_loss(metric)
        and not name.startswith(READERS)
        and value is not None
    ]
    return max(scores, default=-math.inf)


def best_elsewhere(members: Sequence[Mapping[str, Any]], metric: str) -> float:
    """The best score at the rates that were not chosen, less two standard errors."""
    by_rate: dict[float, list[float]] = {}
    for member in members:
        mean = (member.get("metrics") or {}).get(metric, {}).get("mean")
        if mean is not None and not member.get("chosen", True):
            by_rate.setdefault(member["learning_rate"], []).append(mean)
    best = -math.inf
    for values in by_rate.values():
        mean, sem = mean_and_sem([-value if is_loss(metric) else value for value in values])
        best = max(best, mean - 2 * (sem if math.isfinite(sem) else 0.0))
    return best


def _signed(number: Number) -> Number:
    by_seed = {seed: -value for seed, value in number.by_seed.items()}
    return number._replace(mean=-number.mean, by_seed=by_seed)
