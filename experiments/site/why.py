"""Explanation of a rule's verdict: the compared numbers, the interval and the required difference.

why.js draws the interval.
"""

import math
from html import escape

from experiments.ledger.ledger import Row
from experiments.ledger.rules import HELD, NOT_HELD, Finding, Rule, Side
from jaxformer.stats.differences import Difference

HEADS = {HELD: "why it held", NOT_HELD: "why it did not hold"}


def why(row: Row, finding: Finding, rule: Rule) -> str:
    """Returns the collapsed explanation of a finding; "" if it was not run."""
    difference = finding.compared
    if difference is None:
        return ""
    left, right = (_side(row, side) for side in rule.sides)
    text = (
        f"The rule requires that {left} {_requirement(rule, right)}. "
        f"{_interval(difference)}, so {_conclusion(finding, rule, difference)}."
    )
    css_class = finding.verdict.replace(" ", "-")
    data = f' data-rule="{_drawn(difference, rule)}"' if math.isfinite(difference.half) else ""
    head = HEADS.get(finding.verdict, "why it is undecided")
    return (
        f'<details class="why {css_class}"{data}><summary>{head}</summary><p>{text}</p></details>'
    )


def _drawn(difference: Difference, rule: Rule) -> str:
    """Returns the numbers that why.js draws: gap, half width of the interval, borders."""
    borders = (-rule.by, rule.by) if rule.within else (rule.by,)
    return " ".join(f"{value:.4g}" for value in (difference.gap, difference.half, *borders))


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
        return f"{name}{of} minus that of {escape(side.minus)}"
    return f"{name}{of}"


def _requirement(rule: Rule, right: str) -> str:
    if rule.within:
        return f"is within {rule.by:g} of {right}"
    if rule.by < 0:
        return f"is no more than {-rule.by:g} below {right}"
    return f"is above {right}" + (f" by more than {rule.by:g}" if rule.by else "")


def _interval(difference: Difference) -> str:
    """Returns a sentence with the difference and its interval."""
    gap, half = difference.gap, difference.half
    if half == 0:
        return f"They differ by {gap:.4g}, without an error"
    if not math.isfinite(half):
        return f"They differ by {gap:.4g}, and the error is unknown"
    low, middle, high = (_rounded(value, half) for value in (difference.low, gap, difference.high))
    seeds = [str(n) for n in difference.seeds if n > 1]
    over = f" ({' and '.join(dict.fromkeys(seeds))} seeds)" if seeds else ""
    return f"The difference is {middle}, its 95 % interval {low} to {high}{over}"


def _conclusion(finding: Finding, rule: Rule, difference: Difference) -> str:
    """Returns the position of the interval relative to the border of the rule."""
    if not math.isfinite(difference.half):
        return "the rule is undecided"
    subject = "the difference" if difference.half == 0 else "the whole interval"
    border = f"{rule.by:g}"
    if finding.verdict == HELD:
        return f"{subject} lies {'within' if rule.within else 'above'} {border}"
    if finding.verdict == NOT_HELD:
        return f"{subject} {'does not lie within' if rule.within else 'lies below'} {border}"
    return f"the border, {border}, lies inside the interval"


def _rounded(value: float, half: float) -> str:
    """Returns the value with two significant digits of the half width."""
    digits = min(max(1 - math.floor(math.log10(half)), 0), 9)
    return f"{value:.{digits}f}"
