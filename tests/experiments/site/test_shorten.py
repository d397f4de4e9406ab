"""A shortened SVG is still one, and draws the same lines at the same places."""

import io
import re
from html import unescape
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest

from experiments.papers import plots
from experiments.site import minify_svg


@pytest.fixture(scope="module")
def drawn():
    """As matplotlib writes it: curves with bars, a legend of them, a band, a formula, a map."""
    figure, axes = plots.row(2, (3, 2))
    x = np.arange(5.0)
    axes[0].errorbar(x, x**2, x + 0.5, label="bars", capsize=2)
    axes[0].fill_between(x, x, x + 1, alpha=0.3)
    axes[0].set_title(r"at $\beta_c$ & $10^{-2}$")
    axes[0].legend()
    axes[1].imshow(x[None], aspect="auto")
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        figure.savefig(file := io.StringIO(), format="svg")
    plots.pyplot().close(figure)
    return file.getvalue()


def test_it_is_well_formed_and_half_as_long(drawn):
    text = minify_svg.shortened(drawn)
    ElementTree.fromstring(text)
    assert len(text) < 0.5 * len(drawn)


def test_the_ticks_of_an_axis_are_one_path_and_its_labels_stay(drawn):
    text = minify_svg.shortened(drawn)
    words = [unescape(word) for word in re.findall(r"<text[^>]*>([^<]*)</text>", drawn)]
    assert words and sorted(words) == sorted(
        unescape(word) for word in re.findall(r"<text[^>]*>([^<]*)</text>", text)
    )
    assert drawn.count("<use") > 20 and text.count("<use") <= 6


def test_what_is_cut_off_at_a_frame_is_cut_off_by_a_class_of_its_name(drawn):
    text = minify_svg.shortened(drawn)
    names = re.findall(r'<clipPath id="(\w+)"', text)
    assert len(names) == 2 and text.count("clip-path") == 2 == drawn.count("<clipPath")
    for name in names:
        assert f".{name}{{clip-path:url(#{name})}}" in text
    used = [name for words in re.findall(r'class="([^"]*)"', text) for name in words.split()]
    assert sum(used.count(name) for name in names) <= drawn.count('clip-path="') > 2
    assert all(name in used for name in names)


def places(path):
    """The corners of a path of lines, by steps or not, one list for each of its parts."""
    parts, at, kind = [], np.zeros(2), ""
    for letter, numbers in re.findall(r"([MmLlhvz]?)((?: ?-?(?:\d+\.?\d*|\.\d+))*)", path):
        kind = letter or kind
        parts += [[]] if kind in "Mm" and letter else []
        at = parts[-1][0] if kind == "z" else at
        values = [float(n) for n in re.findall(r"-?(?:\d+\.?\d*|\.\d+)", numbers)]
        if kind in ("h", "v"):
            values = [
                x for value in values for x in ((value, 0.0) if kind == "h" else (0.0, value))
            ]
        for point in np.reshape(values, (-1, 2)):
            at = point if kind in "ML" else at + point
            parts[-1].append(at)
    return parts


@pytest.mark.parametrize(
    "path",
    [
        "M 34.3 -233.3L34.3 -233L34.4 -230.7L33.9 -231.7 z ",
        "M 1 2L3 4L5 6 z M 7 8L9 10 ",
        "M 0 345.4L453.5 345.4 z M 1 1L 2.5 0.1L -0.4 2 ",
        "M -0.5 10L100 1000.1",
        "M 5 5L5 8L9 8L9 8L10 9L9 9L8 7",
        "M 7 7",
    ],
)
def test_steps_lead_to_the_same_places(path):
    short = minify_svg.in_steps(path)
    assert len(short) < len(path)
    assert short.count("z") == path.count("z")
    for now, was in zip(places(short), places(path), strict=True):
        np.testing.assert_allclose(now, was, atol=1e-9)


def test_a_long_line_loses_the_points_that_no_eye_misses():
    x = np.linspace(0, 90, 181)
    y = 40 * np.sin(x / 12) + np.where(np.arange(181) == 57, 0.3, 0.0)  # with a peak
    path = "M " + "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x, y, strict=True))
    (now,), (was,) = places(minify_svg.in_steps(path)), places(path)
    now, was = np.array(now), np.array(was)
    assert len(now) < len(was) / 2
    assert (now[0] == was[0]).all() and (now[-1] == was[-1]).all()
    gaps = np.abs(np.interp(was[:, 0], now[:, 0], now[:, 1]) - was[:, 1])
    assert gaps.max() < 0.5 and np.abs(now[:, 1] - was[57, 1]).min() < 1e-9
    bar = "M 0 0" + "".join(f"L {k} {k % 2}" for k in range(1, 20))  # corners stay
    assert len(places(minify_svg.in_steps(bar))[0]) == len(places(bar)[0])


def test_a_curve_is_left_as_it_is():
    path = "M 0 0C 1 1 2 2 3 3"
    assert minify_svg.in_steps(path) == path


def test_the_bars_of_a_curve_are_one_path_but_see_through_lines_stay_apart():
    line = '<path d="M {0} 1L{0} 2 " style="fill: none; stroke: #000{1}"/>'
    bars = "".join(line.format(k, "") for k in range(3))
    joined = minify_svg._lines_joined(bars)
    assert joined.count("<path") == 1
    whole = "M 0 1L0 2M 1 1L1 2M 2 1L2 2"
    np.testing.assert_array_equal(places(re.search(' d="([^"]*)"', joined)[1]), places(whole))
    glass = "".join(line.format(k, "; stroke-opacity: 0.5") for k in range(3))
    assert minify_svg._lines_joined(glass) == glass


def test_letters_of_one_look_are_one_word_each_at_its_place():
    letters = '<tspan x="{}" y="-1" class="a">{}</tspan>'
    text = letters.format("0", "1") + letters.format("4", "&lt;") + letters.format("9", "")
    assert minify_svg._letters_joined(text).startswith(
        '<tspan x="0 4" y="-1" class="a">1&lt;</tspan>'
    )
    words = letters.format("0", "ab") + letters.format("9", "c")  # one place for two letters
    assert minify_svg._letters_joined(words) == words


def test_groups_that_say_nothing_go_whether_they_hold_something_or_not():
    text = '<g><g class="s1"><g/><g id="a"/><path/></g></g>'
    assert minify_svg._without_bare_groups(text) == '<g class="s1"><path/></g>'


def test_a_mark_says_how_it_looks_if_its_copies_agree():
    mark = '<path id="{}" d="M 0 0" style="stroke: #000"/>'
    copy = '<use xlink:href="#{}" x="1" y="2" style="fill: {}; stroke: #111"/>'
    text = mark.format("a") + 2 * copy.format("a", "red")
    once = minify_svg._marks_that_say_it_once(text)
    assert once.count("<use") == 2 and once.count("style") == 1
    assert 'style="fill: red; stroke: #000"' in once  # what the mark itself says comes first
    differ = mark.format("b") + copy.format("b", "red") + copy.format("b", "blue")
    assert minify_svg._marks_that_say_it_once(differ) == differ


def test_dots_and_caps_are_lines_of_one_path_unless_one_sees_through_them():
    copies = "".join(f'<use xlink:href="#a" x="{x}" y="5"/>' for x in (1, 2))
    cap = '<path id="a" d="M 2 0L-2 0 " style="stroke: #000{}"/>'
    solid = minify_svg._marks_drawn(cap.format("") + copies)
    drawn = re.findall(' d="([^"]*)"', solid)[-1]
    assert "<use" not in solid
    np.testing.assert_allclose(places(drawn), places("M 3 5L-1 5M 4 5L0 5"))
    glass = cap.format("; stroke-opacity: 0.5") + copies
    assert minify_svg._marks_drawn(glass) == glass
    curve = "C 1 2 2 1 2 0 C 2 -1 1 -2 0 -2 C -1 -2 -2 -1 -2 0 C -2 1 -1 2 0 2 z "
    dot = f'<path id="a" d="M 0 2 {curve}" style="fill: red; stroke: red; stroke-width: 1.5"/>'
    round_line = minify_svg._marks_drawn(dot + copies)
    assert "stroke: red; stroke-width: 5.5; stroke-linecap: round" in round_line


def test_nothing_is_defined_that_nobody_uses(drawn):
    text = minify_svg.shortened(drawn)
    for name in re.findall(r' id="(\w+)"', text):
        assert re.search(rf"#{name}\b", text), name
