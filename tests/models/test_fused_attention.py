"""Fused attention has the numbers of the plain product, and each platform has its kernel."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.models import fused_attention as module
from jaxformer.models.decoder_spec import REMAT_POLICIES
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


def test_a_length_whose_gradient_cudnn_refuses_has_the_plain_product(monkeypatch):
    """JAX refuses odd lengths in the backward pass only, so such a model could not be trained."""
    attention = jax.nn.dot_product_attention

    @jax.custom_vjp
    def cudnn(q, k, v):
        return attention(q, k, v, is_causal=True)

    def refuse(saved, cotangent):
        raise NotImplementedError("Unsupported sequence length Q 9, KV 9.")

    cudnn.defvjp(lambda *qkv: (cudnn(*qkv), None), refuse)

    def with_cudnn(q, k, v, implementation=None, **options):
        return cudnn(q, k, v) if implementation == "cudnn" else attention(q, k, v, **options)

    monkeypatch.setattr(jax.nn, "dot_product_attention", with_cudnn)
    gradient = jax.jit(jax.grad(lambda *qkv: fused(*qkv).astype(jnp.float32).sum()))
    assert jnp.isfinite(gradient(*inputs(jnp.bfloat16, length=9))).all()


@pytest.mark.parametrize("mask", ["causal", "window", "padding"])
def test_long_texts_take_some_queries_at_a_time(mask, monkeypatch):
    """The last part is not full: 100 tokens, 16 queries at a time. Heads share keys."""
    monkeypatch.setattr(module, "QUERIES", 16)
    monkeypatch.setattr(module, "LONG", 32)
    length, readout = 100, jax.random.normal(jax.random.key(1), (2, 100, 2, 8))
    q, k, v = inputs(length=length)
    distance = jnp.arange(length)[:, None] - jnp.arange(length)[None]
    options = {
        "causal": {"causal": True},
        "window": {"mask_BxHxTxS": ((distance >= 0) & (distance < 9))[None, None]},
        "padding": {"mask_BxHxTxS": (jnp.arange(length) < 70)[None, None, None]},
    }[mask]

    def loss(attend, q, k, v):
        return (attend(q, k[:, :, :1], v[:, :, :1]) * readout).sum()

    def in_parts(*qkv):
        return fused_attention(*qkv, **options)

    def whole(q, k, v):
        given = {"is_causal": True} if mask == "causal" else {"mask": options["mask_BxHxTxS"]}
        return jax.nn.dot_product_attention(q, k, v, **given)

    got, want = (
        jax.jit(jax.value_and_grad(functools.partial(loss, attend), (0, 1, 2)))(q, k, v)
        for attend in (in_parts, whole)
    )
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=2e-5)
    if mask == "causal":
        text = str(jax.make_jaxpr(jax.grad(functools.partial(loss, in_parts)))(q, k, v))
        assert "16,100]" in text and "100,100]" not in text  # no weights of all queries


def test_gradients_of_keys_are_summed_in_float32_over_parts(monkeypatch):
    """512 parts each add the same gradient, of which bfloat16 would lose all after 256 terms."""
    monkeypatch.setattr(module, "QUERIES", 1)
    monkeypatch.setattr(module, "LONG", 1)
    q, k, v = (jnp.zeros((1, n, 1, 8), jnp.bfloat16) for n in (512, 2, 2))
    gradient = jax.jit(jax.grad(lambda v: fused_attention(q, k, v).astype(jnp.float32).sum()))(v)
    assert gradient.dtype == jnp.bfloat16 and (gradient == 256).all()


def test_heads_share_keys_in_the_kernel_of_the_tpu():
    q, k, v = inputs()
    shared = k[:, :, :1], v[:, :, :1]
    traced = jax.jit(fused).trace(q, *shared)
    assert "tpu_custom_call" in traced.lower(lowering_platforms=("tpu",)).as_text()
    repeated = (jnp.repeat(x, 2, axis=2) for x in shared)
    np.testing.assert_allclose(fused(q, *shared), plain(q, *repeated), rtol=1e-5, atol=1e-5)


def test_remat_that_keeps_linear_maps_keeps_the_output_of_the_kernel_of_the_tpu():
    """So the backward pass does not compute it again; it needs the row sums too."""
    shapes = {}
    for name, policy in REMAT_POLICIES.items():
        attend = jax.checkpoint(fused, policy=policy)
        back = lambda *qkv, attend=attend: jax.vjp(attend, *qkv)[1]  # noqa: E731
        shapes[name] = [x.shape for x in jax.tree.leaves(jax.eval_shape(back, *inputs()))]
    assert {(2, 2, TILE, 8), (2, 2, TILE)} <= set(shapes["dense"])
    assert (2, 2, TILE) not in shapes["nothing"]


def test_the_kernel_of_the_tpu_computes_attention():
    """Two blocks of queries and keys, whose heads may share keys, with gradients."""
    q, k, v = inputs(length=2 * TILE)
    readout = jax.random.normal(jax.random.key(1), q.shape)
    for heads in (1, 2):

        def both(attend, heads=heads):
            loss = lambda *qkv: (attend(*qkv) * readout).sum()  # noqa: E731
            return jax.jit(jax.value_and_grad(loss, (0, 1, 2)))(q, k[:, :, :heads], v[:, :, :heads])

        kernel = functools.partial(flash_attention, causal=True, interpret=True)
        for a, b in zip(jax.tree.leaves(both(kernel)), jax.tree.leaves(both(plain)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
