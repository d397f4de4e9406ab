"""Per-example scores in, means with standard errors out. Averaged once, in float64."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from jaxformer.tasks.task import Scores


class Mean(NamedTuple):
    """A mean, the standard error of it (nan for a single value) and the number of values."""

    mean: float
    sem: float
    n: int


def weighted_mean(value, weight) -> Mean:
    """sum(w v) / sum(w); the error is that of a ratio: sqrt(sum w^2 (v - mean)^2) / sum(w)."""
    value, weight = np.asarray(value, np.float64), np.asarray(weight, np.float64)
    n, total = int((weight > 0).sum()), weight.sum()
    if n == 0:
        return Mean(float("nan"), float("nan"), 0)
    mean = float((weight * value).sum() / total)
    if n == 1:
        return Mean(mean, float("nan"), 1)
    spread = np.sqrt((weight**2 * (value - mean) ** 2).sum() * n / (n - 1))
    return Mean(mean, float(spread / total), n)


def mean_of_batches(value, weight, size: int) -> Mean:
    """The mean over batches of `size` examples of each batch's weighted mean.

    It depends on the size: a batch with little to score counts as much as one with much.
    """
    value, weight = np.asarray(value, np.float64), np.asarray(weight, np.float64)
    cuts = np.arange(0, len(value), size)
    total = np.add.reduceat(weight, cuts)
    mean = np.add.reduceat(weight * value, cuts) / np.where(total > 0, total, 1)
    return weighted_mean(mean, total > 0)


def over_seeds(values) -> Mean:
    """Mean and standard error over independent runs."""
    return weighted_mean(values, np.ones(len(values)))


def means_of_members(
    scores: Mapping[str, Scores], of_batches: Mapping[str, tuple[str, int]], part=None
) -> list[dict[str, Mean]]:
    """Per member, the mean of each score over all examples, or over a part, (members, B).

    `of_batches`: name -> (score, size) of what is a mean over batches.
    """
    values, weights = (
        {name: np.asarray(getattr(s, field)) for name, s in scores.items()}
        for field in Scores._fields
    )
    part = np.ones_like(next(iter(weights.values()))) if part is None else np.asarray(part)
    return [
        {name: weighted_mean(values[name][i], weights[name][i] * part[i]) for name in values}
        | {
            name: mean_of_batches(values[score][i], weights[score][i] * part[i], size)
            for name, (score, size) in of_batches.items()
            if score in values
        }
        for i in range(len(part))
    ]
