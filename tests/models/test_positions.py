"""The switch of rotary positions: what a decoder does without them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.capture import capture, names
from jaxformer.core.errors import UserError
from jaxformer.models import export
from jaxformer.models.decoder import decoder

SIZES = dict(vocab_size=32, length=16, width=32, heads=2, mlp_width=8)
INIT = dict(init_std="fan_in", qk_init_std="fan_in", embed_init_std=1.0)
TOKENS = jnp.arange(16)[None]


def distances(positions):
    """Returns log |X - mean token| / |X| after each of eight layers of pure attention."""
    bare = dict(residual_scale=0.0, use_mlp=False, use_norm=False, causal=False)
    with jax.enable_x64(True):  # float32 holds the tokens equal after three layers
        model = decoder(**SIZES, **INIT, **bare, layers=8, positions=positions)
        params = jax.jit(model.init)(jax.random.key(0), TOKENS)["params"]
        states = capture(model, params, TOKENS, names=[".*/states"])
        x_LxTxN = np.stack([states[f"block_{i}/states"][0] for i in range(8)])
    off_mean = x_LxTxN - x_LxTxN.mean(1, keepdims=True)
    norm = lambda x: np.linalg.norm(x, axis=(1, 2))  # noqa: E731
    return np.log(norm(off_mean) / norm(x_LxTxN))


@pytest.mark.slow
def test_ranks_collapse_doubly_exponentially_only_without_rotary_positions():
    """arXiv 2103.03404: without skips and MLPs the distance d becomes about d^3 in a layer."""
    without, rotary = distances("none"), distances("rotary")
    # The logarithm more than doubles until float64 cannot tell the tokens apart.
    assert without[1] < -2 and without[2] < 2 * without[1] and without[3] < 2 * without[2]
    # Rotary positions keep the queries' keys apart, so that each layer takes off the same.
    steps = np.diff(rotary)[3:]
    assert (steps < -3).all() and steps.min() > 1.5 * steps.max()


def test_tokens_without_positions_may_change_places():
    swapped = TOKENS[:, ::-1]
    for positions, is_equal in (("none", True), ("rotary", False)):
        model = decoder(**SIZES, **INIT, layers=2, causal=False, positions=positions)
        params = jax.jit(model.init)(jax.random.key(0), TOKENS)["params"]
        apply = jax.jit(model.apply)
        one, two = (apply({"params": params}, tokens) for tokens in (TOKENS, swapped))
        assert np.allclose(one, two[:, ::-1], atol=1e-4) == is_equal


def test_a_cache_continues_a_text_without_positions():
    model = decoder(**SIZES, **INIT, layers=2, positions="none")
    params = jax.jit(model.init)(jax.random.key(0), TOKENS)["params"]
    whole = jax.jit(model.apply)({"params": params}, TOKENS)
    _, cache = model.apply({"params": params}, TOKENS[:, :9], mutable=["cache"])
    rest, _ = model.apply({"params": params, **cache}, TOKENS[:, 9:], mutable=["cache"])
    np.testing.assert_allclose(rest, whole[:, 9:], rtol=1e-5, atol=1e-5)


def test_the_switch_is_checked_and_known_to_captures_and_export():
    with pytest.raises(UserError, match="unknown positions 'learned'"):
        decoder(**SIZES, layers=1, positions="learned")
    odd = SIZES | {"width": 6}  # heads of three dimensions, which cannot be rotated
    with pytest.raises(UserError, match="rotary positions need an even head dimension"):
        decoder(**odd, layers=1)
    model = decoder(**odd, layers=1, positions="none")
    assert not [name for name in names(model) if "turned" in name]
    with pytest.raises(UserError, match="has no rotary positions"):
        export.check(model)
