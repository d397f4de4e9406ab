"""How far apart two measured numbers are, and how sure that is.

A number of a record is a mean over seeds. Its error has two parts: between the seeds, of which
there are few (so Student's t and not two standard errors), and of the finite test set, which all
seeds share. Runs that share seeds share their initial weights and their data, so they are compared
seed by seed.

    x - y +- q se,  q the 97.5 % quantile of t at the seeds' degrees of freedom
    se^2 = s_x^2/n_x + s_y^2/n_y  (Welch), or s_(x-y)^2/n of the pairs; plus the test sets' errors

The errors of two test sets are added as if they were two sets. Of a loss that is left out between
two runs, because both are scored on the same examples, and hard ones are hard for both.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jaxformer.core.text_format import with_error

LEVEL = 0.95  # of the intervals
# Where a claim is decided, both ends of the interval count: a rule is wrong by luck this often.
LUCK = (1 - LEVEL) / 2
SHARES = ("accuracy", "exact_match", "in_context", "p_")  # how the names of shares begin


class Number(NamedTuple):
    """A mean over `n` seeds with what is known of its errors; `n` = 0 is an exact number."""

    mean: float
    sem: float = 0.0  # between the seeds; nan if it is not known
    n: int = 0
    test: float = 0.0  # the standard error of the finite test set
    is_share: bool = False  # of right answers
    by_seed: Mapping[int, float] = {}

    def __str__(self) -> str:
        return with_error(self.mean, self.error if self.error > 0 else None)

    @property
    def error(self) -> float:
        """The standard error, with the test set's."""
        return math.hypot(self.sem, self.test)

    def scaled(self, by: float) -> "Number":
        """The number and its errors, times `by`."""
        if by == 1:
            return self
        by_seed = {seed: by * value for seed, value in self.by_seed.items()}
        errors = {"sem": by * self.sem, "test": by * self.test}
        return self._replace(mean=by * self.mean, **errors, by_seed=by_seed)

    def percent(self) -> str:
        """ "99.95 ± 0.12", with as many digits as the error has a meaning for."""
        error = 100 * self.error
        if not error > 0:
            return f"{100 * self.mean:.2f}"
        digits = min(max(1 - math.floor(math.log10(error)), 0), 2)
        return f"{100 * self.mean:.{digits}f} ± {error:.{digits}f}"


def minus(left: Number, right: Number) -> Number:
    """left - right: of the pairs where both have the same seeds, else with both errors."""
    pairs = {s: left.by_seed[s] - right.by_seed[s] for s in left.by_seed if s in right.by_seed}
    mean, test = left.mean - right.mean, math.hypot(left.test, right.test) * left.is_share
    if len(pairs) < 2 or not len(pairs) == left.n == right.n:
        n = min(left.n, right.n)
        return Number(mean, math.hypot(left.sem, right.sem), n, test, left.is_share)
    spread = math.sqrt(sum((p - mean) ** 2 for p in pairs.values()) / (len(pairs) - 1))
    return Number(mean, spread / math.sqrt(len(pairs)), len(pairs), test, left.is_share, pairs)


def mean_of(numbers: Sequence[Number]) -> Number:
    """The mean over cells that differ by a factor, such as the split of the classes."""
    n, mean = len(numbers), sum(number.mean for number in numbers) / len(numbers)
    spread = sum((number.mean - mean) ** 2 for number in numbers) / max(n - 1, 1)
    sem = math.sqrt(spread / n) if n > 1 else math.nan
    test = math.sqrt(sum(number.test**2 for number in numbers)) / n
    return Number(mean, sem, n, test, numbers[0].is_share)


def difference(left: Number, right: Number) -> tuple[float, float]:
    """left - right, and half the width of its 95 % interval; infinite where nothing is known."""
    gap = left.mean - right.mean
    measured = left.n and right.n
    test = 0.0 if measured and not left.is_share else math.hypot(left.test, right.test)
    paired = minus(left, right)
    sides = (paired,) if paired.by_seed else (left, right)
    parts = [(side.sem, side.n) for side in sides if side.n]
    if any(math.isnan(sem) for sem, _ in parts):
        return gap, math.inf
    return gap, half_width(parts, test)


def half_width(parts: list[tuple[float, int]], test: float) -> float:
    """Of the interval of a sum of means with these (standard error, seeds) and a test error."""
    between = sum(sem**2 for sem, _ in parts)
    spread = sum(sem**4 / max(n - 1, 1) for sem, n in parts)
    freedom = between**2 / spread if spread else math.inf  # Welch and Satterthwaite
    normal = quantile(math.inf)
    return math.hypot(quantile(freedom) * math.sqrt(between), normal * test)


def quantile(freedom: float) -> float:
    """The (1 + LEVEL)/2 quantile of Student's t."""
    from scipy.special import ndtri, stdtrit  # scipy.stats takes seconds to import

    q = (1 + LEVEL) / 2
    return float(ndtri(q) if math.isinf(freedom) else stdtrit(freedom, q))


def of_record(value: Mapping, members: Sequence[Mapping], metric: str) -> Number:
    """The number of a record's metric; its chosen members say more than the mean of them."""
    chosen = [m for m in members if m.get("chosen", True) and isinstance(m.get("metrics"), Mapping)]
    found: dict[int, Any] = {m.get("seed", 0): m["metrics"].get(metric) for m in chosen}
    scores = {seed: s for seed, s in found.items() if isinstance(s, Mapping) and _is_number(s)}
    by_seed = {seed: score["mean"] for seed, score in scores.items()}
    sem = math.nan if value["sem"] is None else float(value["sem"])
    if abs(sem) < 1e-12 * abs(value["mean"]):
        sem = 0.0  # a mean of equal numbers has a standard error of rounding
    if diverged(members):
        sem, by_seed = math.nan, {}  # those that are left are no sample of all
    test, is_share = test_error(list(scores.values())), metric.startswith(SHARES)
    return Number(value["mean"], sem, value["n"] or 1, test, is_share, by_seed)


def share_diverged(members: Sequence[Mapping]) -> Number:
    """Of the seeds of the chosen learning rate; exact for this run."""
    seeds = sum(m.get("chosen", True) for m in members)
    return Number(len(diverged(members)) / seeds)


def diverged(members: Sequence[Mapping]) -> list[int]:
    """The seeds of the chosen members whose training ended so."""
    chosen = [m for m in members if m.get("chosen", True)]
    return [m.get("seed", 0) for m in chosen if m.get("diverged_at") is not None]


def _is_number(score: Mapping) -> bool:
    return isinstance(score.get("mean"), float | int)


def test_error(scores: Sequence[Mapping]) -> float:
    """Of the test set that the seeds share: about that of one seed.

    All answers right (or wrong) have no spread, yet the next ones might differ: at least 1/n.
    """
    errors = [
        max(score["sem"], 1 / score["n"] if score["sem"] == 0 else 0.0)
        for score in scores
        if score.get("sem") is not None and score.get("n")
    ]
    return math.sqrt(sum(e**2 for e in errors) / len(errors)) if errors else 0.0
