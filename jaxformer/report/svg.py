"""Charts as inline SVG whose colours come from the page's style sheet (light or dark).

Lines have the classes s0 .. s6, and text has currentColor. matplotlib's SVG fixes its colours, is
ten times as long, and its ids would clash between the charts of a page.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import NamedTuple

from jaxformer.report.tables import csv_text

WIDTH, HEIGHT = 420, 250
LEFT, RIGHT, TOP, BOTTOM = 48, WIDTH - 12, 12, HEIGHT - 40  # the frame of a line chart
LETTER_WIDTH = 5.6  # pixels, on average
COLOURS = 7  # classes s0 .. s6 of the style sheet

Point = tuple[float, float]  # in pixels


class Series(NamedTuple):
    """A line with a band or error bars from `low` to `high`."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    colour: int = -1  # class of the style sheet; -1 is the index of the series

    @classmethod
    def with_errors(
        cls, label: str, points: Mapping[int, tuple[float, float]], colour: int = -1
    ) -> "Series":
        """Returns the series of points {x: (mean, standard error)}."""
        xs = sorted(points)
        means, errors = zip(*(points[x] for x in xs))
        low, high = ([m + sign * e for m, e in zip(means, errors)] for sign in (-1, 1))
        return cls(label, xs, means, low, high, colour)


class Axis(NamedTuple):
    """The label, scale, limits and ticks of an axis."""

    label: str
    log: bool = False
    limits: tuple[float, float] | None = None
    ticks: Mapping[float, str] = {}  # round numbers if empty


class Dot(NamedTuple):
    """A row of a dot chart; values that are None are not drawn."""

    label: str
    measured: float | None
    error: float
    published: float | None
    baseline: float | None


def line_chart(
    alt: str,
    series: Sequence[Series],
    x: Axis,
    y: Axis,
    levels: Mapping[str, float] = {},
    marks: bool = False,
) -> str:
    """Returns a panel. `levels` {name: y} are dashed lines. `marks` draws dots with error bars."""
    y_values = [v for s in series for v in (*s.y, *s.low, *s.high)] + [*levels.values()]
    to_x = Scale(x, [v for s in series for v in s.x], LEFT, RIGHT)
    to_y = Scale(y, y_values, BOTTOM, TOP)
    parts = [_path("grid", "".join(f"M{LEFT} {to_y(v):.1f}H{RIGHT}" for v in to_y.ticks()))]
    for value, label in to_y.ticks().items():
        parts.append(_text(LEFT - 5, f"{to_y(value) + 4:.1f}", label, "end"))
    for value, label in to_x.ticks().items():
        parts.append(_text(f"{to_x(value):.1f}", BOTTOM + 15, label, "middle"))
    parts.append(_path("axis", f"M{LEFT} {TOP}V{BOTTOM}H{RIGHT}"))
    parts.append(_text((LEFT + RIGHT) / 2, HEIGHT - 6, x.label, "middle"))
    turned = f"translate(11 {(TOP + BOTTOM) / 2}) rotate(-90)"
    parts.append(f'<text transform="{turned}" text-anchor="middle">{escape(y.label)}</text>')
    parts += [_path("level", f"M{LEFT} {to_y(v):.1f}H{RIGHT}") for v in levels.values()]
    for i, line in enumerate(series):
        parts += _drawn(line, f"s{_colour(line, i)}", to_x, to_y, marks)
    points = [(to_x(x), to_y(y)) for s in series for x, y in zip(s.x, s.y, strict=True)]
    for name, value in levels.items():
        label = f"{name.replace('_', ' ')} {value:.3g}"
        left, low = _label_position(points, LETTER_WIDTH * len(label), to_y(value))
        parts.append(f'<text class="name" x="{left:.1f}" y="{low:.1f}">{escape(label)}</text>')
    return _svg(alt, HEIGHT, parts)


def dot_chart(alt: str, dots: Sequence[Dot], x: Axis, width: int = WIDTH) -> str:
    """Returns a chart with a line for each dot: measured with error bar, published, baseline."""
    left, right, step = 118, width - (WIDTH - RIGHT), 24  # labels are at the left of `left`
    bottom = TOP + step * len(dots)
    values = [v for d in dots for v in (d.measured, d.published, d.baseline) if v is not None]
    to_x = Scale(x, values, left + 8, right - 8)
    parts = []
    for value, label in to_x.ticks().items():
        parts.append(_path("grid", f"M{to_x(value):.1f} {TOP}V{bottom}"))
        parts.append(_text(f"{to_x(value):.1f}", bottom + 15, label, "middle"))
    for i, dot in enumerate(dots):
        y = TOP + step * (i + 0.5)
        parts.append(_text(left - 6, y + 4, dot.label, "end"))
        parts.append(_path("grid", f"M{left} {y}H{right}"))
        if dot.baseline is not None:
            parts.append(_path("line level", f"M{to_x(dot.baseline):.1f} {y - 9}V{y + 9}"))
        if dot.published is not None:
            px = to_x(dot.published)
            diamond = f"M{px:.1f} {y - 6}L{px + 6:.1f} {y}L{px:.1f} {y + 6}L{px - 6:.1f} {y}Z"
            parts.append(_path("line s1", diamond))
        if dot.measured is not None:
            low, high = (to_x(dot.measured + error) for error in (-dot.error, dot.error))
            parts.append(_path("line s0", f"M{low:.1f} {y}H{high:.1f}"))
            parts.append(_circle("s0", to_x(dot.measured), y, 3.5))
    parts.append(_path("axis", f"M{left} {TOP}V{bottom}H{right}"))
    parts.append(_text((left + right) / 2, bottom + 33, x.label, "middle"))
    return _svg(alt, bottom + 40, parts, width)


def dot_legend(measured: str, published: str = "", baseline: str = "") -> str:
    """Returns the legend of a dot chart; the arguments are labels of its dots, diamonds, dashes."""
    entries = [f'<span class="swatch b0"></span>{measured}']
    entries += [f"{sign} {text}" for sign, text in (("◇", published), ("¦", baseline)) if text]
    return _list(entries)


def legend(series: Sequence[Series]) -> str:
    """Returns the legend of a line chart as HTML, which wraps on narrow screens."""
    return _list(
        f'<span class="swatch b{_colour(line, i)}"></span>{escape(line.label)}'
        for i, line in enumerate(series)
    )


def _list(entries: Iterable[str]) -> str:
    return f'<ul class="legend">{"".join(f"<li>{entry}</li>" for entry in entries)}</ul>'


def as_csv(panels: Mapping[str, Sequence[Series]]) -> str:
    """Returns the points of the panels as CSV."""
    rows: list[Iterable[str]] = [("panel", "line", "x", "y", "low", "high")]
    for panel, series in panels.items():
        for line in series:
            points = zip(line.x, line.y, line.low, line.high, strict=True)
            rows += [
                (panel, line.label, f"{x:.6g}", *(f"{y:.4g}" for y in ys)) for x, *ys in points
            ]
    return csv_text(rows)


class Scale:
    """Maps values of an axis to pixels; values outside the limits are drawn at the edge."""

    def __init__(self, axis: Axis, values: Sequence[float], start: float, end: float):
        self.axis, self.start, self.end = axis, start, end
        if axis.limits:
            self.low, self.high = axis.limits
            return
        low, high = min(values), max(values)
        gap = (high - low) or abs(high) or 1.0
        self.low, self.high = low - 0.03 * gap, high + 0.03 * gap
        if axis.log:
            self.low, self.high = max(low, 1e-9) / 1.2, max(high, 1e-9) * 1.2

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.axis.log:  # bounds replace zero and negative numbers, which have no logarithm
            low, high, value = (math.log10(max(v, 1e-300)) for v in (low, high, max(value, 1e-9)))
        share = (value - low) / (high - low)
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)

    def ticks(self) -> Mapping[float, str]:
        """Returns the labels of the ticks by value: those of the axis, else of round numbers."""
        if self.axis.ticks:
            return self.axis.ticks
        if self.axis.log and len(values := self._log_values()) > 1:
            return {v: f"{v:g}" for v in values}
        low, high = self.low, self.high
        step = 10 ** math.floor(math.log10((high - low) / 3))
        # The largest of 5, 2 and 1 times the power of ten that gives at least three steps.
        step *= next((m for m in (5, 2) if (high - low) / (step * m) >= 3), 1)
        first = math.ceil(low / step - 1e-9)
        count = int((high - first * step) / step + 1e-9) + 1
        chosen = [(first + i) * step for i in range(count)]
        return {v: f"{v:.6g}" if abs(v) > 1e-12 * step else "0" for v in chosen}

    def _log_values(self) -> list[float]:
        """Returns at most five powers of ten; with fewer than two, also 2 and 5 times a power."""
        first, last = math.log10(self.low), math.log10(self.high)
        powers = range(math.ceil(first), math.floor(last) + 1)
        if len(powers) > 1:
            stride = math.ceil(len(powers) / 5)
            return [10.0**p for p in powers][::stride]
        values = (
            m * 10.0**p for p in range(math.floor(first), math.ceil(last) + 1) for m in (1, 2, 5)
        )
        return [v for v in values if self.low <= v <= self.high]


def _label_position(points: Sequence[Point], width: float, level: float) -> Point:
    """Returns the position of a level's label that hides the fewest points of the curves."""
    heights = [y for y in (level - 4, level + 12) if TOP + 9 < y < BOTTOM - 3]
    positions = [(x, y) for y in heights for x in (LEFT + 4, RIGHT - 4 - width)]

    def hidden_points(position: Point) -> int:
        left, low = position
        # The letters reach from 11 pixels above `low`, their baseline, to 3 pixels below it.
        return sum(left <= x <= left + width and low - 11 <= y <= low + 3 for x, y in points)

    return min(positions, key=hidden_points)


def _drawn(line: Series, colour: str, to_x: Scale, to_y: Scale, marks: bool) -> list[str]:
    """Returns a line with its band. With `marks`, it has dots with error bars instead of a band.

    A line of fewer than four points has dots in any case.
    """
    middle, low, high = (
        [f"{to_x(x):.1f} {to_y(y):.1f}" for x, y in zip(line.x, ys, strict=True)]
        for ys in (line.y, line.low, line.high)
    )
    parts = []
    if not marks and len(middle) > 1:
        parts.append(_path(f"band {colour}", f"M{'L'.join(high + low[::-1])}Z"))
    parts.append(_path(f"line {colour}", f"M{'L'.join(middle)}"))
    if marks or len(middle) < 4:
        bars = [
            f"M{to_x(x):.1f} {to_y(bottom):.1f}V{to_y(top):.1f}"
            for x, bottom, top in zip(line.x, line.low, line.high, strict=True)
            if marks and top > bottom
        ]
        if bars:
            parts.append(_path(f"line {colour}", "".join(bars)))
        # A dot is a line of no length with round ends.
        parts.append(_path(f"line dots {colour}", "".join(f"M{point}h0" for point in middle)))
    return parts


def _colour(line: Series, index: int) -> int:
    return (index if line.colour < 0 else line.colour) % COLOURS


def _svg(alt: str, height: int, parts: list[str], width: int = WIDTH) -> str:
    role = f'role="img" aria-label="{escape(alt)}"'
    return f'<svg viewBox="0 0 {width} {height}" {role}>{"".join(parts)}</svg>'


def _path(css_class: str, d: str) -> str:
    return f'<path class="{css_class}" d="{d}"/>'


def _circle(colour: str, x: float, y: float, r: float) -> str:
    return f'<circle class="dot {colour}" cx="{x:.1f}" cy="{y:.1f}" r="{r}"/>'


def _text(x: float | str, y: float | str, text: str, anchor: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'
