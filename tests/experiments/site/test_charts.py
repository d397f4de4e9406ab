"""Charts: ticks that fit beside the frame, a label that hides no curve, titles that say what is."""

import re

import pytest

from experiments.site import titles
from experiments.site.svg import BOTTOM, LEFT, RIGHT, TOP, Axis, Scale, Series, line_chart


def line(label, y, error=0.01):
    return Series(label, [*range(len(y))], y, [v - error for v in y], [v + error for v in y])


@pytest.mark.parametrize("log", [True, False])
@pytest.mark.parametrize(
    "low, high", [(2.6, 3.75), (2.1, 2.9), (0.031, 7.7), (1e-8, 3.0), (3, 3), (0.9985, 1)]
)
def test_ticks_are_few_short_and_inside(low, high, log):
    scale = Scale(Axis("loss", log=log), [low, high], BOTTOM, TOP)
    ticks = scale.ticks()
    assert 2 <= len(ticks) <= 8
    for value, words in ticks.items():
        assert scale.low <= value * (1 + 1e-9) and value <= scale.high * (1 + 1e-9)
        digits = re.sub(r"e.*|[-.]", "", words).strip("0")
        assert len(words) <= 6 and float(words) == pytest.approx(value) and len(digits) <= 4


@pytest.mark.parametrize("curve", ["above on the left", "below on the right", "all above"])
def test_a_level_is_named_where_no_curve_is(curve):
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
    """((x, y) of the label, height of its level), and the points of the line."""
    text = line_chart("", [series], Axis("x"), Axis("y", limits=(0, 1)), {"by_token": value})
    x, y = map(float, re.search(r'class="name" x="([^"]*)" y="([^"]*)"', text).groups())
    assert text.index('class="name"') > text.index('class="line')  # over the curves
    to_x, to_y = (
        Scale(Axis(""), series.x, LEFT, RIGHT),
        Scale(Axis("", limits=(0, 1)), [], BOTTOM, TOP),
    )
    return (x, y, to_y(value)), [(to_x(a), to_y(b)) for a, b in zip(series.x, series.y)]


def test_a_title_says_who_stays_and_who_falls():
    lines = [line("standard", [1, 0.99]), line("mixit", [1, 0.6, 0.3])]
    labels = ("0", "1", "4")
    told = titles.along("accuracy", "carries", labels, lines)
    assert told == (
        "Accuracy from 0 to 4 carries: standard stays at 0.99 to 1; mixit falls from 1 to 0.3."
    )
    unsure = titles.along("accuracy", "carries", labels, [line("mixit", [1, 0.6], error=0.2)])
    assert unsure == "Accuracy from 0 to 4 carries: mixit stays at 0.6 to 1."
    valley = titles.along("loss", "beta =", labels, [line("measured", [2.5, 2.2, 2.8])])
    assert valley == (
        "Loss from beta = 0 to 4: measured rises from 2.5 to 2.8; measured is lowest in "
        "between, 2.2 at 1."
    )


def test_a_title_says_who_ends_highest_within_the_ranges():
    lines = [line("a", [0, 0.99]), line("b", [0, 1.0]), line("c", [0, 0.4]), line("d", [0, 0.7])]
    told = titles.at_the_end("validation accuracy", lines)
    assert told == (
        "At the end the validation accuracy is highest for b and a (0.990 to 1.000) and lowest "
        "for c (0.400)."
    )
    one = titles.at_the_end("validation loss", [line("beta=4.0", [3, 2.82])])
    assert one == "The validation loss of beta=4.0 ends at 2.820."
    alike = titles.at_the_end("loss", [line("a", [2.0]), line("b", [2.01])])
    assert alike == "At the end the seeds of b and a meet in loss, 2.000 to 2.010."
    assert titles.at_the_end("loss", []) == ""
