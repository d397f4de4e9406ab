"""The number of seeds that decides a rule with a probability of 90 %.

More seeds reduce the error from the spread between seeds, but not the error of the test set. If the
error of the test set is too large, no number of seeds decides the rule.
"""

import math

from experiments.ledger.rules import Rule
from experiments.ledger.statistics import Difference, clopper_pearson, quantile

POWER = 0.9  # the probability that the interval excludes the border
MAX_SEEDS = 64  # the largest number that `seeds_for_rule` suggests
TEST_SET = "the test set is too small"


def seeds_for_rule(
    rule: Rule, compared: Difference, share: float = 1.0, most: int = MAX_SEEDS
) -> tuple[int, str]:
    """Returns the number of seeds that decides a rule with the power POWER, or why there is none.

    Args:
      rule: the rule.
      compared: the difference that was observed.
      share: the true distance from the border that is assumed, over the observed distance. An
        observed distance that decided a rule is too large on average.
      most: the largest number of seeds.

    Returns:
      (seeds, ""), or (0, the reason) if no number up to `most` suffices.
    """
    gap = abs(compared.gap) if rule.within else compared.gap
    n = max(compared.seeds)
    distance = share * abs(gap - rule.by)
    if not n:
        return 0, "no number of it depends on seeds"
    if math.isinf(compared.half):
        return n + 2, ""  # the error is known only after more seeds
    if compared.share is not None:  # the rule compares a share of the seeds with a number
        share_is_left = not rule.right.metric
        is_above = (gap > rule.by) == share_is_left
        signed_distance = distance if is_above else -distance
        # The assumed distance over `share` is the observed distance.
        border = compared.share - signed_distance / share
        return seeds_for_share(border + signed_distance, border, most), ""
    if quantile(math.inf) * compared.test >= distance:
        return 0, TEST_SET
    spread = compared.sem * math.sqrt(n)  # the standard deviation between seeds
    for seeds in range(2, most + 1):
        if power(distance, spread, compared.test, seeds) >= POWER:
            return seeds, ""
    return 0, f"it needs more than {most} seeds"


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
