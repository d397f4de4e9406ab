"""The style of figures, and the check of every saved figure."""

from pathlib import Path

import numpy as np
import pytest

from jaxformer.core.errors import UserError
from jaxformer.report import figure_style
from tests import pictures

X = np.linspace(0, 1, 9)


@figure_style.styled
def drawn(width=figure_style.PAGE, columns=2, words="Squares grow faster than lines near the end"):
    figure, axes = figure_style.panels(1, columns, (width, 1.6))
    for axis in axes[0]:
        axis.plot(X, X, color=figure_style.COLOURS[0], label="a line")
        axis.plot(X, X**2, color=figure_style.COLOURS[1], label="a square")
        axis.set(xlabel="x", ylabel="y")
        figure_style.label_panel(axis, "two curves of x")
    figure_style.add_finding(figure, words, "Made up. " * 8, axes[0, 0])
    return figure


def image(axis, most=1.0, colours=figure_style.DIVERGING_MAP):
    return axis.imshow(np.eye(3), cmap=colours, vmin=-most, vmax=most)


@pytest.mark.parametrize(("width", "columns"), [(figure_style.COLUMN, 1), (figure_style.PAGE, 3)])
def test_a_figure_has_the_width_of_its_column(width, columns):
    figure = drawn(width, columns, "Long words that need more than one line of a column. " * 3)
    assert pictures.faults(figure, is_headed=True) == []
    assert figure.get_size_inches()[0] == width
    assert pictures.smallest_font(figure) == figure_style.SMALL


def test_letters_that_shrink_in_print_are_detected():
    figure = drawn()
    width, height = figure.get_size_inches()
    figure.set_size_inches(2 * width, 2 * height)
    assert "letters of 3.2 points" in pictures.faults(figure)[0]
    small = drawn()
    small.axes[0].text(0.5, 0.5, "small", fontsize=5)
    assert pictures.faults(small) == ["letters of 5.0 points, 6 are the least"]


def _legend(figure):
    figure.axes[0].legend(loc="center")  # on the diagonal, whatever the letters


def _bars(figure):
    figure.axes[0].bar([0.1], [1.0], label="a bar")
    figure.axes[0].legend(loc="upper left")


def _bare(figure):
    image(figure.axes[0])


def _two_scales(figure):
    figure_style.add_colour_bar(figure, image(figure.axes[0]), figure.axes[0], "entry")
    image(figure.axes[1], most=2.0)


def _nameless(figure):
    figure_style.add_colour_bar(figure, image(figure.axes[0]), figure.axes[0], "")


def _rainbow(figure):
    figure_style.add_colour_bar(
        figure, image(figure.axes[0], colours="jet"), figure.axes[0], "entry"
    )


def _green(figure):
    figure.axes[0].plot(X, X, color="limegreen")


def _outside(figure):
    figure.text(0.99, 0.5, "too far to the right")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_legend, "a legend hides the curve 'a line'"),
        (_bars, "a legend hides a bar"),
        (_bare, "an image has no colour bar"),
        (_two_scales, "an image has no colour bar, and not the scale of one that has"),
        (_nameless, "a colour bar without a name"),
        (_rainbow, "the colour map jet"),
        (_green, "a curve of the colour #32cd32"),
        (_outside, "'too far to the right' is cut off by"),
    ],
)
def test_faults_of_a_figure_are_detected(spoil, words):
    figure = drawn()
    spoil(figure)
    assert any(fault.startswith(words) for fault in pictures.faults(figure))


def test_panels_may_share_the_colour_bar_of_one_scale():
    figure = drawn()
    figure_style.add_colour_bar(figure, image(figure.axes[0]), figure.axes[0], "entry")
    image(figure.axes[1])
    assert pictures.faults(figure) == []


def test_a_figure_needs_a_finding():
    assert pictures.faults(drawn(words=""), is_headed=True) == ["no words say what was found"]


def test_formulas_are_not_cut_in_two():
    words = figure_style.wrapped(
        r"at $\beta_c = \sqrt{2}$ tokens agree\nand then no more", 0.5, 8.0
    )
    assert all(line.count("$") in (0, 2) for line in words.split("\n"))
    assert (
        figure_style.wrapped("one two", 10.0, 8.0) == "one two"
        and figure_style.wrapped("", 1.0, 8.0) == ""
    )


@pytest.mark.parametrize(("ending", "begins"), [("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_the_same_figure_has_the_same_bytes(ending, begins, tmp_path):
    files = [tmp_path / f"{name}.{ending}" for name in "ab"]
    for file in files:
        figure_style.save(drawn(figure_style.COLUMN, 1), file)
    one, other = (file.read_bytes() for file in files)
    assert one == other and one.startswith(begins)


def test_a_file_that_cannot_be_written_is_a_one_line_error(tmp_path):
    with pytest.raises(UserError, match=r"must end in one of .png, .pdf, .svg; got 'a.gif'"):
        figure_style.save(drawn(figure_style.COLUMN, 1), Path("a.gif"))
    with pytest.raises(UserError, match=r"cannot write the figure .*no/a.png: No such file"):
        figure_style.save(drawn(figure_style.COLUMN, 1), tmp_path / "no/a.png")
    assert not [*tmp_path.iterdir()]


def test_the_style_of_the_users_figures_does_not_change():
    import matplotlib

    with matplotlib.rc_context():
        before = dict(matplotlib.rcParams)
        drawn(figure_style.COLUMN, 1)
        assert dict(matplotlib.rcParams) == before
