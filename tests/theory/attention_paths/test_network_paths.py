"""Paths through the heads of trained networks, by loops over every path; draws for ArviZ."""

import itertools
import sys
import types

import jax
import numpy as np
import pytest

from jaxformer import capture
from jaxformer.core.errors import UserError
from jaxformer.models.decoder import decoder
from theory import attention_paths
from theory.attention_paths.arviz_export import inference_data

TOKENS = jax.random.randint(jax.random.key(1), (3, 5), 0, 11)
MODEL = decoder(
    vocab_size=11,
    length=6,
    width=8,
    layers=2,
    heads=2,
    mlp_width=16,
    init_std="fan_in",
    qk_init_std="fan_in",
    embed_init_std=1.0,
)


@pytest.fixture(scope="module")
def params():
    return jax.jit(MODEL.init)(jax.random.key(0), TOKENS)["params"]


@pytest.fixture(scope="module")
def seen(params):
    names = ["embedded", "block_0/attn/weights", "block_1/attn/weights"]
    return [np.asarray(capture.capture(MODEL, params, TOKENS, names=names)[x]) for x in names]


READ = {"last": lambda x: x[:, -1], "first": lambda x: x[:, 0], "mean": lambda x: x.mean(1)}


@pytest.mark.parametrize("readout", READ)
def test_the_paths_of_a_decoder(readout, params, seen):
    x_BxTxn, *maps = seen
    found, heads = attention_paths.attentioned_of(MODEL, params, TOKENS, readout=readout)
    assert heads == (2, 2) and found.shape == (3, 4, 8)
    for path, (first, second) in enumerate(itertools.product(range(2), range(2))):
        mixed = maps[1][:, second] @ (maps[0][:, first] @ x_BxTxn)
        np.testing.assert_allclose(found[:, path], READ[readout](mixed), atol=1e-5)


def test_a_path_may_pass_a_layer_by(params, seen):
    x_BxTxn, first, _ = seen
    found, heads = attention_paths.attentioned_of(MODEL, params, TOKENS, skip=True)
    assert heads == (3, 3)
    np.testing.assert_allclose(found[:, 8], x_BxTxn[:, -1], atol=1e-6)
    np.testing.assert_allclose(found[:, 2], (first[:, 0] @ x_BxTxn)[:, -1], atol=1e-5)


def test_some_layers_alone(params, seen):
    x_BxTxn, _, second = seen
    found, heads = attention_paths.attentioned_of(MODEL, params, TOKENS, layers=(1,))
    assert heads == (2,)
    np.testing.assert_allclose(found, (second @ x_BxTxn[:, None])[:, :, -1], atol=1e-5)
    with pytest.raises(UserError, match="no block_2/attn/weights: it has 2 layers"):
        attention_paths.attentioned_of(MODEL, params, TOKENS, layers=(2,))


@pytest.mark.parametrize(
    ("tokens", "maps", "readout", "words"),
    [
        (np.zeros((2, 3)), (), "last", r"\(examples, length, n\) vectors, got shape \(2, 3\)"),
        (np.zeros((2, 3, 4)), (np.zeros((2, 2, 3, 4)),), "last", r"layer 1 must be \(2, heads, 3"),
        (np.zeros((2, 3, 4)), (), "last", "at least one layer"),
        (np.zeros((2, 3, 4)), (np.zeros((2, 2, 3, 3)),), "lst", "Did you mean 'last'"),
    ],
)
def test_wrong_maps_are_one_line(tokens, maps, readout, words):
    with pytest.raises(UserError, match=words):
        attention_paths.from_maps(tokens, maps, readout)


STATISTICS = {"energy": np.zeros((2, 3)), "num_steps": np.ones((2, 3), int)}


@pytest.mark.parametrize("old", [True, False])
def test_draws_are_handed_to_arviz_by_chain(old, monkeypatch):
    """A stand-in for ArviZ, which has two ways of taking them."""

    def before_1(*, posterior, sample_stats):
        return {"posterior": posterior, "sample_stats": sample_stats}

    arviz = types.SimpleNamespace(from_dict=before_1 if old else lambda data: data)
    monkeypatch.setitem(sys.modules, "arviz", arviz)
    U = np.arange(6 * 4).reshape(6, 2, 2)
    held = inference_data(U, None, STATISTICS)
    assert held["posterior"]["U"].shape == (2, 3, 2, 2) and set(held["posterior"]) == {"U"}
    np.testing.assert_array_equal(held["posterior"]["U"][1, 0], U[3])
    assert set(held["sample_stats"]) == {"energy", "n_steps"}
    with pytest.raises(UserError, match="2 x 3; got 5"):
        inference_data(U[:5], None, STATISTICS)


def test_without_arviz_it_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(UserError, match="pip install arviz"):
        inference_data(np.zeros((6, 2, 2)), None, STATISTICS)
