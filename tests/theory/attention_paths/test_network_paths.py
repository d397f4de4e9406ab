"""Paths through the heads of trained networks, by loops over every path; export to ArviZ."""

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
def activations(params):
    names = ["embedded", "block_0/attn/weights", "block_1/attn/weights"]
    found = jax.jit(lambda p: capture.capture(MODEL, p, TOKENS, names=names))(params)
    return [np.asarray(found[name]) for name in names]


READOUTS = {"last": lambda x: x[:, -1], "first": lambda x: x[:, 0], "mean": lambda x: x.mean(1)}


@pytest.mark.parametrize("readout", READOUTS)
def test_the_paths_of_a_decoder(readout, params, activations):
    x_BxTxn, *maps = activations
    xi, heads = attention_paths.attentioned_of(MODEL, params, TOKENS, readout=readout)
    assert heads == (2, 2) and xi.shape == (3, 4, 8)
    for path, (first, second) in enumerate(itertools.product(range(2), range(2))):
        mixed = maps[1][:, second] @ (maps[0][:, first] @ x_BxTxn)
        np.testing.assert_allclose(xi[:, path], READOUTS[readout](mixed), atol=1e-5)


def test_a_path_may_bypass_a_layer(params, activations):
    x_BxTxn, first, _ = activations
    xi, heads = attention_paths.attentioned_of(MODEL, params, TOKENS, skip=True)
    assert heads == (3, 3)
    np.testing.assert_allclose(xi[:, 8], x_BxTxn[:, -1], atol=1e-6)
    np.testing.assert_allclose(xi[:, 2], (first[:, 0] @ x_BxTxn)[:, -1], atol=1e-5)


def test_paths_of_some_layers_alone_are_read(params, activations):
    x_BxTxn, _, second = activations
    xi, heads = attention_paths.attentioned_of(MODEL, params, TOKENS, layers=(1,))
    assert heads == (2,)
    np.testing.assert_allclose(xi, (second @ x_BxTxn[:, None])[:, :, -1], atol=1e-5)
    with pytest.raises(UserError, match="no block_2/attn/weights: it has 2 layers"):
        attention_paths.attentioned_of(MODEL, params, TOKENS, layers=(2,))


def test_wrong_maps_are_one_line_errors():
    cases = [
        (np.zeros((2, 3)), (), "last", r"\(examples, length, n\) vectors, got shape \(2, 3\)"),
        (np.zeros((2, 3, 4)), (np.zeros((2, 2, 3, 4)),), "last", r"layer 1 must be \(2, heads, 3"),
        (np.zeros((2, 3, 4)), (), "last", "at least one layer"),
        (np.zeros((2, 3, 4)), (np.zeros((2, 2, 3, 3)),), "lst", "Did you mean 'last'"),
    ]
    for tokens, maps, readout, message in cases:
        with pytest.raises(UserError, match=message):
            attention_paths.from_maps(tokens, maps, readout)


STATISTICS = {"energy": np.zeros((2, 3)), "num_steps": np.ones((2, 3), int)}
DRAWS = np.arange(6 * 4.0).reshape(6, 2, 2)


@pytest.mark.parametrize("before_version_1", [True, False])
def test_both_interfaces_of_arviz_get_the_draws_by_chain(before_version_1, monkeypatch):
    def from_groups(*, posterior, sample_stats):
        return {"posterior": posterior, "sample_stats": sample_stats}

    from_dict = from_groups if before_version_1 else lambda groups: groups
    monkeypatch.setitem(sys.modules, "arviz", types.SimpleNamespace(from_dict=from_dict))
    groups = inference_data(DRAWS, None, STATISTICS)
    assert groups["posterior"]["U"].shape == (2, 3, 2, 2) and set(groups["posterior"]) == {"U"}
    np.testing.assert_array_equal(groups["posterior"]["U"][1, 0], DRAWS[3])
    assert set(groups["sample_stats"]) == {"energy", "n_steps"}
    with pytest.raises(UserError, match="2 x 3; got 5"):
        inference_data(DRAWS[:5], None, STATISTICS)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_arviz_summarises_the_draws():
    arviz = pytest.importorskip("arviz", reason="needs the extra jaxformer[diagnostics]")
    theta = np.random.default_rng(0).standard_normal((6, 3))
    data = inference_data(DRAWS, theta, STATISTICS)
    assert data["posterior"]["U"].shape == (2, 3, 2, 2)
    np.testing.assert_array_equal(data["posterior"]["U"].values[1, 0], DRAWS[3])
    np.testing.assert_array_equal(data["sample_stats"]["n_steps"].values, np.ones((2, 3)))
    means = arviz.summary(data, var_names=["theta"], round_to="none")["mean"]
    np.testing.assert_allclose(np.asarray(means, float), theta.mean(0))


def test_without_arviz_the_error_has_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(UserError, match="pip install arviz"):
        inference_data(DRAWS, None, STATISTICS)
