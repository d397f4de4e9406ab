"""A decoder with `document_end` treats the documents of a window as if each stood alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.core.errors import UserError
from jaxformer.models import fused_attention as fused
from jaxformer.models.decoder import decoder

END, SIZES = 7, dict(vocab_size=8, length=16, width=8, layers=2, heads=2, mlp_width=16)
FIRST, SECOND = [1, 2, 3, 4, END], [5, 1, 1, 6, 2, END]
PACKED = jnp.asarray([[*FIRST, *SECOND, 3]])


@pytest.fixture(scope="module")
def params():
    init = dict(init_std="fan_in", qk_init_std=1.0, embed_init_std=1.0)
    return decoder(**SIZES, **init).init(jax.random.key(0), PACKED)["params"]


def logits(params, tokens, **fields):
    model = decoder(**SIZES, **{"document_end": END} | fields)
    return model.apply({"params": params}, jnp.asarray(tokens))


@pytest.mark.parametrize("fields", [{}, {"fused": True}, {"scan": True}], ids=str)
def test_each_document_has_the_logits_it_has_alone(params, fields):
    packed = logits(params, PACKED, **fields)
    alone = [logits(params, [part], document_end=-1) for part in (FIRST, SECOND, [3])]
    np.testing.assert_allclose(packed, jnp.concatenate(alone, 1), atol=1e-5)
    whole = logits(params, PACKED, document_end=-1)
    assert abs(packed - whole)[:, len(FIRST) :].max() > 0.01


def test_a_document_ends_within_a_cache_too(params):
    model, cache, parts = decoder(**SIZES, document_end=END), {}, []
    for part in (PACKED[:, :3], PACKED[:, 3:9], PACKED[:, 9:]):  # no part ends with a document
        out, state = model.apply({"params": params, **cache}, part, mutable=["cache"])
        cache = {"cache": state["cache"]}
        parts.append(out)
    np.testing.assert_allclose(jnp.concatenate(parts, 1), logits(params, PACKED), atol=1e-5)


def test_logits_at_positions_stay_within_documents(params):
    model, positions = decoder(**SIZES, document_end=END), jnp.asarray([[2, 7]])
    out = model.apply({"params": params}, PACKED, positions)
    np.testing.assert_allclose(out, logits(params, PACKED)[:, [2, 7]], atol=1e-5)


def test_fused_attention_has_the_same_gradients(params):
    def loss(params, fused):
        return jnp.square(logits(params, PACKED, fused=fused)).sum()

    plain, fast = (jax.grad(loss)(params, fused) for fused in (False, True))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-4), plain, fast)


def arrays(length):
    keys = jax.random.split(jax.random.key(1), 3)
    q, k, v = (jax.random.normal(key, (2, length, 2, 8)) for key in keys)
    numbers = jnp.asarray(np.arange(length)[None] // np.array([[5], [50]]))
    return q, k, v, (numbers, numbers)


def test_parts_of_the_queries_know_their_documents(monkeypatch):
    q, k, v, documents = arrays(24)
    expected = fused.fused_attention(q, k, v, causal=True, documents=documents)
    monkeypatch.setattr(fused, "LONG", 8)
    monkeypatch.setattr(fused, "QUERIES", 16)  # does not divide the length
    out = fused.fused_attention(q, k, v, causal=True, documents=documents)
    np.testing.assert_allclose(out, expected, atol=1e-6)


@pytest.mark.slow  # interprets the kernel of another device
def test_the_kernel_of_the_tpu_stays_within_documents():
    q, k, v, documents = arrays(fused.TILE)
    out = fused.flash_attention(q, k, v, True, documents, interpret=True)
    expected = fused.fused_attention(q, k, v, causal=True, documents=documents)
    np.testing.assert_allclose(out, expected, atol=1e-5)
    attend = jax.jit(lambda *x: fused.fused_attention(*x, causal=True, documents=documents))
    traced = attend.trace(q, k, v)
    for platform, has_kernel in {"tpu": True, "cpu": False, "cuda": False}.items():
        text = traced.lower(lowering_platforms=(platform,)).as_text()
        assert ("tpu_custom_call" in text) == has_kernel, platform


def test_wrong_ends_are_one_line_errors():
    with pytest.raises(UserError, match="below vocab_size 8, or -1, got 8"):
        decoder(**SIZES, document_end=8)
    with pytest.raises(UserError, match="needs softmax attention"):
        decoder(**SIZES, document_end=END, mixer="mixit")
