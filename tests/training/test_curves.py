"""The picture of a run: what its axes are."""

import pytest

from jaxformer.training import curves


@pytest.mark.parametrize(
    ("losses", "scale"),
    [([3.4, 3.0, 2.2], "linear"), ([3.4, 0.1, 0.002], "log"), ([None, None, None], "linear")],
    ids=["less than a decade", "three decades", "diverged from the start"],
)
def test_the_loss_has_a_logarithmic_axis_where_there_are_decades_to_show(losses, scale):
    rows = [{"step": step, "loss": [loss, loss]} for step, loss in enumerate(losses)]
    figure = curves.curves({"standard": rows}, {"unigram_loss": 3.5})
    assert figure.axes[0].get_yscale() == scale
