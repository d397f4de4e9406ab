"""Fused attention has the numbers of the plain product, and each platform has its kernel."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import tpu

from jaxformer.models.fused_attention import TILE, flash_attention, fused_attention


def inputs(dtype=jnp.float32, length=TILE):
    keys = jax.random.split(jax.random.key(0), 3)
    return [jax.random.normal(key, (2, length, 2, 8)).astype(dtype) for key in keys]


def plain(q, k, v):
    return jax.nn.dot_product_attention(q, k, v, is_causal=True)


def fused(q, k, v):
    return fused_attention(q, k, v, causal=True)


def test_numbers_and_gradients_are_those_of_the_plain_product():
    readout = jax.random.normal(jax.random.key(1), (2, TILE, 2, 8))

    def both(attend):
        loss = lambda *qkv: (attend(*qkv) * readout).sum()  # noqa: E731
        return jax.jit(jax.value_and_grad(loss, (0, 1, 2)))(*inputs())

    for a, b in zip(jax.tree.leaves(both(fused)), jax.tree.leaves(both(plain)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_a_program_has_the_kernel_of_its_platform():
    backward = jax.jit(jax.grad(lambda *qkv: fused(*qkv).sum(), (0, 1, 2))).trace(*inputs())
    for platform, expected in {"cpu": False, "cuda": False, "tpu": True}.items():
        text = backward.lower(lowering_platforms=(platform,)).as_text()
        assert ("tpu_custom_call" in text) == expected, platform
    # A length that is no multiple of the tile has no kernel on any platform.
    text = jax.jit(fused).trace(*inputs(length=7)).lower(lowering_platforms=("tpu",)).as_text()
    assert "tpu_custom_call" not in text


def test_the_backward_pass_keeps_no_weights():
    back = lambda *qkv: jax.vjp(fused, *qkv)[1]  # noqa: E731
    for dtype in (jnp.float32, jnp.bfloat16):
        saved = jax.tree.leaves(jax.eval_shape(back, *inputs(dtype)))
        assert saved and not [x.shape for x in saved if x.shape[-2:] == (TILE, TILE)]


def test_a_mask_needs_no_kernel(monkeypatch):
    """cuDNN would store a mask as T^2 biases, and JAX cannot map one that all heads share."""
    monkeypatch.setattr("jaxformer.models.fused_attention._traces", lambda *_: True)
    of_cudnn = []
    attention = jax.nn.dot_product_attention

    def recorded(*args, implementation=None, **options):
        of_cudnn.append(implementation == "cudnn")
        return attention(*args, **options)

    monkeypatch.setattr(jax.nn, "dot_product_attention", recorded)
    q, k, v = inputs(jnp.bfloat16)
    mask = jnp.tril(jnp.ones((2, 1, TILE, TILE), bool))
    for options, expected in (({"causal": True}, True), ({"mask_BxHxTxS": mask}, False)):
        of_cudnn.clear()
        jax.eval_shape(lambda *qkv, options=options: fused_attention(*qkv, **options), q, k, v)
        assert any(of_cudnn) == expected, options


def test_heads_share_keys_in_the_kernel_of_the_tpu():
    q, k, v = inputs()
    shared = k[:, :, :1], v[:, :, :1]
    traced = jax.jit(fused).trace(q, *shared)
    assert "tpu_custom_call" in traced.lower(lowering_platforms=("tpu",)).as_text()
    repeated = (jnp.repeat(x, 2, axis=2) for x in shared)
    np.testing.assert_allclose(fused(q, *shared), plain(q, *repeated), rtol=1e-5, atol=1e-5)


@pytest.mark.slow  # interprets the kernel
def test_the_kernel_of_the_tpu_computes_attention():
    with tpu.force_tpu_interpret_mode():
        out = flash_attention(*inputs(), causal=True)
    np.testing.assert_allclose(out, plain(*inputs()), rtol=1e-5, atol=1e-5)
