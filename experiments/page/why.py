"""Why a rule held, failed or cannot tell: what it compares, how far apart, and what it asks for."""

import math
from html import escape

from experiments.ledger.ledger import Row
from experiments.ledger.rules import HELD, NOT_HELD, Compared, Finding, Rule, Side

WIDTH, HEIGHT, MARGIN = 340, 40, 16
LINE = 14  # the height at which the interval is drawn


def why(row: Row, finding: Finding, rule: Rule) -> str:
    """The rule in words with the numbers that decided it, and a drawing of them; "" if not run."""
    found = finding.compared
    if found is None:
        return ""
    left, right = (_side(row, side) for side in rule.sides)
    words = f"The rule asks that {left} {_asked(rule, right)}. {_difference(found)}, so {{}}."
    told = words.format(_conclusion(finding, rule, found))
    head = {HELD: "why it held", NOT_HELD: "why it did not hold"}.get(
        finding.verdict, "why it cannot be told"
    )
    drawn = _drawing(found, rule, finding.verdict) if math.isfinite(found.half) else ""
    return f'<details class="why"><summary>{head}</summary><p>{told}</p>{drawn}</details>'


def _side(row: Row, side: Side) -> str:
    """What stands on one side of a rule, as HTML."""
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


def _difference(found: Compared) -> str:
    gap, half = found.gap, found.half
    if half == 0:
        return f"They differ by {gap:.4g}, without an error"
    if not math.isfinite(half):
        return f"They differ by {gap:.4g}, and an error is not known"
    low, middle, high = (_rounded(gap + sign * half, half) for sign in (-1, 0, 1))
    seeds = [str(n) for n in found.seeds if n > 1]
    over = f" ({' and '.join(dict.fromkeys(seeds))} seeds)" if seeds else ""
    return f"The difference is {middle}, its 95 % interval {low} to {high}{over}"


def _conclusion(finding: Finding, rule: Rule, found: Compared) -> str:
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
    """With two digits of the interval's half width."""
    digits = min(max(1 - math.floor(math.log10(half)), 0), 9)
    return f"{value:.{digits}f}"


def _drawing(found: Compared, rule: Rule, verdict: str) -> str:
    """A line of differences: the part asked for, the interval, its middle."""
    ends = [found.gap - found.half, found.gap + found.half]
    edges = [-rule.by, rule.by] if rule.within else [rule.by]
    low, high = min(ends + edges), max(ends + edges)
    room = 0.12 * (high - low or abs(high) or 1.0)
    low, high = low - room, high + room

    def at(value: float) -> str:
        return f"{MARGIN + (value - low) / (high - low) * (WIDTH - 2 * MARGIN):.1f}"

    end = at(rule.by) if rule.within else f"{WIDTH - MARGIN}"
    parts = [
        f'<path class="asked" d="M{at(edges[0])} 4H{end}V24H{at(edges[0])}Z"/>',
        f'<path class="axis" d="M{MARGIN} 24H{WIDTH - MARGIN}"/>',
        f'<path class="interval" d="M{at(ends[0])} {LINE}H{at(ends[1])}"/>',
        f'<circle cx="{at(found.gap)}" cy="{LINE}" r="4"/>',
    ]
    parts += [
        f'<text x="{at(edge)}" y="37" text-anchor="middle">{edge:.4g}</text>' for edge in edges
    ]
    kind = verdict.replace(" ", "-")
    box = f'viewBox="0 0 {WIDTH} {HEIGHT}" aria-hidden="true"'  # the words say the same
    return f'<svg class="rule {kind}" {box}>{"".join(parts)}</svg>'
