"""User modules of Flax Linen and NNX as models: rules apply, and frozen parameters stay equal."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jaxformer
from jaxformer import capture, surgery
from jaxformer.core import paths
from jaxformer.core.errors import UserError
from jaxformer.models.wrap import wrap
from jaxformer.tasks.retrieval import Retrieval

TASK = Retrieval(max_pairs=3, vocab=16)
SIZES = {"vocab_size": 16, "length": TASK.length}
FROZEN_QK = ((r".*/attn/(query|key)/.*", "frozen"), (".*", "train"))


class NNXBlock(nnx.Module):
    def __init__(self, rngs):
        self.attn = nnx.MultiHeadAttention(2, 16, decode=False, rngs=rngs)
        self.mlp = nnx.Linear(16, 16, rngs=rngs)

    def __call__(self, x):
        x = x + self.attn(x, mask=nnx.make_causal_mask(x[..., 0]))
        return x + nnx.relu(self.mlp(x))


class NNXNet(nnx.Module):
    def __init__(self, rngs, outputs=16):
        self.embed = nnx.Embed(16, 16, rngs=rngs)
        self.blocks = nnx.List([NNXBlock(rngs) for _ in range(2)])
        self.unembed = nnx.Linear(16, outputs, rngs=rngs)

    def __call__(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.unembed(x)


class LinenNet(nn.Module):
    outputs: int = 16

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(16, 16, name="embed")(tokens)
        return nn.Dense(self.outputs, name="unembed")(nn.relu(nn.Dense(16, name="mlp")(x)))


def test_a_module_has_one_identity_in_all_processes():
    activations = [partial(lambda x, c: c * x, c=2) for _ in range(2)]  # two addresses
    first, second = (wrap(nn.Sequential([act]), **SIZES).spec.module for act in activations)
    assert first == second and "c=2" in first


MODULES = {
    "nnx": (NNXNet, FROZEN_QK),
    "linen": (LinenNet(), (("embed/.*", "frozen"), (".*", "train"))),
}


@pytest.mark.parametrize("kind", [pytest.param("nnx", marks=pytest.mark.slow), "linen"])
def test_a_wrapped_module_trains_and_its_frozen_weights_keep_their_bits(kind):
    module, rules = MODULES[kind]
    model = jaxformer.wrap(module, **SIZES)
    options = {"batch_size": 8, "seeds": 2, "progress": False, "log_every": 2}
    run = jaxformer.train(TASK, model, rules, steps=4, **options)
    members = run.trained.session.setup.population
    for seed, key in enumerate(members.init_keys()):
        before = paths.flatten(jax.jit(model.init)(key, TASK.blank())["params"])
        after = paths.flatten(run.member(seed))
        assert list(before) == list(after)
        frozen = [path for path in after if paths.matches(rules[0][0], path)]
        assert 0 < len(frozen) < len(after)
        for path in after:
            same = (np.asarray(before[path]) == np.asarray(after[path])).all()
            assert same == (path in frozen), path
    first, second = (paths.flatten(run.member(i)) for i in (0, 1))
    assert (first["embed/embedding"] != second["embed/embedding"]).any()


def test_an_nnx_module_gives_its_own_outputs_under_string_paths():
    module, tokens = NNXNet(nnx.Rngs(3)), jnp.arange(14).reshape(2, 7)
    model = wrap(module, **SIZES)
    params = model.init(jax.random.key(0), tokens)["params"]
    assert "blocks/1/attn/query/kernel" in paths.flatten(params)
    positions = jnp.array([[6], [3]])
    expected = module(tokens)
    logits = jax.jit(model.apply)({"params": params}, tokens)
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-6)
    scored = model.apply({"params": params}, tokens, positions)
    np.testing.assert_array_equal(scored[:, 0], logits[jnp.arange(2), positions[:, 0]])
    cut = surgery.drop(params, "blocks/1")
    assert np.abs(model.apply({"params": cut}, tokens) - logits).max() > 1e-3


class Dropping(nnx.Module):
    """Libraries build their dropout layers with keys, also for a rate of 0."""

    def __init__(self, rngs, rate):
        self.embed = nnx.Embed(16, 16, rngs=rngs)
        self.drop = nnx.Dropout(rate, rngs=rngs)

    def __call__(self, tokens):
        return self.drop(self.embed(tokens))


def test_a_dropout_layer_that_draws_nothing_is_no_state():
    model, tokens = wrap(lambda rngs: Dropping(rngs, 0.0), **SIZES), jnp.zeros((2, 7), int)
    params = model.init(jax.random.key(0), tokens)["params"]
    logits = jax.jit(lambda p: model.apply({"params": p}, tokens))(params)
    np.testing.assert_array_equal(
        logits, jnp.broadcast_to(params["embed"]["embedding"][0], (2, 7, 16))
    )


class Table(nnx.Module):
    """Keeps a plain array, as many modules keep a mask or an encoding of positions."""

    def __init__(self, rngs, draw):
        self.table, self.count = draw(rngs), 0
        self.unembed = nnx.Linear(8, 16, rngs=rngs)

    def __call__(self, tokens):
        return self.unembed(self.table[tokens])


class Counting(Table):
    def __call__(self, tokens):
        self.table = self.table + 1
        return super().__call__(tokens)


def position_table(rngs):
    return jnp.sin(jnp.arange(16.0)[:, None] * jnp.arange(8.0)[None])


def numpy_table(rngs):
    return np.sin(np.arange(16)[:, None] * np.arange(8)).astype(np.float32)


@pytest.mark.parametrize("is_instance", [False, True])
def test_a_plain_array_of_an_nnx_module_is_a_constant(is_instance):
    def build(rngs):
        return Table(rngs, position_table if is_instance else numpy_table)

    model = wrap(build(nnx.Rngs(3)) if is_instance else build, **SIZES)
    tokens = jnp.arange(14).reshape(2, 7)
    shapes = jax.eval_shape(lambda key: model.init(key, tokens)["params"], jax.random.key(0))
    assert set(paths.flatten(shapes)) == {"unembed/kernel", "unembed/bias"}
    params = jax.jit(lambda key: model.init(key, tokens)["params"])(jax.random.key(0))
    expected = position_table(None)[tokens] @ params["unembed"]["kernel"]
    np.testing.assert_allclose(model.apply({"params": params}, tokens), expected, atol=1e-6)
    captured = capture.capture(model, params, tokens, names=["unembed"])
    np.testing.assert_allclose(captured["unembed/output"], expected, atol=1e-6)


@pytest.mark.parametrize(
    "module, message",
    [
        (
            LinenNet(outputs=12),
            r"LinenNet.* must return logits .*: expected \(2, 7, 16\), got \(2, 7, 12\)",
        ),
        (
            lambda rngs: NNXNet(rngs, 12),
            r"<lambda> must .*: expected \(2, 7, 16\), got \(2, 7, 12\)",
        ),
        (nn.Sequential([nn.Embed(16, 16), nn.BatchNorm(True)]), "has the collections batch_stats"),
        (lambda rngs: nnx.BatchNorm(4, rngs=rngs), "<lambda> has the state BatchStat"),
        (lambda rngs: Dropping(rngs, 0.5), "draws random numbers when it is applied"),
        (lambda rngs: {}, "must return an NNX module, got dict"),
        (3, "takes a Flax Linen or NNX module, .* got int"),
        (LinenNet, r"LinenNet is a class of Linen: give an instance, such as LinenNet\(\)"),
        (lambda: None, r"<lambda> must take one argument, nnx.Rngs"),
        (
            lambda rngs: Table(rngs, lambda rngs: rngs.normal((16, 8))),
            "draws the array table at random: make it an nnx.Param, and freeze it with a rule",
        ),
        (
            lambda rngs: Table(rngs, lambda _: [jnp.ones(3)]),
            "keeps arrays or submodules in a Python list or dict",
        ),
        (
            lambda rngs: Table(rngs, lambda _: nnx.Variable(jnp.ones((16, 8)))),
            "has the state Variable, .* keep constants as plain arrays",
        ),
        (lambda rngs: Counting(rngs, position_table), "changes the array table when it is applied"),
    ],
)
def test_a_module_that_does_not_fit_gets_a_one_line_error(module, message):
    tokens = jnp.zeros((2, 7), jnp.int32)
    with pytest.raises(UserError, match=message) as error:
        model = wrap(module, **SIZES)
        params = model.init(jax.random.key(0), tokens)
        model.apply(params, tokens)
    assert "\n" not in str(error.value)


def test_an_equinox_module_is_a_one_line_error_that_says_what_to_do():
    equinox = pytest.importorskip("equinox")

    class Bag(equinox.Module):
        embedding: jax.Array

        def __call__(self, tokens, positions=None):
            return self.embedding[tokens]

    bag = Bag(jnp.zeros((16, 16)))
    for call in (
        lambda: wrap(bag, **SIZES),
        lambda: jaxformer.train(TASK, bag, steps=1, progress=False),
    ):
        with pytest.raises(UserError) as error:
            call()
        assert "Bag is an Equinox module, and jaxformer takes those of Flax" in str(error.value)
        assert "\n" not in str(error.value)
