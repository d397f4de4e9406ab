"""Explanation of a rule's verdict: the compared numbers, the interval and the required difference.

why.js draws the interval.
"""

import math
from html import escape

from experiments.ledger.ledger import Row
from experiments.ledger.rules import HELD, NOT_HELD, Finding, Rule, Side
from experiments.ledger.statistics import Difference


def why(row: Row, finding: Finding, rule: Rule) -> str:
    """Returns the collapsed explanation of a finding; "" if it was not run."""
    found = finding.compared
    if found is None:
        return ""
    left, right = (_side(row, side) for side in rule.sides)
    words = f"The rule asks that {left} {_asked(rule, right)}. {_difference(found)}, so {{}}."
    told = words.format(_conclusion(finding, rule, found))
    head = {HELD: "why it held", NOT_HELD: "why it did not hold"}.get(
        finding.verdict, "why it cannot be told"
    )
    kind = finding.verdict.replace(" ", "-")
    drawn = f' data-rule="{_drawn(found, rule)}"' if math.isfinite(found.half) else ""
    return f'<details class="why {kind}"{drawn}><summary>{head}</summary><p>{told}</p></details>'


def _drawn(found: Difference, rule: Rule) -> str:
    """Returns the numbers that why.js draws: gap, half interval, borders of the rule."""
    edges = (-rule.by, rule.by) if rule.within else (rule.by,)
    return " ".join(f"{value:.4g}" for value in (found.gap, found.half, *edges))


def _side(row: Row, side: Side) -> str:
    """Returns the HTML name of one side of a rule."""
    if not side.metric:
        return f"{side.value:g}"
    name = f"<code>{escape(side.metric)}</code>"
    if side.times != 1:
        name = f"{side.times:.3g} times {name}"
    if side.among:
        return f"the mean of {name} over {len(side.among)} cells"
    of = f" of {escape(side.cell)}" if len(row.item.cells) > 1 else ""
    if side.is_baseline:
        return f"the baseline {name}{of}"
    if side.minus:
        return f"{name}{of} less that of {escape(side.minus)}"
    return f"{name}{of}"


def _asked(rule: Rule, right: str) -> str:
    if rule.within:
        return f"is within {rule.by:g} of {right}"
    if rule.by < 0:
        return f"is no more than {-rule.by:g} below {right}"
    return f"is above {right}" + (f" by more than {rule.by:g}" if rule.by else "")


def _difference(found: Difference) -> str:
    gap, half = found.gap, found.half
    if half == 0:
        return f"They differ by {gap:.4g}, without an error"
    if not math.isfinite(half):
        return f"They differ by {gap:.4g}, and an error is not known"
    low, middle, high = (_rounded(value, half) for value in (found.low, gap, found.high))
    seeds = [str(n) for n in found.seeds if n > 1]
    over = f" ({' and '.join(dict.fromkeys(seeds))} seeds)" if seeds else ""
    return f"The difference is {middle}, its 95 % interval {low} to {high}{over}"


def _conclusion(finding: Finding, rule: Rule, found: Difference) -> str:
    if not math.isfinite(found.half):
        return "one cannot tell"
    one = "the difference" if found.half == 0 else "the whole interval"
    where = "within" if rule.within else "above"
    edge = f"{rule.by:g}"
    if finding.verdict == HELD:
        return f"{one} lies {where} {edge}"
    if finding.verdict == NOT_HELD:
        return f"{one} does not lie {where} {edge}" if rule.within else f"{one} lies below {edge}"
    return f"the edge, {edge}, lies inside the interval"


def _rounded(value: float, half: float) -> str:
    """Returns the value with two significant digits of the half width."""
    digits = min(max(1 - math.floor(math.log10(half)), 0), 9)
    return f"{value:.{digits}f}"
