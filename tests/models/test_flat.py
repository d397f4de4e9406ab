"""Linear maps with one axis of rows: equal bits, and weight gradients over a single axis."""

import jax
import jax.extend.core as core
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.models.decoder import decoder
from jaxformer.models.half_precision import matrix_product
from jaxformer.models.recall import recall

SIZES = dict(vocab_size=7, length=5, width=8)
MODELS = {
    "decoder": decoder(**SIZES, layers=1, heads=2, mlp_width=16),
    "recall": recall(**SIZES),
}
TWO_AXES = {"decoder": 0, "recall": 2}  # a transposed kernel in each layer, whose bits must stay
TOKENS = jnp.zeros((3, 5), jnp.int32)


def products(program):
    """Iterates over every dot_general of a jaxpr and its inner jaxprs."""
    for step in program.eqns:
        if step.primitive.name == "dot_general":
            yield step
        for inside in jax.tree.leaves(
            dict(step.params), is_leaf=lambda x: isinstance(x, core.ClosedJaxpr)
        ):
            if isinstance(inside, core.ClosedJaxpr):
                yield from products(inside.jaxpr)


@pytest.mark.parametrize("name", MODELS)
def test_every_product_with_a_weight_has_one_axis_of_rows(name):
    """A gradient of (B, T, N) inputs contracts two axes, which needs a transposed copy."""
    model = MODELS[name]
    params = jax.eval_shape(model.init, jax.random.key(0), TOKENS)
    gradient = jax.grad(lambda p: model.apply(p, TOKENS).sum())
    steps = [*products(jax.make_jaxpr(gradient)(params).jaxpr)]
    contracted = [step.params["dimension_numbers"][0][0] for step in steps]
    assert len(steps) > 10 and sum(len(axes) > 1 for axes in contracted) == TWO_AXES[name]


def test_flat_products_have_the_bits_of_three_axes():
    keys = jax.random.split(jax.random.key(0), 3)
    x, w = jax.random.normal(keys[0], (8, 8, 16)), jax.random.normal(keys[1], (16, 24))
    readout = jax.random.normal(keys[2], (8, 8, 24))

    def gradients(product):
        return jax.jit(jax.value_and_grad(lambda x, w: (product(x, w) * readout).sum(), (0, 1)))(
            x, w
        )

    ours, plain = gradients(matrix_product), gradients(lambda x, w: x @ w)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(plain), strict=True):
        np.testing.assert_array_equal(a, b)


def test_half_precision_is_summed_in_float32():
    """In bfloat16 a sum of ones stops at 256, because 256 + 1 rounds to 256."""
    keys = jax.random.split(jax.random.key(1), 3)
    shapes = (2, 3, 512), (512, 4), (2, 3, 4)
    x, w, given = (
        jax.random.normal(key, shape).astype(jnp.bfloat16)
        for key, shape in zip(keys, shapes, strict=True)
    )
    np.testing.assert_array_equal(matrix_product(jnp.ones_like(x), jnp.ones_like(w)), 512)
    traced = jax.jit(lambda x, w: jax.vjp(matrix_product, x, w)[1](given)).trace(x, w)
    for platform, dtype in {"cpu": "f32", "tpu": "bf16", "cuda": "bf16"}.items():
        text = traced.lower(lowering_platforms=(platform,)).as_text()
        results = [line.split("-> ")[1] for line in text.splitlines() if "dot_general" in line]
        assert len(results) == 2 and all(f"x{dtype}>" in result for result in results), platform

    out, back = jax.vjp(matrix_product, x, w)
    x64, w64, given64 = (np.asarray(leaf, float) for leaf in (x, w, given))
    exact = x64 @ w64, given64 @ w64.T, np.einsum("btn,btm->nm", x64, given64)
    for a, b in zip((out, *back(given)), exact, strict=True):
        assert a.dtype == jnp.bfloat16
        np.testing.assert_allclose(np.asarray(a, float), b, rtol=2**-8, atol=1e-5)
