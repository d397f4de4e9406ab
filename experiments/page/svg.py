"""Line charts as inline SVG: drawn by hand, coloured by the page's style sheet, light or dark.

Colours are the classes s0 .. s6, so that a chart follows the reader's theme; text is currentColor.
"""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT = 420, 250
LEFT, RIGHT, TOP, BOTTOM = 48, 12, 12, 40
COLOURS = 7  # classes s0 .. s6 of the style sheet


class Series(NamedTuple):
    """A line with its band: `low` and `high` are the ends of an error bar or of a range."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    colour: int = -1  # of the style sheet; -1 takes the line's place among its series


class Axis(NamedTuple):
    label: str
    log: bool = False
    limits: tuple[float, float] | None = None
    ticks: Mapping[float, str] = {}  # chosen by hand; else nice numbers


def line_chart(
    alt: str,
    series: Sequence[Series],
    x: Axis,
    y: Axis,
    levels: Mapping[str, float] | None = None,
    marks: bool = False,
) -> str:
    """One panel; `levels` are dashed horizontals, `marks` draws dots with error bars."""
    levels = levels or {}
    xs = [v for s in series for v in s.x]
    ys = [v for s in series for v in (*s.y, *s.low, *s.high)] + [*levels.values()]
    to_x = _scale(x, xs, LEFT, WIDTH - RIGHT)
    to_y = _scale(y, ys, HEIGHT - BOTTOM, TOP)
    parts = [*_grid(x, y, xs, ys, to_x, to_y)]
    for name, value in levels.items():
        at = to_y(value)
        parts.append(f'<path class="level" d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}"/>')
        said = escape(_say(name, value))
        parts.append(f'<text x="{LEFT + 4}" y="{_clear(at)}">{said}</text>')
    for i, one in enumerate(series):
        parts += _drawn(one, f"s{_colour(one, i)}", to_x, to_y, marks)
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(alt)}">'
        f"<title>{escape(alt)}</title>{''.join(parts)}</svg>"
    )


class Dot(NamedTuple):
    """A row of a dot chart; what is None is not drawn."""

    label: str
    measured: float | None
    error: float
    published: float | None
    baseline: float | None


def dot_chart(alt: str, dots: Sequence[Dot], x: Axis) -> str:
    """A line a cell: our number with its error bar, the published one, the baseline."""
    left, step = 118, 24
    bottom = TOP + step * len(dots)
    drawn = [v for d in dots for v in (d.measured, d.published, d.baseline) if v is not None]
    to_x = _scale(x, drawn, left + 8, WIDTH - RIGHT - 8)
    parts = []
    for value, text in _ticks(x, drawn).items():
        at = f"{to_x(value):.1f}"
        parts.append(f'<path class="grid" d="M{at} {TOP}V{bottom}"/>')
        parts.append(f'<text x="{at}" y="{bottom + 15}" text-anchor="middle">{text}</text>')
    for i, dot in enumerate(dots):
        y = TOP + step * (i + 0.5)
        label = f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{escape(dot.label)}</text>'
        parts.append(f'{label}<path class="grid" d="M{left} {y}H{WIDTH - RIGHT}"/>')
        if dot.baseline is not None:
            at = f"{to_x(dot.baseline):.1f}"
            parts.append(f'<path class="line level" d="M{at} {y - 9}V{y + 9}"/>')
        if dot.published is not None:
            at = to_x(dot.published)
            corners = f"M{at:.1f} {y - 6}L{at + 6:.1f} {y}L{at:.1f} {y + 6}L{at - 6:.1f} {y}Z"
            parts.append(f'<path class="line s1" d="{corners}"/>')
        if dot.measured is not None:
            ends = [to_x(dot.measured - dot.error), to_x(dot.measured + dot.error)]
            parts.append(f'<path class="line s0" d="M{ends[0]:.1f} {y}H{ends[1]:.1f}"/>')
            at = f"{to_x(dot.measured):.1f}"
            parts.append(f'<circle class="dot s0" cx="{at}" cy="{y}" r="3.5"/>')
    parts.append(f'<path class="axis" d="M{left} {TOP}V{bottom}H{WIDTH - RIGHT}"/>')
    middle = f'x="{(left + WIDTH - RIGHT) / 2}" y="{bottom + 33}" text-anchor="middle"'
    parts.append(f"<text {middle}>{escape(x.label)}</text>")
    return (
        f'<svg viewBox="0 0 {WIDTH} {bottom + 40}" role="img" aria-label="{escape(alt)}">'
        f"<title>{escape(alt)}</title>{''.join(parts)}</svg>"
    )


def legend(series: Sequence[Series]) -> str:
    """The names of the lines, as text of the page so that it wraps on a phone."""
    words = [
        f'<li><span class="swatch b{_colour(one, i)}"></span>{escape(one.label)}</li>'
        for i, one in enumerate(series)
    ]
    return f'<ul class="legend">{"".join(words)}</ul>'


def as_csv(panels: Mapping[str, Sequence[Series]]) -> str:
    """The points of some panels: what a chart shows, as numbers."""
    rows = ["panel,line,x,y,low,high"]
    for panel, series in panels.items():
        for one in series:
            points = zip(one.x, one.y, one.low, one.high, strict=True)
            label = f'"{one.label}"' if "," in one.label else one.label
            rows += [f"{panel},{label}," + ",".join(f"{v:.6g}" for v in p) for p in points]
    return "\n".join(rows) + "\n"


def _colour(one: Series, place: int) -> int:
    return (place if one.colour < 0 else one.colour) % COLOURS


def _drawn(one: Series, colour: str, to_x, to_y, marks: bool) -> list[str]:
    points = [f"{to_x(a):.1f} {to_y(b):.1f}" for a, b in zip(one.x, one.y, strict=True)]
    parts = []
    if not marks and len(points) > 1:
        ends = [(a, b) for a, b in zip(one.x, one.high, strict=True)]
        ends += [(a, b) for a, b in zip(one.x, one.low, strict=True)][::-1]
        band = "L".join(f"{to_x(a):.1f} {to_y(b):.1f}" for a, b in ends)
        parts.append(f'<path class="band {colour}" d="M{band}Z"/>')
    parts.append(f'<path class="line {colour}" d="M{"L".join(points)}"/>')
    if marks or len(points) < 4:
        for a, b, low, high in zip(one.x, one.y, one.low, one.high, strict=True):
            at = f"{to_x(a):.1f}"
            if marks and high > low:
                bar = f"M{at} {to_y(low):.1f}V{to_y(high):.1f}"
                parts.append(f'<path class="line {colour}" d="{bar}"/>')
            parts.append(f'<circle class="dot {colour}" cx="{at}" cy="{to_y(b):.1f}" r="3"/>')
    return parts


def _grid(x: Axis, y: Axis, xs, ys, to_x, to_y) -> list[str]:
    parts, bottom, right = [], HEIGHT - BOTTOM, WIDTH - RIGHT
    for value, text in (y.ticks or _ticks(y, ys)).items():
        at = to_y(value)
        parts.append(f'<path class="grid" d="M{LEFT} {at:.1f}H{right}"/>')
        parts.append(f'<text x="{LEFT - 5}" y="{at + 4:.1f}" text-anchor="end">{text}</text>')
    for value, text in (x.ticks or _ticks(x, xs)).items():
        at = to_x(value)
        parts.append(f'<text x="{at:.1f}" y="{bottom + 15}" text-anchor="middle">{text}</text>')
    parts.append(f'<path class="axis" d="M{LEFT} {TOP}V{bottom}H{right}"/>')
    middle = (LEFT + right) / 2
    parts.append(
        f'<text x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x.label)}</text>'
    )
    turned = f"translate(11 {(TOP + bottom) / 2}) rotate(-90)"
    parts.append(f'<text transform="{turned}" text-anchor="middle">{escape(y.label)}</text>')
    return parts


def _scale(axis: Axis, values: Sequence[float], start: float, end: float):
    """value -> pixel; what lies outside the limits is drawn at the edge."""
    low, high = _limits(axis, values)
    if axis.log:
        low, high = math.log10(low), math.log10(high)

    def place(value: float) -> float:
        where = math.log10(max(value, 1e-300)) if axis.log else value
        share = (where - low) / (high - low)
        return start + min(max(share, 0.0), 1.0) * (end - start)

    return place


def _limits(axis: Axis, values: Sequence[float]) -> tuple[float, float]:
    if axis.limits:
        return axis.limits
    low, high = min(values), max(values)
    if axis.log:
        return (low / 1.2, high * 1.2)
    gap = (high - low) or abs(high) or 1.0
    return (low - 0.03 * gap, high + 0.03 * gap)


def _ticks(axis: Axis, values: Sequence[float]) -> dict[float, str]:
    low, high = _limits(axis, values)
    if axis.log:
        powers = range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)
        every = -(-len(powers) // 5) or 1
        found = [10.0**p for p in powers][::every]
        if len(found) < 2:
            tens = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
            found = [v for p in tens for m in (1, 2, 5) if low <= (v := m * 10.0**p) <= high]
        return {v: f"{v:g}" for v in found or (low, high)}
    step = 10 ** math.floor(math.log10((high - low) / 3))
    step *= next((m for m in (5, 2) if (high - low) / (step * m) >= 3), 1)
    first = math.ceil(low / step - 1e-9)
    count = int((high - first * step) / step + 1e-9) + 1
    found = [(first + i) * step for i in range(count)]
    return {v: f"{v:.6g}" if abs(v) > 1e-12 * step else "0" for v in found}


def _clear(at: float) -> str:
    """A text above a level, or below one at the top edge."""
    return f"{at - 4 if at > TOP + 14 else at + 12:.1f}"


def _say(name: str, value: float) -> str:
    return f"{name.replace('_', ' ')} {value:.3g}"
