"""Charts: ticks fit beside the frame, and no label covers a curve."""

import re

import pytest

from jaxformer.report.svg import BOTTOM, LEFT, RIGHT, TOP, Axis, Scale, Series, line_chart


def line(label, y, error=0.01):
    return Series(label, [*range(len(y))], y, [v - error for v in y], [v + error for v in y])


@pytest.mark.parametrize("log", [True, False])
@pytest.mark.parametrize(
    "low, high", [(2.6, 3.75), (2.1, 2.9), (0.031, 7.7), (1e-8, 3.0), (3, 3), (0.9985, 1)]
)
def test_ticks_are_few_short_and_inside_the_frame(low, high, log):
    scale = Scale(Axis("loss", log=log), [low, high], BOTTOM, TOP)
    ticks = scale.ticks()
    assert 2 <= len(ticks) <= 8
    for value, label in ticks.items():
        assert scale.low <= value * (1 + 1e-9) and value <= scale.high * (1 + 1e-9)
        digits = re.sub(r"e.*|[-.]", "", label).strip("0")
        assert len(label) <= 6 and float(label) == pytest.approx(value) and len(digits) <= 4


@pytest.mark.parametrize("curve", ["above on the left", "below on the right", "all above"])
def test_the_label_of_a_level_hides_no_curve(curve):
    heights = {
        "above on the left": [0.5] * 20 + [1.0] * 20,
        "below on the right": [1.0] * 20 + [0.37] * 20,
        "all above": [0.46] * 40,
    }
    (x, y, level), points = named(line("a", heights[curve]), 0.42)
    wide = 5.6 * len("by token 0.42")
    inside = [p for p in points if x <= p[0] <= x + wide and y - 11 <= p[1] <= y + 3]
    assert inside == [] and LEFT < x < RIGHT - wide and abs(y - level) < 13
    assert TOP < named(line("a", [0.5, 0.6]), 0.999)[0][1] < BOTTOM


def named(series, value):
    """Returns ((x, y) of the label, height of its level), and the points of the line."""
    text = line_chart("", [series], Axis("x"), Axis("y", limits=(0, 1)), {"by_token": value})
    x, y = map(float, re.search(r'class="name" x="([^"]*)" y="([^"]*)"', text).groups())
    assert text.index('class="name"') > text.index('class="line')  # over the curves
    to_x, to_y = (
        Scale(Axis(""), series.x, LEFT, RIGHT),
        Scale(Axis("", limits=(0, 1)), [], BOTTOM, TOP),
    )
    return (x, y, to_y(value)), [(to_x(a), to_y(b)) for a, b in zip(series.x, series.y)]
