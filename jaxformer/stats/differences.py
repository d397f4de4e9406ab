"""Decides whether two measured numbers differ: the one statistic of all commands.

A number of a record is a mean over seeds. Its error has two parts: the spread between the seeds,
and the error of the finite test set, which all seeds share. There are few seeds, so the interval
uses Student's t instead of two standard errors. Runs that share seeds share initial weights and
data, so they are compared seed by seed.

    x - y +- hypot(t se, z e)
    se    hypot(s_x / sqrt(n_x), s_y / sqrt(n_y))   (Welch), or s_(x-y) / sqrt(n) of paired seeds
    t     97.5 % quantile of Student's t with Welch and Satterthwaite's degrees of freedom
    e     errors of the two test sets, z = 1.96

The errors of two test sets are added as if the sets were independent. They are left out where two
losses are compared: both runs are scored on the same examples, and hard ones are hard for both. A
loss is compared with a constant or a baseline with the whole error of its test set.

A number that is 0 or 1 for every seed, such as "the noise was learned first", has a Clopper-Pearson
interval: five of five seeds say that the share is above .48, not that it is 1.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jaxformer.core.text_format import with_error

LEVEL = 0.95  # of the intervals
ABOVE, BELOW, UNDECIDED = "above", "below", "cannot tell"
SMALLEST_P = 1e-12  # below which p values are not distinguished


class Number(NamedTuple):
    """A mean over `n` seeds with its errors; `n` = 0 is an exact number."""

    mean: float
    sem: float = 0.0  # between the seeds; nan if unknown
    n: int = 0
    test: float = 0.0  # the standard error of the finite test set
    is_share: bool = False  # such as an accuracy
    by_seed: Mapping[int, float] = {}
    trials: int = 0  # number of outcomes, each 0 or 1, whose mean this is; 0: not such a mean

    def __str__(self) -> str:
        return with_error(self.mean, self.error if self.error > 0 else None)

    @property
    def error(self) -> float:
        """The standard error, including the test set's."""
        return math.hypot(self.sem, self.test)

    def scaled(self, factor: float) -> "Number":
        """Returns the number and its errors times `factor`."""
        if factor == 1:
            return self
        by_seed = {seed: factor * value for seed, value in self.by_seed.items()}
        errors = {"sem": factor * self.sem, "test": factor * self.test}
        return self._replace(mean=factor * self.mean, **errors, by_seed=by_seed)

    def of_seeds(self, seeds: Sequence[int]) -> "Number":
        """Returns the mean over some of the seeds."""
        if len(seeds) == len(self.by_seed):
            return self
        mean, sem = mean_and_sem([self.by_seed[seed] for seed in seeds])
        by_seed = {seed: self.by_seed[seed] for seed in seeds}
        return self._replace(mean=mean, sem=sem, n=len(seeds), by_seed=by_seed)

    def percent(self) -> str:
        """Returns a text such as "99.95 ± 0.12", with the digits that the error justifies."""
        error = 100 * self.error
        if not error > 0:
            return f"{100 * self.mean:.2f}"
        digits = min(max(1 - math.floor(math.log10(error)), 0), 2)
        return f"{100 * self.mean:.{digits}f} ± {error:.{digits}f}"


class Difference(NamedTuple):
    """A difference left - right with its 95 % interval from `low` to `high`."""

    gap: float
    low: float  # infinite where an error is unknown
    high: float
    sem: float  # standard error between the seeds; nan if unknown
    seeds: tuple[int, int]  # of left and right; 0 for an exact number
    pairs: int = 0  # seeds that were compared one by one; 0: two independent means
    test: float = 0.0  # standard error of the test sets
    share: float | None = None  # a side that is a share of outcomes, each 0 or 1

    @property
    def half(self) -> float:
        """The half width of the interval; the longer side of a Clopper-Pearson interval."""
        return max(self.gap - self.low, self.high - self.gap)

    def verdict(self, border: float = 0.0) -> str:
        """Returns on which side of the border the whole interval lies."""
        if self.low > border:
            return ABOVE
        return BELOW if self.high < border else UNDECIDED

    def __str__(self) -> str:
        if math.isinf(self.half):
            return f"{self.gap:+.4g}, error unknown"
        seeds = f", {self.pairs} paired seeds" if self.pairs else ""
        return f"{self.gap:+.4g}, 95 % interval +- {self.half:.2g}{seeds}"


def difference(left: Number, right: Number, level: float = LEVEL) -> Difference:
    """Returns left - right and its interval."""
    gap, seeds = left.mean - right.mean, (left.n, right.n)
    measured = left.n and right.n
    test = 0.0 if measured and not left.is_share else math.hypot(left.test, right.test)
    paired = minus(left, right)
    sides = (paired,) if paired.by_seed else (left, right)
    parts = [(side.sem, side.n) for side in sides if side.n and not side.trials]
    if any(math.isnan(sem) for sem, _ in parts):
        return Difference(gap, -math.inf, math.inf, math.nan, seeds, len(paired.by_seed), test)
    sem, half = math.hypot(*(sem for sem, _ in parts)), half_width(parts, test, level)
    if not paired.by_seed and (left.trials or right.trials):
        (left_low, left_high), (right_low, right_high) = (
            _binomial_distances(side, level) for side in (left, right)
        )
        low, high = (
            math.hypot(half, left_low, right_high),
            math.hypot(half, left_high, right_low),
        )
    else:
        low = high = half
    share = next((side.mean for side in (left, right) if side.trials), None)
    return Difference(gap, gap - low, gap + high, sem, seeds, len(paired.by_seed), test, share)


def p_value(left: Number, right: Number, border: float) -> float:
    """Returns the two-sided p value of left - right = border, at least SMALLEST_P.

    It is the smallest error rate at which the interval excludes the border, so it is below
    1 - LEVEL exactly if the 95 % interval does. It is nan if an error is unknown, and 0 for exact
    numbers.
    """
    whole = difference(left, right)
    if math.isinf(whole.half):
        return math.nan
    if whole.half == 0:
        return 0.0
    excluded, included = math.log(SMALLEST_P), 0.0
    for _ in range(40):
        middle = (excluded + included) / 2
        interval = difference(left, right, 1 - math.exp(middle))
        if interval.verdict(border) == UNDECIDED:
            excluded = middle
        else:
            included = middle
    return math.exp(included)


def difference_on_shared_seeds(left: Number, right: Number) -> Difference:
    """Returns the difference over the seeds that both have; over all seeds if they share none."""
    shared = [seed for seed in left.by_seed if seed in right.by_seed]
    if shared:
        left, right = left.of_seeds(shared), right.of_seeds(shared)
    return difference(left, right)


def minus(left: Number, right: Number) -> Number:
    """Returns left - right as a number: paired if both have the same seeds."""
    pairs = {s: left.by_seed[s] - right.by_seed[s] for s in left.by_seed if s in right.by_seed}
    mean, test = left.mean - right.mean, math.hypot(left.test, right.test) * left.is_share
    if len(pairs) < 2 or not len(pairs) == left.n == right.n:
        n = min(left.n, right.n)
        return Number(mean, math.hypot(left.sem, right.sem), n, test, left.is_share)
    spread = math.sqrt(sum((p - mean) ** 2 for p in pairs.values()) / (len(pairs) - 1))
    return Number(mean, spread / math.sqrt(len(pairs)), len(pairs), test, left.is_share, pairs)


def mean_of(numbers: Sequence[Number]) -> Number:
    """Returns the mean over cells that differ by a factor, such as the split of the classes."""
    n = len(numbers)
    mean, sem = mean_and_sem([number.mean for number in numbers])
    test = math.sqrt(sum(number.test**2 for number in numbers)) / n
    return Number(mean, sem, n, test, numbers[0].is_share)


def half_width(parts: Sequence[tuple[float, int]], test: float, level: float = LEVEL) -> float:
    """Returns the half width of the interval of a sum of independent means.

    Args:
      parts: the standard error and the number of seeds of each mean.
      test: the standard error of the test sets.
      level: of the interval.
    """
    variance = sum(sem**2 for sem, _ in parts)
    spread = sum(sem**4 / max(n - 1, 1) for sem, n in parts)
    freedom = variance**2 / spread if spread else math.inf  # Welch and Satterthwaite
    normal = quantile(math.inf, level)
    return math.hypot(quantile(freedom, level) * math.sqrt(variance), normal * test)


def quantile(freedom: float, level: float = LEVEL) -> float:
    """Returns the (1 + level)/2 quantile of Student's t with these degrees of freedom."""
    from scipy.special import ndtri, stdtrit  # scipy.stats takes seconds to import

    q = (1 + level) / 2
    return float(ndtri(q) if math.isinf(freedom) else stdtrit(freedom, q))


def clopper_pearson(mean: float, trials: int, level: float = LEVEL) -> tuple[float, float]:
    """Returns the interval of a share, of which `mean` was observed in so many trials."""
    from scipy.special import betaincinv

    hits, tail = round(mean * trials), (1 - level) / 2
    low = float(betaincinv(hits, trials - hits + 1, tail)) if hits else 0.0
    high = float(betaincinv(hits + 1, trials - hits, 1 - tail)) if hits < trials else 1.0
    return low, high


def _binomial_distances(number: Number, level: float) -> tuple[float, float]:
    """Returns the distances from a number to the ends of its Clopper-Pearson interval."""
    if not number.trials:
        return 0.0, 0.0
    low, high = clopper_pearson(number.mean, number.trials, level)
    return number.mean - low, high - number.mean


def mean_and_sem(values: Sequence[float]) -> tuple[float, float]:
    """Returns the mean and its standard error, which is nan for a single value."""
    n, mean = len(values), sum(values) / len(values)
    if n == 1:
        return mean, math.nan
    return mean, math.sqrt(sum((value - mean) ** 2 for value in values) / (n - 1) / n)
