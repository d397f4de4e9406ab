"""A model that breaks the protocol is a one-line error before a wrong loss is computed."""

import functools
from types import SimpleNamespace
from typing import NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer import build
from jaxformer.core.errors import UserError
from jaxformer.data import images
from jaxformer.models.attention_paths import attention_paths
from jaxformer.models.decoder import decoder
from jaxformer.models.encoder import encoder
from jaxformer.models.model import check_logits, check_model
from jaxformer.models.recall import recall
from jaxformer.tasks.oneshot import OneShot
from jaxformer.tasks.retrieval import Retrieval
from jaxformer.training.step import task_scores

TASK = Retrieval(max_pairs=3, vocab=16)
SIZES = {"vocab_size": 16, "length": TASK.length, "width": 8}
MODELS = {
    "decoder": lambda **more: decoder(
        **SIZES, layers=2, heads=2, mlp_width=16, init_std="fan_in", qk_init_std="fan_in", **more
    ),
    "mixit": lambda **more: decoder(
        **SIZES, layers=2, heads=2, mlp_width=16, mixer="mixit", init_std="fan_in", **more
    ),
    "encoder": lambda **more: encoder(**SIZES, layers=2, heads=2, beta=1.0, **more),
    "recall": lambda **more: recall(**SIZES, **more),
}


@functools.cache
def built(name, causal=None):
    """Returns a model and its initial parameters; `causal=None` is its default."""
    options = {} if causal in (None, MODELS[name]().spec.causal) else {"causal": causal}
    if causal is not None and not options:
        return built(name)
    model = MODELS[name](**options)
    return model, jax.jit(model.init)(jax.random.key(0), TASK.blank())


class BagSpec(NamedTuple):
    vocab_size: int = 16
    length: int = 9
    causal: bool = False


class Bag(nn.Module):
    """Counts the tokens of the whole sequence and ignores `positions`."""

    spec: BagSpec = BagSpec()

    @nn.compact
    def __call__(self, tokens, positions=None):
        counts = jax.nn.one_hot(tokens, 16).mean(1, keepdims=True)
        return nn.Dense(self.spec.vocab_size)(jnp.broadcast_to(counts, (*tokens.shape, 16)))


class WithoutPositions(Bag):
    """A model without the argument `positions`."""

    @nn.compact
    def __call__(self, tokens):
        return nn.Dense(16)(jax.nn.one_hot(tokens, 16))


def scores(model, task=TASK, examples=8):
    """Returns the shapes of a task's scores without computing them."""

    def score(keys):
        batch = jax.vmap(task.example)(keys, jnp.arange(examples))
        params = model.init(keys[0], task.blank())["params"]
        return task_scores(lambda p, x, at: model.apply({"params": p}, x, at), task, params, batch)

    return jax.eval_shape(score, jax.random.split(jax.random.key(0), examples))


@pytest.mark.parametrize("name", MODELS)
def test_every_model_of_tokens_meets_the_protocol(name):
    model, params = built(name)
    check_model(model)
    assert scores(model)["loss"].value.shape == (8,)
    tokens = jax.random.randint(jax.random.key(1), (3, 7), 0, 16)
    positions = jnp.array([[6, 0], [1, 1], [2, 5]])
    full, scored = (jax.jit(model.apply)(params, tokens, at) for at in (None, positions))
    assert full.shape == (3, 7, 16) and full.std() > 1e-3
    expected = np.take_along_axis(np.asarray(full), np.asarray(positions)[..., None], 1)
    np.testing.assert_allclose(scored, expected, atol=2e-6)


@pytest.mark.parametrize("name", MODELS)
def test_parameters_on_the_host_may_be_used_inside_jit(name):
    """`jaxformer.load` gives NumPy arrays, which a tracer cannot index."""
    model, params = built(name)
    tokens, positions = jnp.arange(14).reshape(2, 7), jnp.array([[6], [3]])
    host, device = (
        jax.jit(lambda x, at, p=p: model.apply(p, x, at))(tokens, positions)
        for p in (jax.device_get(params), params)
    )
    chex.assert_trees_all_close(host, device, atol=1e-6)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_gradients_reach_exactly_the_tokens_that_may_be_attended_to(name, causal):
    """d(logits at t) / d(embedding of token s): exactly 0 for s > t if causal, else never 0."""
    model, variables = built(name, causal)
    params = variables["params"]
    tokens_1xT = jnp.arange(6)[None]  # distinct: a row of the table is a position

    @jax.jit
    @jax.jacobian
    def of_table(table):
        merged = params | {"embed": {"embedding": table}}
        return model.apply({"params": merged}, tokens_1xT)[0].sum(-1)

    # The sum of normalised logits may not move along every row: take absolute values.
    flow_TxS = np.abs(of_table(params["embed"]["embedding"])[:, :6]).sum(-1)
    later = np.triu(np.ones((6, 6), bool), 1)
    assert (flow_TxS[~later] > 0).all()
    assert (flow_TxS[later] == 0).all() if causal else (flow_TxS[later] > 0).all()
    assert model.spec.causal is causal


def test_the_default_of_causal_follows_the_papers():
    assert {name: make().spec.causal for name, make in MODELS.items()} == {
        "decoder": True,
        "mixit": True,
        "encoder": False,
        "recall": True,
    }


def test_a_model_that_ignores_positions_is_refused_with_both_shapes():
    check_model(Bag())  # the signature is right, the shape of the logits is not
    with pytest.raises(UserError, match=r"must give \(8, 1, 16\) .*, got \(8, 7, 16\)") as error:
        scores(Bag())
    assert "ignore its argument `positions`?" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "logits, targets, vocab_size, message",
    [
        ((8, 1, 12), (8, 1), 16, "was it built for a vocabulary of 12"),
        ((8, 16), (8, 1), 16, r"\(8, 1, 16\) .*, got \(8, 16\): see the protocol"),
        ((8, 1), (8, 1), 0, r"\(8,\) \(examples\), got \(8, 1\)"),
    ],
)
def test_logits_of_a_wrong_shape_raise_one_line_errors(logits, targets, vocab_size, message):
    with pytest.raises(UserError, match=message):
        check_logits(jnp.zeros(logits), targets, vocab_size)


def test_a_model_without_positions_or_spec_raises_a_one_line_error():
    with pytest.raises(
        UserError, match=r"WithoutPositions must be called as \(tokens, positions=None\)"
    ):
        check_model(WithoutPositions())
    with pytest.raises(UserError, match=r"Dense.spec must .*got NoneType without vocab_size.*wrap"):
        check_model(nn.Dense(3))


def test_a_task_of_vectors_needs_one_number_for_each_example():
    task = OneShot(images.glyphs(0, 6, 4, 16))
    # Built from a config without dtypes.
    section = {"name": "attention_paths", "heads": (2, 2), "width": 6, "readout": "mean"}
    model = build.model(SimpleNamespace(model=section), task)
    assert model == attention_paths(
        heads=(2, 2), width=6, readout="mean", length=task.length, vocab_size=0
    )
    check_model(model)
    assert scores(model, task, 5)["loss"].value.shape == (5,)
    vectors = encoder(vocab_size=0, length=12, width=192, layers=1, heads=2, beta=1.0)
    with pytest.raises(UserError, match=r"must give \(5,\) .*got \(5, 12, 192\)"):
        scores(vectors, task, 5)


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("width", 16.0, "DecoderSpec.width must be a whole number, got 16.0"),
        ("heads", True, "DecoderSpec.heads must be a whole number, got True"),
        ("causal", 1, "DecoderSpec.causal must be True or False, got 1"),
        ("depth_alpha", "x", "DecoderSpec.depth_alpha must be a number, got 'x'"),
    ],
)
def test_a_number_of_the_wrong_type_is_a_one_line_error(name, value, message):
    numbers = SIZES | {"layers": 2, "heads": 2, "mlp_width": 16, name: value}
    with pytest.raises(UserError, match=message):
        decoder(**numbers)
