"""The lines of an anatomy report from theory agree with the theory and with finite networks."""

import re
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.core.settings import DataSettings
from jaxformer.models.attention_paths import attention_paths
from jaxformer.models.decoder import decoder
from jaxformer.studies.anatomy import subject
from jaxformer.tasks.retrieval import Retrieval
from jaxformer.tasks.task import Batch, OneAnswer, Scores
from theory import anatomy as theory
from theory import attention_paths as paths_theory
from theory import covariance_sde

TOKENS, DIMENSION, MARK = 3, 6, 4.0
NUMBER = r"[\d.]+"


@dataclass(frozen=True)
class Signed(OneAnswer):
    """The label is the sign along axis 1 of the token that is marked along axis 0."""

    vocab_size = 0
    length = TOKENS
    size = 1000  # tasks of vectors list their examples
    held_out = True

    def blank(self):
        return jnp.zeros((1, TOKENS, DIMENSION))

    def example(self, key, index):
        noise_key, label_key = jax.random.split(key)
        label = jax.random.bernoulli(label_key).astype(jnp.int32)
        tokens = jax.random.normal(noise_key, (TOKENS, DIMENSION)).at[:, 0].set(0.0)
        tokens = tokens.at[0, :2].set(jnp.array([MARK, 0.0]) + (2.0 * label - 1) * jnp.eye(2)[1])
        return Batch(tokens, label[None], jnp.ones(1))

    def metrics(self, logits_BxKxV, batch):
        target_B, weight_B = 2.0 * batch.targets[:, 0] - 1, batch.weights[:, 0]
        is_right = ((logits_BxKxV > 0) == (target_B > 0)).astype(weight_B.dtype)
        return {
            "loss": Scores((logits_BxKxV - target_B) ** 2, weight_B),
            "accuracy": Scores(is_right, weight_B),
        }

    def baselines(self, batch):
        return {"constant": 0.5}


@pytest.fixture(scope="module")
def signed():
    """Returns a subject and parameters whose head 0 attends to the marked token, head 1 to all."""
    model = attention_paths(heads=(2,), width=10, length=TOKENS)
    data = DataSettings(test_size=100, validation_size=10)
    what = subject.of_task(Signed(), model, steps=4, data=data)
    params = jax.jit(what.network.init)(jax.random.key(0))
    query = np.zeros((DIMENSION, 2, 1), np.float32)
    key = query.copy()
    key[0, 0] = 10  # head 0 prefers the marked token for every query
    query[1:, 0] = 0.01
    attn = params["block_0"]["attn"] | {"key": {"kernel": jnp.asarray(key)}}
    return what, params | {"block_0": {"attn": attn | {"query": {"kernel": jnp.asarray(query)}}}}


def test_head_scores_are_those_of_the_theory(signed):
    what, params = signed
    batch = what.network.data.heldout().test
    tokens = np.asarray(batch.inputs, np.float64)
    # Attention by hand: the query is the last token, the scores have the prior's 1/sqrt(n) twice.
    kernels = {name: np.asarray(x["kernel"]) for name, x in params["block_0"]["attn"].items()}
    query, key = (
        np.einsum("btn,nhg->bthg", tokens, kernels[name]) / DIMENSION**0.5
        for name in ("query", "key")
    )
    scores = np.einsum("bhg,bshg->bhs", query[:, -1], key)
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    attentioned = np.einsum("bhs,bsn->bhn", weights, tokens)
    labels = 2.0 * np.asarray(batch.targets)[:, 0] - 1
    with jax.enable_x64(True):
        solution = paths_theory.order_parameter(attentioned, labels, 10, theory.TEMPERATURE, (2,))
        (expected,) = paths_theory.head_scores(solution.U, (2,))

    lead, line = theory.lines(what, params)
    expected = np.asarray(expected)
    assert expected[0] == 1 > expected[1]  # the label is seen by head 0
    assert "width 10" in lead and "100 examples" in lead
    by_theory, by_weights = re.findall(rf"({NUMBER}), ({NUMBER}) (?:by|in)", line)
    np.testing.assert_allclose([float(x) for x in by_theory], expected, atol=0.006)
    values = kernels["value"] / 10**0.5
    readout = np.asarray(params["readout"]["kernel"]) / 10**0.5
    v = np.einsum("iho,o->hi", values, readout)
    (weighed,) = paths_theory.head_scores(jnp.asarray(v @ v.T), (2,))
    np.testing.assert_allclose([float(x) for x in by_weights], weighed, atol=0.006)
    assert theory.lines(what) == []  # without a trained network


def test_correlations_are_those_of_random_networks():
    sizes = {"width": 32, "layers": 3, "heads": 2, "mlp_width": 64, "mixer": "mixit"}
    task = Retrieval(max_pairs=2, vocab=16)
    model = decoder(**task.sizes, **sizes, mixing_scale="head", learned_positions=True)
    what = subject.of_task(task, model)
    (line,) = theory.lines(what)
    rms, factor = (float(x) for x in re.search(rf"±({NUMBER}), .* of ({NUMBER}) in", line).groups())
    assert f"mean square of {task.length} tokens" in line
    mixing = covariance_sde.Mixing(causal=True, heads=2, output_projection=True, scale="head")
    networks = covariance_sde.measure(
        jax.random.key(1),
        jnp.eye(task.length),
        *(32, 3, 1000),
        mixing=mixing,
        network=covariance_sde.Network(),
    )
    measured_rms, spread = theory.sde_numbers(networks)
    # The SDE is the limit of large width and depth: at three layers it is right to a tenth.
    assert rms == pytest.approx(measured_rms, rel=0.1)
    assert np.log(factor) == pytest.approx(spread, rel=0.15)
    assert rms > 0.1 and factor > 1.05


def test_a_softmax_decoder_has_the_advice_on_its_start():
    what = subject.of_task(Retrieval(max_pairs=2, vocab=16), width=16)
    found = theory.lines(what)
    assert found[0].startswith("At initialisation") and any("Rank:" in line for line in found)
