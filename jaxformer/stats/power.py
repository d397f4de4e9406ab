"""The number of seeds that a comparison needs.

More seeds reduce the error from the spread between seeds, but not the error of the test set. If the
error of the test set is too large, no number of seeds decides.
"""

import math

from jaxformer.stats.differences import clopper_pearson, quantile

POWER = 0.9  # the probability that the interval excludes the border
MAX_SEEDS = 64  # the largest number that is suggested


def seeds_for_distance(
    distance: float, spread: float, test: float = 0.0, most: int = MAX_SEEDS
) -> int:
    """The least number of seeds that decides with the power POWER; 0 if more than `most`.

    The distance is that of the true difference from the border, so take the smallest one that you
    would care about rather than one that you observed: an observed distance that decided something
    is too large on average.

    Args:
      distance: of the true difference from the border
      spread: the standard deviation between seeds (of paired runs: of the seeds' differences)
      test: the standard error of the test sets
      most: the largest number of seeds that you can afford
    """
    enough = (n for n in range(2, most + 1) if power(distance, spread, test, n) >= POWER)
    return next(enough, 0)


def power(distance: float, spread: float, test: float, seeds: int) -> float:
    """Returns the probability that the interval of a mean over seeds excludes the border.

    Args:
      distance: the distance of the true mean from the border.
      spread: the standard deviation between seeds.
      test: the standard error of the test set.
      seeds: the number of seeds.
    """
    from scipy.special import nctdtr, ndtr

    error = math.hypot(spread / math.sqrt(seeds), test)
    if error == 0:
        return 1.0
    shift = distance / error
    if spread == 0:
        return float(ndtr(shift - quantile(math.inf)))
    limit = quantile(seeds - 1)
    if shift > 3 * limit + 8:  # where nctdtr is slow and the power is 1
        return 1.0
    return 1 - float(nctdtr(seeds - 1, shift, limit))


def seeds_for_share(share: float, border: float, most: int = MAX_SEEDS) -> int:
    """Returns the number of seeds whose Clopper-Pearson interval excludes the border, or 0.

    Args:
      share: the assumed probability of the outcome for a seed.
      border: the border of the rule.
      most: the largest number of seeds.
    """
    from scipy.special import bdtr

    for seeds in range(2, most + 1):
        intervals = [clopper_pearson(hits / seeds, seeds) for hits in range(seeds + 1)]
        if share > border:
            # The least number of seeds with the outcome whose interval lies above the border.
            least_hits = sum(low <= border for low, _ in intervals)
            probability = 1 - float(bdtr(least_hits - 1, seeds, share))
        else:
            # The largest number of seeds with the outcome whose interval lies below it, or -1.
            most_hits = sum(high < border for _, high in intervals) - 1
            probability = float(bdtr(most_hits, seeds, share)) if most_hits >= 0 else 0.0
        if probability >= POWER:
            return seeds
    return 0
