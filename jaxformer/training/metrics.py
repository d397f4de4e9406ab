"""Means of per-example scores with standard errors, computed in float64."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from jaxformer.core.text_format import with_error
from jaxformer.tasks.task import Scores


class Mean(NamedTuple):
    """A mean, its standard error (nan for a single value) and the number of values."""

    mean: float
    sem: float
    n: int

    def __repr__(self) -> str:
        return f"{with_error(self.mean, self.sem)} (n={self.n})"


def weighted_mean(value, weight) -> Mean:
    """Returns the mean sum(w v) / sum(w) of values v with weights w, and its standard error.

    The standard error of this ratio is sqrt(n / (n - 1) sum(w^2 (v - mean)^2)) / sum(w), where n
    counts the positive weights.
    """
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
    """Returns the mean of the weighted means of batches of `size` examples.

    Each batch counts the same, however many tokens it scores, so the result depends on `size`.

    Args:
        value: the mean score of each example, (B,).
        weight: the number of tokens that the example scores, (B,).
        size: examples in a batch.
    """
    value, weight = np.asarray(value, np.float64), np.asarray(weight, np.float64)
    starts = np.arange(0, len(value), size)
    total = np.add.reduceat(weight, starts)
    mean = np.add.reduceat(weight * value, starts) / np.where(total > 0, total, 1)
    return weighted_mean(mean, total > 0)


def over_seeds(values) -> Mean:
    """Returns mean and standard error over independent runs."""
    return weighted_mean(values, np.ones(len(values)))


def means_of_members(
    scores: Mapping[str, Scores], means_of_batches: Mapping[str, tuple[str, int]], mask_MxB=None
) -> list[dict[str, Mean]]:
    """Returns, for each of M members, the mean of each score over B examples.

    Args:
      scores: {name: values and weights of shape (M, B)}.
      means_of_batches: {metric: (score, examples per batch)} of metrics that average over batches.
      mask_MxB: the examples that count; None for all.
    """
    values = {name: np.asarray(score.value) for name, score in scores.items()}
    weights = {name: np.asarray(score.weight) for name, score in scores.items()}
    if mask_MxB is None:
        first_weight_MxB = next(iter(weights.values()))
        mask_MxB = np.ones_like(first_weight_MxB)
    mask_MxB = np.asarray(mask_MxB)

    def means_of_member(i: int) -> dict[str, Mean]:
        masked = {name: weight[i] * mask_MxB[i] for name, weight in weights.items()}
        means = {name: weighted_mean(values[name][i], masked[name]) for name in values}
        for name, (score, size) in means_of_batches.items():
            if score in values:
                means[name] = mean_of_batches(values[score][i], masked[score], size)
        return means

    return [means_of_member(i) for i in range(len(mask_MxB))]
