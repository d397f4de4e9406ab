"""What passes between the measurement of a figure and its drawing."""

from typing import NamedTuple

import numpy as np
import pytest

from experiments.papers.outcome import Training, call, settings_of
from jaxformer.core.errors import UserError


class Networks(NamedTuple):
    width: int
    heads: int = 1


def measure(betas: tuple, networks: Networks):
    return betas, networks


def test_a_named_tuple_takes_its_fields_of_the_settings():
    assert settings_of(measure) == ["betas", "width", "heads"]
    assert call(measure, {"betas": (1,), "width": 3, "other": 4}) == ((1,), Networks(3))
    assert call(measure, {"betas": (), "width": 3, "heads": 2}) == ((), Networks(3, 2))


def test_the_best_rate_is_that_of_the_lowest_final_loss_without_divergence():
    training = Training((0.1, 0.2, 0.3), 1, 20, 0, 2)
    losses_RxSxT = np.ones((3, 2, 20)) * np.array([2.0, 1.0, 0.5])[:, None, None]
    losses_RxSxT[0, :, :10] = 0  # what counts is the end
    losses_RxSxT[2, 1, -1] = np.nan
    chosen, last_S = training.best(losses_RxSxT, "it")
    assert chosen == 1 and last_S.tolist() == [1.0, 1.0]
    with pytest.raises(UserError, match=r"it diverges at every learning rate of \[0.1, 0.2, 0.3\]"):
        training.best(np.full((3, 2, 20), np.nan), "it")
