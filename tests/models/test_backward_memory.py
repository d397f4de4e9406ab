"""The memory of the backward pass: fused attention, and recomputed blocks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.capture import capture, intervene
from jaxformer.core.errors import UserError
from jaxformer.models.decoder import decoder

SMALL = dict(vocab_size=11, length=7, width=8, layers=2, heads=2, mlp_width=32)
INIT = dict(init_std="fan_in", qk_init_std="fan_in", embed_init_std=1.0)
TOKENS = jax.random.randint(jax.random.key(1), (3, 7), 0, 11).at[1, 4:].set(0)
SCORED = jnp.array([[5, 0], [1, 3], [2, 2]], jnp.int32)


def build(**more):
    return decoder(**SMALL, **INIT, **more)


@pytest.fixture(scope="module")
def params():
    return jax.jit(build().init)(jax.random.key(0), TOKENS)["params"]


def saved_shapes(model, params):
    """Returns the shapes of all arrays that the backward pass needs."""

    def back(params):
        return jax.vjp(lambda p: model.apply({"params": p}, TOKENS), params)[1]

    return [leaf.shape for leaf in jax.tree.leaves(jax.eval_shape(back, params))]


@pytest.mark.parametrize(
    "more, scored",
    [
        ({}, None),
        pytest.param({"causal": False, "pad": 0}, SCORED, marks=pytest.mark.slow),
        pytest.param({}, SCORED, marks=pytest.mark.slow),
    ],
)
def test_fused_attention_has_the_same_gradients(params, more, scored):
    def both(model):
        def loss(p):
            logits = model.apply({"params": p}, TOKENS, scored)
            return jnp.sin(logits).sum(), logits

        return jax.jit(jax.grad(loss, has_aux=True))(params)

    one, two = both(build(**more)), both(build(**more, fused=True))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=2e-6)


def test_fused_attention_saves_no_weights_unless_they_are_captured(params):
    plain, fused = build(), build(fused=True)
    square = [shape for shape in saved_shapes(plain, params) if shape[-2:] == (7, 7)]
    assert square and not [s for s in saved_shapes(fused, params) if s[-2:] == (7, 7)]
    pattern = "block_[01]/attn/weights"
    one, two = (capture(model, params, TOKENS, names=[pattern]) for model in (plain, fused))
    assert len(one) == 2
    for name in one:
        np.testing.assert_array_equal(one[name], two[name])
    edits = {"block_0/attn/weights": lambda a: 0 * a}
    changed = intervene(fused, params, TOKENS, edits)
    assert np.abs(changed - fused.apply({"params": params}, TOKENS)).max() > 0.01


@pytest.mark.parametrize("scan", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_recomputed_activations_are_not_saved(params, scan):
    """Each choice of remat_keep saves more numbers than the one before."""

    def size(**more):
        return sum(map(np.prod, saved_shapes(build(scan=scan, **more), params)))

    sizes = [size(remat=True, remat_keep=keep) for keep in ("nothing", "dense", "products")]
    assert sizes[0] < sizes[1] < sizes[2] < size()


def test_an_unknown_choice_of_remat_keep_raises_a_one_line_error():
    with pytest.raises(UserError, match="Did you mean 'dense'"):
        build(remat_keep="dence")
