"""Settings, results and training of a figure of the recipe `solve`."""

from typing import NamedTuple

import numpy as np
import pytest

from experiments.papers.outcome import (
    Outcome,
    Training,
    call,
    jackknife,
    largest,
    root_mean_square,
    settings_of,
)
from jaxformer.core.errors import UserError
from jaxformer.training.metrics import over_seeds


class Networks(NamedTuple):
    width: int
    heads: int = 1


def measure(betas: tuple, networks: Networks):
    return betas, networks


def test_a_named_tuple_argument_is_built_from_its_fields():
    assert settings_of(measure) == ["betas", "width", "heads"]
    assert call(measure, {"betas": (1,), "width": 3, "other": 4}) == ((1,), Networks(3))
    assert call(measure, {"betas": (), "width": 3, "heads": 2}) == ((), Networks(3, 2))


def test_the_best_rate_has_the_lowest_final_loss_and_no_diverged_seed():
    training = Training((0.1, 0.2, 0.3), 1, 20, 0, 2)
    losses_RxSxT = np.ones((3, 2, 20)) * np.array([2.0, 1.0, 0.5])[:, None, None]
    losses_RxSxT[0, :, :10] = 0  # early losses must not count
    losses_RxSxT[2, 1, -1] = np.nan
    chosen, last_S = training.best(losses_RxSxT, "it")
    assert chosen == 1 and last_S.tolist() == [1.0, 1.0]
    with pytest.raises(UserError, match=r"it diverges at every learning rate of \[0.1, 0.2, 0.3\]"):
        training.best(np.full((3, 2, 20), np.nan), "it")


def test_a_scalar_is_an_array_and_a_metric_and_its_predictions_are_baselines():
    outcome = Outcome()
    outcome.scalar("radius", np.array([1.0, 3.0]), theory=2.5)
    assert outcome.metrics["radius"] == (2.0, 1.0, 2)
    assert outcome.baselines == {"theory_radius": 2.5}
    assert (
        outcome.arrays["radius"].tolist() == [1.0, 3.0] and outcome.arrays["theory_radius"] == 2.5
    )


def test_a_curve_and_its_predictions_are_arrays():
    outcome = Outcome()
    outcome.curve("{}_beta_2", np.array([[0.0, 1.0], [2.0, 3.0]]), exact=np.array([1.0, 4.0]))
    assert outcome.arrays.keys() == {"measured_beta_2", "exact_beta_2"} and not outcome.metrics


def test_a_distance_from_a_theory_has_the_error_of_its_networks():
    """The jackknife of a mean is its standard error, that of a maximum the error of its layer."""
    gap_SxL = np.array([[0.0, 0.3], [0.1, 0.5], [0.2, 0.1]])
    assert jackknife(lambda mean_L: mean_L[0], gap_SxL) == pytest.approx(over_seeds(gap_SxL[:, 0]))
    assert jackknife(largest, gap_SxL) == pytest.approx(over_seeds(gap_SxL[:, 1]))
    rms = jackknife(root_mean_square, gap_SxL)
    assert rms.mean == pytest.approx(np.hypot(0.1, 0.3) / 2**0.5) and 0 < rms.sem < 0.2
    assert np.isnan(jackknife(largest, gap_SxL[:1]).sem)


def test_a_grid_has_a_metric_for_each_cell_named_by_its_labels():
    outcome = Outcome()
    values = np.arange(12.0).reshape(2, 3, 2)
    outcome.grid("loss/{}/noise={:g}", values, ("a", "b"), (0.5, 1.0, 2.0))
    assert [*outcome.metrics][:2] == ["loss/a/noise=0.5", "loss/a/noise=1"]
    assert {name: metric.mean for name, metric in outcome.metrics.items()} == {
        f"loss/{a}/noise={noise}": values[i, k].mean()
        for i, a in enumerate("ab")
        for k, noise in enumerate(("0.5", "1", "2"))
    }
    with pytest.raises(ValueError):
        outcome.grid("loss/{}", values, ("a", "b"))
