"""Numbers with their errors from the members of a run: one score, with its error, for each seed."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jaxformer.stats.differences import Number, mean_and_sem

SHARE_PREFIXES = ("accuracy", "exact_match", "in_context", "p_")  # metrics that are shares


def record_number(
    value: Mapping, members: Sequence[Mapping], metric: str, trials: int = 1
) -> Number:
    """Returns a metric of a record with its errors, which its chosen members give.

    Args:
      value: {"mean", "sem", "n"} of the record.
      members: the record's members; those that were not chosen do not count.
      metric: the name, which tells shares from losses.
      trials: how many outcomes, each 0 or 1, the metric of one seed averages.
    """
    chosen = [m for m in members if m.get("chosen", True) and isinstance(m.get("metrics"), Mapping)]
    scores: dict[int, Any] = {m.get("seed", 0): m["metrics"].get(metric) for m in chosen}
    scores = {s: v for s, v in scores.items() if isinstance(v, Mapping) and _has_mean(v)}
    by_seed = {seed: score["mean"] for seed, score in scores.items()}
    sem = math.nan if value["sem"] is None else float(value["sem"])
    if abs(sem) < 1e-12 * abs(value["mean"]):
        sem = 0.0  # the seeds are equal, and their standard error is a rounding error
    if diverged(members):
        sem, by_seed = math.nan, {}  # the remaining seeds are no fair sample
    test, is_share = test_error(scores.values()), metric.startswith(SHARE_PREFIXES)
    number = Number(value["mean"], sem, value["n"] or 1, test, is_share, by_seed)
    if test or not is_zero_or_one(number):
        return number
    # Outcomes count singly if all are equal. Otherwise each seed counts as one.
    return number._replace(trials=number.n * (trials if number.mean in (0, 1) else 1))


def is_zero_or_one(number: Number) -> bool:
    """Returns whether each seed's value is 0 or 1.

    Values between 0 and 1 reach the variance mean (1 - mean) only if each is 0 or 1.
    """
    mean, n = number.mean, number.n
    if n < 2 or not 0 <= mean <= 1:
        return False
    return math.isclose(number.sem**2 * (n - 1), mean * (1 - mean), rel_tol=1e-6, abs_tol=1e-12)


def number_over_seeds(scores: Mapping[int, Any], metric: str) -> Number:
    """Returns the mean over seeds. The score of a seed is a number or {"mean", "sem", "n"}."""
    as_maps = [score for score in scores.values() if isinstance(score, Mapping)]
    values = {s: v["mean"] if isinstance(v, Mapping) else v for s, v in scores.items()}
    by_seed = {s: math.nan if v is None else float(v) for s, v in values.items()}
    mean, sem = mean_and_sem([*by_seed.values()])
    is_share = metric.startswith(SHARE_PREFIXES)
    return Number(mean, sem, len(by_seed), test_error(as_maps), is_share, by_seed)


def share_diverged(members: Sequence[Mapping]) -> Number:
    """Returns the share of seeds that diverged at the chosen rate."""
    chosen = [m for m in members if m.get("chosen", True)]
    return share_of_seeds([m.get("diverged_at") is not None for m in chosen])


def share_of_seeds(outcomes: Sequence[bool]) -> Number:
    """Returns the share of seeds with an outcome, such as the seeds that solve a task."""
    n, share = len(outcomes), sum(outcomes) / len(outcomes)
    sem = math.sqrt(share * (1 - share) / (n - 1)) if n > 1 else math.nan
    return Number(share, sem, n, is_share=True, trials=n)


def diverged(members: Sequence[Mapping]) -> list[int]:
    """Returns the seeds of the chosen members that diverged."""
    chosen = [m for m in members if m.get("chosen", True)]
    return [m.get("seed", 0) for m in chosen if m.get("diverged_at") is not None]


def test_error(scores: Iterable[Mapping]) -> float:
    """Returns the standard error of the test set, the root mean square over the seeds.

    Answers that are all right (or all wrong) have no spread, but further answers may differ. Their
    error is 1/n.
    """
    errors = [
        max(score["sem"], 1 / score["n"] if score["sem"] == 0 else 0.0)
        for score in scores
        if score.get("sem") is not None and score.get("n")
    ]
    return math.sqrt(sum(e**2 for e in errors) / len(errors)) if errors else 0.0


def _has_mean(score: Mapping) -> bool:
    return isinstance(score.get("mean"), float | int)
