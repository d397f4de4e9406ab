"""The picture of a run: what its axes are."""

import pytest

from jaxformer.training import curves


def test_the_picture_says_what_a_line_is_and_what_was_found():
    runs = {name: [{"step": 0, "loss": [1.0] * n}] for name, n in (("one", 3), ("other", 8))}
    chosen = {"one": [True] * 3, "other": [True] * 8}
    words = [text.get_text() for text in curves.curves(runs, {}, chosen, found="It works").texts]
    assert "It works" in words and "A line is a seed: 3 of one, 8 of other." in words


@pytest.mark.parametrize(
    ("losses", "scale"),
    [([3.4, 3.0, 2.2], "linear"), ([3.4, 0.1, 0.002], "log"), ([None, None, None], "linear")],
    ids=["less than a decade", "three decades", "diverged from the start"],
)
def test_the_loss_has_a_logarithmic_axis_where_there_are_decades_to_show(losses, scale):
    rows = [{"step": step, "loss": [loss, loss]} for step, loss in enumerate(losses)]
    figure = curves.curves({"standard": rows}, {"unigram_loss": 3.5})
    assert figure.axes[0].get_yscale() == scale
