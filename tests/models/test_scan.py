"""A scan over blocks has the same parameters, logits, gradients and captures."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.capture import capture, names
from jaxformer.core import paths
from jaxformer.models.decoder import decoder

SMALL = dict(vocab_size=11, length=7, width=8, layers=3, heads=2, mlp_width=16)
INIT = dict(init_std="fan_in", qk_init_std="fan_in", embed_init_std=1.0)
MIXERS = {
    "softmax": dict(mixer="softmax", use_bias=True),
    "mixit": dict(mixer="mixit", mixing_scale=0.5, learned_positions=True),
}
TOKENS = jax.random.randint(jax.random.key(1), (3, 6), 0, 11, jnp.int32)
SCORED = jnp.array([[5, 0], [1, 3], [2, 2]], jnp.int32)


@pytest.fixture(scope="module", autouse=True)
def x64():
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module", params=["softmax", pytest.param("mixit", marks=pytest.mark.slow)])
def pair(request):
    """Returns (unscanned model, scanned model, parameters)."""
    numbers = SMALL | INIT | MIXERS[request.param]
    plain, scanned = decoder(**numbers), decoder(**numbers, scan=True)
    return plain, scanned, jax.jit(plain.init)(jax.random.key(0), TOKENS)["params"]


def test_parameters_keep_addresses_and_bits(pair):
    _, scanned, params = pair
    again = jax.jit(scanned.init)(jax.random.key(0), TOKENS)["params"]
    old, new = paths.flatten(params), paths.flatten(again)
    assert list(old) == list(new)
    for path, leaf in old.items():
        np.testing.assert_array_equal(new[path], leaf)


@pytest.mark.parametrize(
    "scored, remat", [pytest.param(None, False, marks=pytest.mark.slow), (SCORED, True)]
)
def test_logits_and_gradients_are_equal(pair, scored, remat):
    """They agree up to rounding in float64, with and without remat and scored positions."""
    plain, scanned, params = pair
    scanned = type(scanned)(replace(scanned.spec, remat=remat))

    def both(model):
        def loss(p):
            logits = model.apply({"params": p}, TOKENS, scored)
            return jnp.sin(logits).sum(), logits

        return jax.jit(jax.grad(loss, has_aux=True))(params)

    (want, want_logits), (got, got_logits) = both(plain), both(scanned)
    assert got_logits.dtype == jnp.float64
    np.testing.assert_allclose(got_logits, want_logits, rtol=0, atol=1e-12)
    for path, leaf in paths.flatten(want).items():
        np.testing.assert_allclose(paths.flatten(got)[path], leaf, rtol=0, atol=1e-12, err_msg=path)
        if not path.startswith("positions"):
            assert np.abs(leaf).max() > 1e-3


def test_a_scanned_model_has_the_captures_of_its_blocks(pair):
    """Captures have all addresses and values of the unscanned model."""
    plain, scanned, params = pair
    assert set(names(scanned, params, TOKENS)) == set(names(plain, params, TOKENS))
    patterns = ["block_[0-9]+/states", "block_1/attn/weights", "final"]
    want, got = jax.jit(
        lambda p: [capture(model, p, TOKENS, names=patterns) for model in (plain, scanned)]
    )(params)
    assert set(got) == set(want)
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, rtol=0, atol=1e-12)


def test_the_program_has_one_body_for_the_blocks(pair):
    """The number of matrix products in the program does not depend on the number of layers."""
    _, scanned, _ = pair

    def products(layers):
        model = type(scanned)(replace(scanned.spec, layers=layers))
        shapes = jax.eval_shape(model.init, jax.random.key(0), TOKENS)
        return jax.jit(model.apply).lower(shapes, TOKENS).as_text().count("dot_general")

    assert products(3) == products(6)


def test_a_single_layer_is_not_scanned(pair):
    _, scanned, _ = pair
    one = type(scanned)(replace(scanned.spec, layers=1))
    shapes = jax.eval_shape(one.init, jax.random.key(0), TOKENS)
    assert jax.eval_shape(one.apply, shapes, TOKENS, SCORED).shape == (3, 2, 11)
