"""The classifier of documents: its pools, and logits that ignore padding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.capture import capture
from jaxformer.core.errors import UserError
from jaxformer.core.settings import DataSettings
from jaxformer.models import attention
from jaxformer.models.classifier import classifier, pooled
from jaxformer.tasks.classes import DocumentClass
from jaxformer.tasks.source import make_source
from jaxformer.tasks.task import TRAIN

SIZES = dict(vocab_size=9, length=8, width=8, layers=1, heads=2, mlp_width=8, classes=3, pad=8)
KINDS = {
    "causal": {},
    "softmax": dict(causal=False),
    "mixit": dict(causal=False, mixer="mixit", mixing_scale=0.4, learned_positions=True),
}


@pytest.mark.parametrize("pool", ["last", "first", "mean"])
def test_a_pool_of_the_real_tokens(pool):
    h = np.random.default_rng(0).normal(size=(4, 5, 2)).astype(np.float32)
    lengths = [5, 3, 1, 0]
    real = np.arange(5)[None] < np.array(lengths)[:, None]
    states = pooled(jnp.asarray(h), jnp.asarray(real), pool)
    for row, n, state in zip(h, lengths, states, strict=True):
        n = max(n, 1)
        expected = {"last": row[n - 1], "first": row[0], "mean": row[:n].mean(0)}[pool]
        np.testing.assert_allclose(state[0], expected, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_padding_does_not_change_the_logits(kind):
    """A text has the same logits with and without padding; other tokens change them."""
    model = classifier(**SIZES, **KINDS[kind], init_std="fan_in", pool="mean")
    text = jnp.array([[1, 5, 2, 7, 3]])
    padded = jnp.concatenate([text, jnp.full((1, 3), 8)], 1)
    params = jax.jit(model.init)(jax.random.key(0), padded)["params"]
    call = jax.jit(model.apply)
    short, long = (call({"params": params}, tokens) for tokens in (text, padded))
    assert short.shape == (1, 1, 3) and "unembed" not in params
    np.testing.assert_allclose(short, long, rtol=1e-5, atol=1e-6)
    assert np.isfinite(call({"params": params}, jnp.full((1, 8), 8))).all()  # an empty text
    assert np.abs(call({"params": params}, padded.at[0, 6].set(1)) - long).max() > 1e-3


def test_mixing_without_padding_is_the_centred_part_of_the_matrix():
    """Rows sum to 1, as for a shorter text without padding."""
    mix = attention.mixing_matrix(jax.random.key(0), 2, 6, 0.3, causal=False)
    real = jnp.array([[1, 1, 1, 1, 0, 0], [1] * 6], bool)
    result = np.asarray(attention.mixing_without_padding(mix, real, jnp.ones((2, 6, 1))))
    np.testing.assert_allclose(result.sum(-1), 1, rtol=1e-5)
    part = mix[:, :4, :4]
    np.testing.assert_allclose(
        result[0, :, :4, :4], part - (part.sum(-1, keepdims=True) - 1) / 4, rtol=1e-4, atol=1e-6
    )
    assert (result[0, :, :, 4:] == 0).all()
    np.testing.assert_allclose(result[1], mix, atol=1e-6)


@pytest.mark.parametrize("identity", [True, False])
def test_a_classifier_mixes_with_rows_that_sum_to_1_or_without_the_identity_to_0(identity):
    fields = KINDS["mixit"] | dict(mixing_identity=identity)
    model, tokens = classifier(**SIZES, **fields), jnp.array([[1, 5, 2, 7, 3, 8, 8, 8]])
    params = model.init(jax.random.key(0), tokens)["params"]
    (found,) = capture(model, params, tokens, names=["block_0/attn/weights"]).values()
    assert np.abs(found[..., :5]).min() > 0 and not found[..., 5:].any()
    np.testing.assert_allclose(found.sum(-1), float(identity), atol=1e-5)


def test_the_task_gives_documents_and_their_classes():
    task = DocumentClass(window=20)
    prepared, n = task.prepared, 50
    rows = task.rows(TRAIN, np.arange(n), np.zeros(n, int))
    inputs, targets, weights = task.batch(jnp.asarray(rows), None)
    assert targets.shape == weights.shape == (n, 1) and (targets[:, 0] == np.arange(n) % 2).all()
    documents, lengths = prepared.documents(np.arange(n), 20)
    np.testing.assert_array_equal(inputs, documents)
    assert task.sizes == dict(vocab_size=66, length=20, classes=2, pad=65)
    test = make_source(task, DataSettings(test_size=200), 4).heldout().test
    result = task.baselines(test)
    # Both ways round have the same symbols: only order tells them apart.
    assert abs(result["bag_of_words"] - 0.5) < 0.1 and result["best_constant"] == 0.5
    assert lengths.min() >= 10


def test_a_document_without_a_class_is_refused(monkeypatch):
    """Older versions wrote the class -1, which would select the last class."""
    task = DocumentClass(window=20)
    monkeypatch.setattr(
        type(task.prepared), "labels_of", lambda self, which: np.where(which, 1, -1)
    )
    with pytest.raises(UserError, match=r"1 of 4 documents of .* have no class"):
        task.rows(TRAIN, np.arange(4), np.zeros(4, int))


def test_impossible_options_raise_one_line_errors():
    with pytest.raises(UserError, match=r"leave task.documents at True"):
        DocumentClass(window=8, documents=False)
    with pytest.raises(UserError, match=r"unknown pool 'lst'. Did you mean 'last'"):
        classifier(**SIZES, pool="lst")
