"""Single runs of a published model use programs of one block: same values, and none is stale."""

import dataclasses
import gc
import logging
import weakref
from functools import lru_cache, partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.errors import ScopeParamNotFoundError

from jaxformer import capture
from jaxformer.core.errors import UserError
from jaxformer.models.pretrained import programs
from jaxformer.models.pretrained.tiny import tiny
from tests.models.tiny_configs import CONFIGS

TOKENS = jnp.array([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
# Windows in some blocks, soft caps, and norms after branches; all families are in the long suite.
DIFFERENT = ["gemma2"]


@pytest.fixture(scope="module")
def llama():
    model, params, _ = tiny(CONFIGS["llama"], 12)
    return model, jax.tree.map(jnp.asarray, params)


def whole(call):
    """Returns the result of a call without programs of blocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(programs, "can_run", lambda *_: False)
        return call()


def close(got, expected):
    """Compares up to rounding, which is that of the largest entries: small ones are differences."""

    def check(x, y):
        largest = np.abs(np.asarray(y)[np.isfinite(y)]).max(initial=1.0)
        np.testing.assert_allclose(x, y, atol=3e-6 * largest, rtol=3e-6)

    jax.tree.map(check, got, expected)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in DIFFERENT else pytest.mark.slow) for name in CONFIGS],
)
def test_every_activation_and_all_logits_are_those_of_the_whole_network(name):
    model, params, _ = tiny(CONFIGS[name], 11)
    positions, real = jnp.array([[4], [2]]), jnp.arange(5)[None] < jnp.array([[5], [3]])
    for inputs in ((TOKENS,), (TOKENS, positions), (TOKENS, None, real)):
        logits = model.apply({"params": params}, *inputs)
        close(logits, nn.Module.apply(model, {"params": params}, *inputs))
    everything = capture.capture(model, params, TOKENS)
    expected = whole(lambda: capture.capture(model, params, TOKENS))
    assert [*everything] == [*expected] == capture.names(model)
    close(everything, expected)


def test_edits_have_the_values_of_the_whole_network(llama):
    model, params = llama
    states = jnp.linspace(-1, 1, TOKENS.size * model.spec.width)
    states = states.reshape(*TOKENS.shape, model.spec.width)

    class Doubled:
        takes_address = True

        def __call__(self, value, address):
            return value * len(address)

    for edits in (
        {"block_1/attn/heads": capture.at(capture.zero, heads=[0])},
        {"block_.*/attn/heads": capture.at(capture.mean, heads=1, positions=(1, 3))},
        {"resid_post": capture.plus(np.arange(model.spec.width) / 9)},
        {"block_0/mlp/output": capture.resample(jax.random.key(3))},
        {"block_1/before": states, "final": capture.at(states, positions=2)},
        {"embedded": 0.5, "block_1/attn/weights": capture.at(0.1, heads=[0, 1])},
        {"block_1/mlp/output": lambda value: value[:, ::-1], "logits": np.tanh},
        {"block_1/attn/output": Doubled()},
        {"block_1/mlp/output": 2, "block_.*/mlp/output": capture.plus(1.0)},
    ):
        call = partial(capture.run, model, params, TOKENS, names=["block_1/.*"], edits=edits)
        ours = call()
        close(ours, whole(call))
        assert abs(ours[0] - model.apply({"params": params}, TOKENS)).max() > 1e-3


def test_another_head_vector_or_block_compiles_nothing(llama, caplog):
    model, params = llama

    def call(block=0, head=0, size=1.0, position=2):
        vector = np.full(model.spec.width, size, np.float32)
        edits = {
            f"block_{block}/attn/heads": capture.at(capture.zero, heads=[head]),
            f"block_{block}/states": capture.at(capture.plus(vector), positions=position),
        }
        return capture.intervene(model, params, TOKENS, edits)

    first = call()
    before = programs._program.cache_info()
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        others = [call(block=1), call(head=1), call(size=2.0), call(position=3)]
    assert not [x for x in caplog.records if "Finished XLA compilation" in x.getMessage()]
    after = programs._program.cache_info()
    n_programs = len(others) * (model.spec.layers + 2)  # a run enters, passes its blocks and reads
    assert (after.misses, after.hits) == (before.misses, before.hits + n_programs)
    for other in others:
        assert abs(other - first).max() > 1e-3


def test_no_program_is_stale(llama):
    model, params = llama
    edits = {"block_1/mlp/output": lambda value: factor * value}
    factor = 2.0
    before = capture.intervene(model, params, TOKENS, edits)
    factor = 3.0  # a function may read what has changed since the last run
    after = capture.intervene(model, params, TOKENS, edits)
    close(after, whole(lambda: capture.intervene(model, params, TOKENS, edits)))
    assert abs(after - before).max() > 1e-3

    # JAX sees the array in this function, but not what the function reads.
    edits = {"block_1/mlp/output": jax.tree_util.Partial(lambda x, value: factor * x * value, 1.0)}
    np.testing.assert_array_equal(capture.intervene(model, params, TOKENS, edits), after)
    factor = 2.0
    np.testing.assert_array_equal(capture.intervene(model, params, TOKENS, edits), before)

    changed = jax.tree.map(lambda x: x * 1.1, params)
    halves = jax.tree.map(lambda x: x.astype(jnp.bfloat16), params)
    logits = model.apply({"params": params}, TOKENS)
    for other in (changed, halves):
        got = model.apply({"params": other}, TOKENS)
        expected: Any = nn.Module.apply(model, {"params": other}, TOKENS)
        np.testing.assert_allclose(got, expected, atol=0.02)
        assert abs(got - logits).max() > 1e-3
    spec_changed = type(model)(dataclasses.replace(model.spec, eps=0.1))
    close(
        spec_changed.apply({"params": params}, TOKENS),
        nn.Module.apply(spec_changed, {"params": params}, TOKENS),
    )
    with jax.enable_x64():
        wide = jax.tree.map(lambda x: jnp.asarray(np.asarray(x, np.float64)), params)
        assert model.apply({"params": wide}, TOKENS).dtype == jnp.float64


def test_interceptors_act_where_jit_is_off(llama):
    model, params = llama

    def halved(next_fun, args, kwargs, context):
        output = next_fun(*args, **kwargs)
        return output / 2 if context.module.name == "mlp" else output

    plain = model.apply({"params": params}, TOKENS)
    with jax.disable_jit(), nn.intercept_methods(halved):
        other = model.apply({"params": params}, TOKENS)
    assert abs(other - plain).max() > 1e-3
    close(model.apply({"params": params}, TOKENS), plain)


def test_programs_that_are_not_used_again_are_freed(llama, monkeypatch):
    model, params = llama
    monkeypatch.setattr(programs, "_program", lru_cache(maxsize=3)(programs._program.__wrapped__))
    model.apply({"params": params}, TOKENS[:, :2])
    kept = programs._program
    arguments = kept.cache_info().currsize
    assert arguments == 3
    made = weakref.WeakSet()
    original = jax.jit
    monkeypatch.setattr(jax, "jit", lambda f: made.add(p := original(f)) or p)
    for length in (3, 4, 5):
        model.apply({"params": params}, TOKENS[:, :length])
    gc.collect()
    assert kept.cache_info().currsize == 3 and len(made) == 3


def test_errors_name_the_address_of_the_whole_network(llama):
    model, params = llama
    for edits, message in (
        (
            {"block_1/mlp/output": jnp.ones(3)},
            "new value of block_1/mlp/output must have the shape",
        ),
        ({"block_1/attn/heads": capture.at(0.0, heads=9)}, "block_1/attn/heads has the heads 0 to"),
        ({"block_7/mlp/output": 0}, "matches no path. Did you mean 'block_"),
    ):
        with pytest.raises(UserError, match=message):
            capture.intervene(model, params, TOKENS, edits)
    with pytest.raises(ScopeParamNotFoundError, match="block_1"):
        model.apply({"params": {k: v for k, v in params.items() if k != "block_1"}}, TOKENS)
