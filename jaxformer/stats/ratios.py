r"""Ratios of two means over the same examples, with intervals that stay true where both are small.

The usual interval of a ratio, its error divided by the denominator (the delta method), is far too
narrow if the denominator itself may be 0. Fieller's interval is the set of all ratios r for which
the mean of  numerator - r denominator  is not different from 0:

    (a - r b)^2 <= t^2 (s_aa - 2 r s_ab + r^2 s_bb)

a and b are the means, s the variances and the covariance of these means, and t is a quantile of
Student's t. The set is an interval if b is different from 0; otherwise it is unbounded.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxformer.core.errors import UserError
from jaxformer.core.text_format import with_error
from jaxformer.stats.differences import LEVEL, quantile

# With fewer examples (or clusters of them) than this the distribution of a ratio is unknown: it is
# printed with the range of its examples.
ENOUGH = 20


class Ratio(NamedTuple):
    """A ratio of two means, with its interval, or with the range of its examples."""

    value: float
    low: float  # of the interval; -inf: unbounded; nan below ENOUGH examples
    high: float
    least: float  # of the examples (or clusters), each over the mean denominator
    most: float
    n: int  # independent examples or clusters

    @property
    def is_bounded(self) -> bool:
        return math.isfinite(self.low) and math.isfinite(self.high)

    def __str__(self) -> str:
        if math.isinf(self.low) or math.isinf(self.high):
            return f"{rounded(self.value)} (unbounded)"
        if math.isnan(self.low) and self.n < 2:
            return rounded(self.value)
        if math.isnan(self.low):
            return f"{rounded(self.value)} (single: {self.least:.2f} to {self.most:.2f})"
        return f"{rounded(self.value)} ({rounded(self.low)} to {rounded(self.high)})"


class Spread(NamedTuple):
    """A mean over examples with the half width of its interval; nan for one example."""

    mean: float
    half_width: float

    @property
    def is_different_from_0(self) -> bool:
        """Whether the interval excludes 0; False for one example, which has none."""
        return abs(self.mean) > self.half_width

    def __str__(self) -> str:
        return with_error(self.mean, self.half_width if self.half_width > 0 else None)


def rounded(value: float) -> str:
    """A number with three decimals, and 0 without a sign."""
    return f"{round(value, 3) + 0.0:.3f}"


def by_cluster(
    values_B: Any, clusters: Sequence[Any] | np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """The sum of values in each cluster, (.., C), and the sizes of the clusters, (C,).

    Args:
        values_B: numbers of examples, (.., B).
        clusters: the cluster of each example, such as the template of a prompt; None: each example
            counts by itself.
    """
    values_B = np.asarray(values_B, float)
    n_examples = values_B.shape[-1]
    if clusters is None:
        return values_B, np.ones(n_examples)
    if len(clusters) != n_examples:
        raise UserError(
            f"expected a cluster for each of {n_examples} prompts, got {len(clusters)}."
        )
    names = list(dict.fromkeys(clusters))
    is_in_CxB = np.array([[cluster == name for cluster in clusters] for name in names], float)
    return values_B @ is_in_CxB.T, is_in_CxB.sum(1)


def spread(
    values_B: Any, clusters: Sequence[Any] | np.ndarray | None = None, level: float = LEVEL
) -> Spread:
    """The mean of values over examples, with its interval over examples or clusters."""
    sum_C, size_C = by_cluster(values_B, clusters)
    n = len(size_C)
    mean = float(sum_C.sum() / size_C.sum())
    if n < 2:
        return Spread(mean, math.nan)
    rest_C = sum_C - mean * size_C
    error = math.sqrt(n / (n - 1) * float((rest_C**2).sum())) / float(size_C.sum())
    return Spread(mean, quantile(n - 1, level) * error)


def ratio(
    numerator_B: Any,
    denominator_B: Any,
    clusters: Sequence[Any] | np.ndarray | None = None,
    *,
    level: float = LEVEL,
    enough: int = ENOUGH,
) -> Ratio:
    """The ratio of two means over the same examples, with Fieller's interval.

    Args:
        numerator_B, denominator_B: the numbers of each example.
        clusters: as in `by_cluster`. Examples of one cluster resemble each other, so the clusters
            count as independent and the examples do not.
        level: of the interval.
        enough: with fewer examples or clusters there is no interval.

    Raises:
        UserError: the mean of the denominators is 0.
    """
    (a_C, sizes_C), (b_C, _) = (by_cluster(x, clusters) for x in (numerator_B, denominator_B))
    n, a, b = len(a_C), float(a_C.mean()), float(b_C.mean())
    if b == 0:
        raise UserError("the mean denominator of a ratio is 0.")
    per_example = float(b_C.sum() / sizes_C.sum())
    single_C = a_C / sizes_C / per_example
    least, most = float(single_C.min()), float(single_C.max())
    low = high = math.nan
    if n >= enough:
        (s_aa, s_ab), (_, s_bb) = np.cov(a_C, b_C) / n
        low, high = _fieller(a, b, float(s_aa), float(s_ab), float(s_bb), quantile(n - 1, level))
    return Ratio(a / b, low, high, least, most, n)


def _fieller(
    a: float, b: float, s_aa: float, s_ab: float, s_bb: float, t: float
) -> tuple[float, float]:
    """The ends of Fieller's interval, infinite where it is unbounded."""
    # p r^2 - 2 q r + c <= 0
    p = b * b - t * t * s_bb
    q = a * b - t * t * s_ab
    c = a * a - t * t * s_aa
    if p <= 0:
        return -math.inf, math.inf
    root = math.sqrt(max(q * q - p * c, 0.0))
    return (q - root) / p, (q + root) / p
