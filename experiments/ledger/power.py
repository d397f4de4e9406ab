"""The number of seeds that decides a rule with a probability of 90 %.

More seeds reduce the error from the spread between seeds, but not the error of the test set. If the
error of the test set is too large, no number of seeds decides the rule.
"""

import math

from experiments.ledger.rules import Rule
from jaxformer.stats.differences import Difference, quantile
from jaxformer.stats.power import MAX_SEEDS, seeds_for_distance, seeds_for_share

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
    seeds = seeds_for_distance(distance, spread, compared.test, most)
    return seeds, "" if seeds else f"it needs more than {most} seeds"
