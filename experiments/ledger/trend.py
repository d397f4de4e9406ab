"""A straight line through numbers at several sizes, seed by seed, against the log of the size.

    values at sizes 8, 16, 32        one line for each seed, by least squares
    slope                            the mean of the seeds' slopes, per doubling of the size
    prediction at another size       the mean of the seeds' lines there

Each seed ran at every size, so its slope is one draw of the slope. The interval of the mean slope
is therefore Student's t over the seeds, as for any other number of the ledger, and needs no
assumption about how the spread changes with the size. The errors of the finite test sets are added,
because all seeds share them.

The spread of the seeds says nothing about whether the trend is straight. So the interval of a
prediction covers three guesses: the line through all sizes, the line through the two sizes nearest
to it, and, beyond the last size, no change at all, since most effects level off in the end. Where
the trend bends, the guesses disagree and the interval is wide.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from experiments.ledger.statistics import Number, half_width, mean_and_sem, minus
from jaxformer.core.errors import UserError


class Estimate(NamedTuple):
    """A number with its 95 % interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:+.3g} ({self.low:+.3g} to {self.high:+.3g})"

    def within(self, low: float, high: float) -> "Estimate":
        """Cuts off what no number can reach, such as an accuracy above 1."""
        return Estimate(*(min(max(value, low), high) for value in self))


def estimate(numbers: Sequence[Number], weights: Sequence[float]) -> Estimate:
    """A weighted sum of numbers that have the same seeds, with its interval."""
    seeds = _shared_seeds(numbers)
    pairs = [*zip(numbers, weights, strict=True)]
    mean, sem = mean_and_sem([sum(w * n.by_seed[seed] for n, w in pairs) for seed in seeds])
    # The sizes have test sets of their own, so their errors are independent.
    test = math.sqrt(sum((w * n.test) ** 2 for n, w in pairs))
    half = half_width([(sem, len(seeds))], test)
    return Estimate(mean, mean - half, mean + half)


def slope(sizes: Sequence[float], numbers: Sequence[Number]) -> Estimate:
    """The change per doubling of the size."""
    return estimate(numbers, _slope_weights([math.log2(size) for size in sizes]))


def prediction(sizes: Sequence[float], numbers: Sequence[Number], at: float) -> Estimate:
    """The value of the line at a size; the interval allows for a trend that bends or levels off."""
    line = _on_the_line(sizes, numbers, at)
    # The two sizes that enclose `at`, or the last two (the first two) if it lies beyond.
    after = sum(size < at for size in sizes)
    near = min(max(after - 1, 0), len(sizes) - 2)
    guesses = [line, _on_the_line(sizes[near : near + 2], numbers[near : near + 2], at)]
    if not sizes[0] <= at <= sizes[-1]:
        end = numbers[-1] if at > sizes[-1] else numbers[0]
        guesses.append(estimate([end], [1.0]))
    return Estimate(line.mean, min(g.low for g in guesses), max(g.high for g in guesses))


def gap(left: Number, right: Number) -> Number:
    """left - right, seed by seed; an exact number, such as a baseline, has one value for all."""
    if left.n and right.n:
        return minus(left, right)
    if left.n:
        sampled, by_seed = left, {s: value - right.mean for s, value in left.by_seed.items()}
    else:
        sampled, by_seed = right, {s: left.mean - value for s, value in right.by_seed.items()}
    return sampled._replace(mean=left.mean - right.mean, by_seed=by_seed)


def _on_the_line(sizes: Sequence[float], numbers: Sequence[Number], at: float) -> Estimate:
    logs = [math.log2(size) for size in sizes]
    distance = math.log2(at) - sum(logs) / len(logs)
    weights = [1 / len(logs) + distance * weight for weight in _slope_weights(logs)]
    return estimate(numbers, weights)


def _slope_weights(logs: Sequence[float]) -> list[float]:
    """The weights whose sum with the values is the least-squares slope."""
    middle = sum(logs) / len(logs)
    spread = sum((log - middle) ** 2 for log in logs)
    return [(log - middle) / spread for log in logs]


def _shared_seeds(numbers: Sequence[Number]) -> list[int]:
    seeds = [sorted(number.by_seed) for number in numbers]
    if any(of_size != seeds[0] for of_size in seeds) or len(seeds[0]) < 2:
        counts = ", ".join(str(len(of_size)) for of_size in seeds)
        raise UserError(
            "a trend needs the same seeds, at least two, at every size, because it is drawn seed "
            f"by seed; the sizes have {counts} seeds, not all the same: run the missing ones."
        )
    return seeds[0]
