"""Correction of p values for the number of rules.

The primary rules of distinct claims are one family: Holm's method keeps the probability of any
false decision among them below 5 %. All other rules are a second family: Benjamini and Hochberg's
method keeps the expected share of false decisions below 5 %. Rules between exact numbers have no
p value. No method corrects for rules that were chosen after numbers were seen; a confirmation does.
"""

from collections.abc import Callable, Sequence

from experiments.ledger.item import Item
from experiments.ledger.rules import Finding
from jaxformer.stats.multiplicity import benjamini_hochberg, holm

PRIMARY, SECONDARY = "primary", "secondary"


def with_q_values(judged: Sequence[tuple[Item, Sequence[Finding]]]) -> list[list[Finding]]:
    """Returns the findings of each item with their q values and families."""
    places: dict[str, list[tuple[int, int]]] = {PRIMARY: [], SECONDARY: []}
    for row, (item, findings) in enumerate(judged):
        for place, finding in enumerate(findings):
            is_primary = item.is_distinct and finding.text == item.primary_rule
            if finding.p > 0:
                places[PRIMARY if is_primary else SECONDARY].append((row, place))
    adjusted = [list(findings) for _, findings in judged]
    methods: dict[str, Callable] = {PRIMARY: holm, SECONDARY: benjamini_hochberg}
    for family, members in places.items():
        q_values = methods[family]([adjusted[row][place].p for row, place in members])
        for (row, place), q in zip(members, q_values, strict=True):
            adjusted[row][place] = adjusted[row][place]._replace(q=q, family=family)
    return adjusted
