"""Families have the logits of transformers for the same random weights."""

from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer import capture
from jaxformer.core.errors import UserError
from jaxformer.core.partition import Partition
from jaxformer.interp.generation import generate
from jaxformer.models.fused_attention import TILE
from jaxformer.models.pretrained import Pretrained, tiny
from jaxformer.models.pretrained.rotary import Rotary
from tests.models.tiny_configs import CONFIGS

THEIRS = np.load(Path(__file__).parents[1] / "reference/pretrained.npz")
FAMILIES = ("gpt2", "gpt_neox", "llama", "phi3")
KINDS = [
    kind if kind in FAMILIES else pytest.param(kind, marks=pytest.mark.slow)
    for kind in dict.fromkeys(name.split("/")[0] for name in THEIRS.files)
]
REAL = np.ones((2, 12), bool)
REAL[0, :4] = False
STATES = r"block_\d+/before"


def reference(kind):
    names = ("tokens", "logits", "states", "padded", "greedy", "loss", "after")
    result = {name: THEIRS[f"{kind}/{name}"] for name in names}
    return result | {"tokens": jnp.asarray(result["tokens"], jnp.int32)}


def close(ours, theirs, spread):
    """Checks agreement within 1e-5 of the logits' standard deviation."""
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5 * spread)


@pytest.mark.parametrize("kind", KINDS)
def test_logits_states_and_a_training_step(kind):
    want, (model, params, _) = reference(kind), tiny.tiny(CONFIGS[kind], 24)

    @jax.jit
    def everything(params, tokens):
        def loss(p):
            logits, result = capture.run(model, p, tokens, names=[STATES])
            nats = -jax.nn.log_softmax(logits)[:, :-1]
            mean = jnp.take_along_axis(nats, tokens[:, 1:, None], -1).mean()
            return mean, (logits, result)

        (value, (logits, result)), slope = jax.value_and_grad(loss, has_aux=True)(params)
        stepped = jax.tree.map(lambda p, g: p - 0.05 * g, params, slope)
        padded = model.apply({"params": params}, tokens, None, REAL)
        return logits, result, value, model.apply({"params": stepped}, tokens), padded

    logits, result, loss, after, padded = everything(params, want["tokens"])
    spread = want["logits"].std()
    close(logits, want["logits"], spread)
    for i, states in enumerate(want["states"]):
        close(result[f"block_{i}/before"], states, states.std())
    close(loss, want["loss"], 1)
    close(after, want["after"], spread)
    assert np.abs(want["after"] - want["logits"]).max() > 0.1
    close(np.asarray(padded)[REAL], want["padded"][REAL], spread)
    assert np.abs(np.asarray(padded)[0, 4:] - want["logits"][0, 4:]).max() > 0.1


def test_a_text_without_padding_is_attended_to_by_the_kernel_of_the_platform():
    """The kernels hide later tokens by themselves; a mask would cost T^2 numbers."""
    model, params, _ = tiny.tiny("llama", TILE)
    short_window = replace(model.spec, window=TILE // 2)
    tokens, real = jnp.zeros((1, TILE), int), jnp.ones((1, TILE), bool).at[0, 0].set(False)
    cases = {
        "causal": (model, None, True),
        "padding": (model, real, False),
        "window": (Pretrained(short_window), None, False),
    }
    for name, (network, real_BxT, expected) in cases.items():
        apply = lambda p, t, net=network, real=real_BxT: net.apply({"params": p}, t, None, real)  # noqa: E731
        lowered = jax.jit(apply).trace(params, tokens).lower(lowering_platforms=("tpu",))
        assert ("tpu_custom_call" in lowered.as_text()) == expected, name


CACHED = [
    kind if kind in ("gpt2", "phi3") else pytest.param(kind, marks=pytest.mark.slow)
    for kind in dict.fromkeys(name.split("/")[0] for name in THEIRS.files)
]


@pytest.mark.parametrize("kind", CACHED)
def test_generation_with_a_cache(kind):
    """Tokens are equal with a cache, and padding on the left changes nothing."""
    want, (model, params, _) = reference(kind), tiny.tiny(CONFIGS[kind], 24)
    new = want["greedy"].shape[1]
    tokens = jnp.pad(want["tokens"], ((0, 0), (2, 0)))
    real = jnp.pad(jnp.ones((2, 12), bool), ((0, 0), (2, 0)))
    generated = generate(model, params, tokens, new=new, real=real).tokens
    np.testing.assert_array_equal(generated, want["greedy"])


@pytest.mark.slow  # two programs
def test_generation_past_the_pretraining_length():
    """From the ninth token on longrope has other rates, so all tokens are read again."""
    want, (model, params, _) = reference("phi3_long"), tiny.tiny(CONFIGS["phi3_long"], 24)
    tokens = jnp.pad(want["tokens"][:, :6], ((0, 0), (3, 0)))
    real = jnp.pad(jnp.ones((2, 6), bool), ((0, 0), (3, 0)))
    rotary = replace(model.spec.rotary, pretraining_length=1)
    for rotary_of_it, is_equal in ((model.spec.rotary, True), (rotary, False)):
        same = Pretrained(replace(model.spec, rotary=rotary_of_it))
        result = generate(same, params, tokens, new=6, real=real).tokens
        assert np.array_equal(result, THEIRS["phi3_long/turned"]) == is_equal


def test_a_stored_cache_continues_the_tokens():
    """Two calls with flax's cache collection give the logits of a single call."""
    model, params, _ = tiny.tiny("gpt_neox", 24)
    model = Pretrained(replace(model.spec, length=12))
    tokens = reference("gpt_neox")["tokens"]

    @jax.jit
    def both(params):
        first, kept = model.apply({"params": params}, tokens[:, :9], mutable=["cache"])
        rest, _ = model.apply({"params": params, **kept}, tokens[:, 9:], mutable=["cache"])
        return jnp.concatenate([first, rest], 1)

    want = THEIRS["gpt_neox/logits"]
    close(both(params), want, want.std())


# What must not go unnoticed: (family, a wrong number).
WRONG = [
    ("gpt_neox", {"parallel": False}),
    ("gpt_neox", {"rotary": Rotary(2)}),
    ("gpt2", {"tied": False}),
    ("phi3", {"window": 4}),
    ("llama", {"rotary": Rotary(8)}),
    ("gpt_neox", {"act": "gelu_tanh"}),
    ("gpt_neox", {"qkv_bias": False}),
    ("gpt2", {"act": "gelu"}),
    ("gpt2", {"eps": 1e-3}),
    ("phi3", {"window": 0}),
    ("llama", {"rotary": Rotary(8, 500.0, "llama3", 8.0, 1.0, 4.0, 8)}),
    ("llama", {"kv_heads": 4}),
    ("llama", {"norm": "layer"}),
]


LONG = [pytest.param(*case, marks=pytest.mark.slow) for case in WRONG[5:]]


@pytest.mark.parametrize("kind, wrong", WRONG[:5] + LONG)
def test_a_wrong_option_changes_the_logits(kind, wrong):
    """Each wrong option moves a logit by at least ten times the tolerance."""
    want, (model, params, _) = reference(kind), tiny.tiny(CONFIGS[kind], 24)
    model = Pretrained(replace(model.spec, **wrong))
    if "tied" in wrong:
        params |= {"unembed": {"kernel": tiny.draw("unembed/kernel", (16, 24))}}
    if "kv_heads" in wrong:  # the same heads, in another order
        attn = params["block_0"]["attn"]
        for name in ("key", "value"):
            kernel = attn[name]["kernel"]
            params["block_0"]["attn"][name] = {"kernel": np.tile(kernel, 2)}
            kernel = params["block_1"]["attn"][name]["kernel"]
            params["block_1"]["attn"][name] = {"kernel": np.tile(kernel, 2)}
    if "norm" in wrong:
        params = jax.tree.map(lambda x: x, params)
        for holder in ("block_0/attn_norm", "block_0/mlp_norm", "block_1/attn_norm"):
            block, norm = holder.split("/")
            params[block][norm]["bias"] = np.zeros(16, np.float32)
        params["block_1"]["mlp_norm"]["bias"] = np.zeros(16, np.float32)
        params["final_norm"]["bias"] = np.zeros(16, np.float32)
    logits = jax.jit(model.apply)({"params": params}, want["tokens"])
    assert np.abs(logits - want["logits"]).max() > 1e-4 * want["logits"].std()


def test_addresses_are_those_of_the_decoder():
    known = capture.names(tiny.tiny("llama", 24)[0])
    for name in ("attn/queries", "attn/turned_keys", "attn/heads", "mlp/gates", "states"):
        assert f"block_1/{name}" in known
    assert "between" not in str(capture.names(tiny.tiny("gpt_neox", 24)[0]))


def test_two_rules_train_only_the_last_mlps():
    _, params, _ = tiny.tiny("gpt2", 24)
    rules = Partition(((r"block_1/mlp/.*", "train"), (".*", "frozen")))
    assert rules.count(params)["train"] == 2 * 16 * 64 + 64 + 16


@pytest.mark.parametrize("kind", ("plain", "linear", "llama3", "longrope"))
def test_rotary_rates_of_each_scaling(kind):
    """Compares with the published formulas, written out for each pair."""
    short, long = (1.0, 2.0, 3.0, 4.0), (2.0, 4.0, 8.0, 16.0)
    rotary = Rotary(8, 100.0, kind, 4.0, 1.0, 4.0, 32, short, long)
    rates, longer = rotary.rates(32), rotary.rates(33)
    for k in range(4):
        f = 100.0 ** (-2 * k / 8)
        wave = 2 * np.pi / f
        if kind == "linear" or (kind == "llama3" and wave > 32):
            f /= 4
        elif kind == "llama3" and wave >= 8:
            s = (32 / wave - 1) / 3
            f = (1 - s) * f / 4 + s * f
        expected = f / short[k] if kind == "longrope" else f
        np.testing.assert_allclose(rates[k], expected, rtol=1e-12)
        if kind == "longrope":
            np.testing.assert_allclose(longer[k], f / long[k], rtol=1e-12)


@pytest.mark.parametrize("token", [-5, 24, 2**40 + 3])
def test_a_token_outside_of_the_vocabulary_is_refused_outside_of_jit(token):
    model, params, _ = tiny.tiny(CONFIGS["llama"], 24)
    with pytest.raises(UserError, match=f"must be from 0 to 23, .* got .*{token}"):
        model.apply({"params": params}, np.array([[1, token]]))
