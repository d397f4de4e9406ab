"""Random heads as features: order, linearity, and the error of a readout."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.papers.mixit import universality
from experiments.run import main


@pytest.fixture(autouse=True)
def x64():
    with jax.enable_x64(True):
        yield


def random_inputs(shape=(3, 5, 4)):
    return jax.random.uniform(jax.random.key(1), shape, minval=-1.0)


def mixes(arm, u, heads=2):
    """Returns the outputs of the heads, (B, T, H, D), without the 1 and the token."""
    features = universality.features(arm, heads, 1.0, jax.random.key(0), u)
    np.testing.assert_allclose(features[..., 1:5], u)
    return features[..., 5:].reshape(*u.shape[:2], heads, u.shape[-1])


@pytest.mark.parametrize("arm", universality.ARMS)
def test_features_are_causal_nested_and_begin_with_the_first_token(arm):
    u = random_inputs()
    g = mixes(arm, u)
    np.testing.assert_allclose(g[:, 0], jnp.broadcast_to(u[:, :1], (3, 2, 4)), atol=1e-12)
    np.testing.assert_allclose(mixes(arm, u.at[:, 3:].set(0.3))[:, :3], g[:, :3], atol=1e-12)
    np.testing.assert_allclose(mixes(arm, u, heads=1), g[:, :, :1], atol=1e-12)


def test_which_arms_see_order_and_which_are_linear():
    u = random_inputs()
    swapped = u[:, jnp.array([1, 0, 2, 3, 4])]
    order = {arm: jnp.abs(mixes(arm, u) - mixes(arm, swapped))[:, 2:].max() for arm in ARMS}
    assert order["frozen_qk"] < 1e-12
    assert order["frozen_qk_rotary"] > 1e-3 and order["mixit"] > 1e-3
    nonlinearity = {arm: jnp.abs(mixes(arm, 2 * u) - 2 * mixes(arm, u)).max() for arm in ARMS}
    assert nonlinearity["mixit"] < 1e-12
    assert nonlinearity["frozen_qk"] > 1e-3 and nonlinearity["frozen_qk_rotary"] > 1e-3


ARMS = tuple(universality.ARMS)


def test_the_targets_equal_sums_written_by_hand():
    u = random_inputs((2, 4, 3))
    lookup, maximum, previous, pointwise = jnp.moveaxis(universality.targets(u), 2, 0)
    np.testing.assert_allclose(lookup[:, 0], 0, atol=1e-12)
    np.testing.assert_allclose(lookup[:, 1], u[:, 0], atol=1e-12)
    weights = np.exp(4 * np.einsum("bd,bsd->bs", u[:, 3], u[:, :3]))
    expected = np.einsum("bs,bsd->bd", weights / weights.sum(1, keepdims=True), u[:, :3])
    np.testing.assert_allclose(lookup[:, 3], expected, atol=1e-12)
    np.testing.assert_allclose(maximum[:, 2], np.asarray(u[:, :3]).max(1))
    np.testing.assert_allclose(previous[:, 1:], u[:, :-1])
    np.testing.assert_allclose(pointwise, np.sin(np.pi * np.asarray(u)))


def test_a_readout_of_the_targets_themselves_has_no_error():
    """A constant has the error 1, in units of the variance."""

    def phi(u):
        y = universality.targets(u).reshape(*u.shape[:2], -1)
        return jnp.concatenate([jnp.ones((*u.shape[:2], 1)), y], axis=-1)

    used = jnp.array([[True] + 8 * [False], 9 * [True]])
    problem = universality.Problem(4, 2, 500, 250, 1.0, 1e-9)
    errors = universality._errors(phi, used, problem, jax.random.key(0))
    np.testing.assert_allclose(errors[0, [0, 2, 3]], 1, atol=0.02)
    np.testing.assert_allclose(errors[1], 0, atol=1e-6)


@pytest.mark.parametrize("field, value", [("heads", "(4,1)"), ("mlp_heads", "()"), ("train", "0")])
def test_a_wrong_setting_names_the_field(field, value, tmp_path, capsys):
    options = (f"--config.figure.{field}={value}", f"--workdir={tmp_path / 'run'}")
    assert main(["--config=configs/mixit/universality.py:scale=tiny", *options]) == 2
    assert "figure." in capsys.readouterr().err


@pytest.mark.slow
def test_the_verdicts_at_a_third_of_small(tmp_path):
    changes = ("n_seeds=1", "figure.train=2000", "figure.relu_features=256")
    options = [f"--config.{change}" for change in changes]
    config = "--config=configs/mixit/universality.py:scale=small"
    assert main([config, *options, f"--workdir={tmp_path / 'run'}"]) == 0
    metrics = json.loads((tmp_path / "run/result.json").read_text())["metrics"]
    verdicts = {name: m["mean"] for name, m in metrics.items() if name.startswith("verdict/")}
    assert len(verdicts) == 4 and all(verdicts.values()), verdicts
