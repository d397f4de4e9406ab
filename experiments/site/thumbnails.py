"""A small drawing for a claim: the two numbers of the rule that decided, and where it holds.

It is drawn for its size, 300 pixels, so it has two dots, their 95 % intervals and one axis. The
numbers come from the printed text, so that a drawing cannot differ from the line beside it.
"""

import re
from html import escape

from experiments.ledger import headline, requirement
from experiments.ledger.ledger import Row
from experiments.ledger.rules import Rule, Side
from experiments.site.digits import COMPARED
from jaxformer.core.variants import VARIANTS, label
from jaxformer.report.svg import Axis, Scale

WIDTH, HEIGHT, EDGE = 300, 84, 8
AXIS, LINES = 62, (22, 50)  # heights of the axis and of the two numbers
LETTERS = 44  # of a label that fits
Z = 1.96


def thumbnail(row: Row) -> str:
    """The drawing as SVG; "" for a row without numbers."""
    rule, (_, text) = requirement.decisive_rule(row), headline.decisive_numbers(row)
    numbers = COMPARED.match(text)
    if rule is None or numbers is None:
        return ""
    value, error, other, other_error = (float(n or 0) for n in numbers.groups())
    sides = rule.sides if rule.left.cell else rule.sides[::-1]
    low, high = _allowed(rule, other)
    points = [value - Z * error, value + Z * error, other - Z * other_error]
    points += [other + Z * other_error, *(x for x in (low, high) if x is not None)]
    scale = Scale(Axis(""), points, EDGE, WIDTH - EDGE)
    parts = [_band(scale, low, high), f'<path class="axis" d="M{EDGE} {AXIS}H{WIDTH - EDGE}"/>']
    for x, name in scale.ticks().items():
        anchor = "start" if scale(x) < 30 else "end" if scale(x) > WIDTH - 30 else "middle"
        parts.append(
            f'<text x="{scale(x):.1f}" y="{AXIS + 14}" text-anchor="{anchor}">{name}</text>'
        )
    measured = [(value, error, "s0"), (other, other_error, "s1")]
    for side, y, (x, e, colour) in zip(sides, LINES, measured):
        parts.append(
            f'<text class="value" x="{EDGE}" y="{y - 8}">{escape(_name(row, side))}</text>'
        )
        parts.append(
            f'<path class="line {colour}" d="M{scale(x - Z * e):.1f} {y}H{scale(x + Z * e):.1f}"/>'
        )
        parts.append(f'<circle class="dot {colour}" cx="{scale(x):.1f}" cy="{y}" r="4"/>')
    alt = escape(f"{text}, required {requirement.required(rule)}")
    return (
        f'<svg class="thumbnail" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{alt}">'
        f"{''.join(parts)}</svg>"
    )


def _allowed(rule: Rule, other: float) -> tuple[float | None, float | None]:
    """The ends of the interval in which the measured number satisfies the rule; None: no end."""
    if rule.within:
        return other - rule.by, other + rule.by
    return (other + rule.by, None) if rule.left.cell else (None, other - rule.by)


def _band(scale: Scale, low: float | None, high: float | None) -> str:
    start = EDGE if low is None else scale(low)
    end = WIDTH - EDGE if high is None else scale(high)
    return (
        f'<rect class="asked" x="{start:.1f}" y="2" width="{end - start:.1f}" height="{AXIS - 2}"/>'
    )


def _name(row: Row, side: Side) -> str:
    """A label for one of the two numbers: "Frozen-QK", or its metric if both are of one run."""
    if not side.metric:
        return "required"
    rule = requirement.decisive_rule(row)
    cells = {s.cell for s in rule.sides if s.metric} if rule else set()
    if side.is_baseline or len(cells) < 2 or side.among:
        text = re.sub(r"[_/]", " ", side.metric)
    else:
        text = " minus ".join(filter(None, (_in_words(side.cell), _in_words(side.minus))))
    return text if len(text) <= LETTERS else text[: LETTERS - 2].rpartition(" ")[0] + " .."


def _in_words(cell: str) -> str:
    parts = (label(part) if part in VARIANTS else part for part in cell.split(", "))
    return ", ".join(parts).replace("_", " ")
