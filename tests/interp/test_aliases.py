"""Names of TransformerLens' hooks are aliases of our addresses, in all kinds of models."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer import capture
from jaxformer.core.errors import UserError
from jaxformer.interp.capture.aliases import BLOCK_HOOKS, FULL_NAMES, MODEL_HOOKS, resolve
from jaxformer.models.decoder import decoder
from jaxformer.models.pretrained import tiny
from tests.models.tiny_configs import CONFIGS

TOKENS = jax.random.randint(jax.random.key(1), (2, 5), 0, 11, jnp.int32)
ADDRESSES = {
    "blocks.1.hook_resid_pre": "block_1/before",
    "blocks.1.hook_resid_mid": "block_1/between",
    "blocks.1.hook_resid_post": "block_1/states",
    "blocks.1.hook_attn_out": "block_1/attn/output",
    "blocks.1.hook_mlp_out": "block_1/mlp/output",
    "blocks.1.attn.hook_q": "block_1/attn/queries",
    "blocks.1.attn.hook_k": "block_1/attn/keys",
    "blocks.1.attn.hook_v": "block_1/attn/values",
    "blocks.1.attn.hook_attn_scores": "block_1/attn/masked_scores",
    "blocks.1.attn.hook_pattern": "block_1/attn/weights",
    "blocks.1.attn.hook_z": "block_1/attn/heads",
    "blocks.1.mlp.hook_pre": "block_1/mlp/preactivation",
    "blocks.1.mlp.hook_post": "block_1/mlp/hidden",
    "blocks.1.ln1.hook_normalized": "block_1/attn_norm/output",
    "ln_final.hook_normalized": "final_norm/output",
    "hook_embed": "token_embeddings",
}


SLOW_NETWORKS = [pytest.param(name, marks=pytest.mark.slow) for name in ("gpt2", "llama")]


@pytest.fixture(scope="module", params=["decoder", *SLOW_NETWORKS])
def network(request):
    """Returns a model and its parameters."""
    if request.param != "decoder":
        return tiny.tiny(CONFIGS[request.param], 11)[:2]
    model = decoder(vocab_size=11, length=6, width=8, layers=2, heads=2, mlp_width=16)
    return model, jax.jit(model.init)(jax.random.key(0), TOKENS)["params"]


def test_full_names_capture_the_activation_of_their_address(network):
    model, params = network
    captured = capture.capture(model, params, TOKENS, names=[*ADDRESSES])
    expected = capture.capture(model, params, TOKENS, names=[*ADDRESSES.values()])
    assert {*captured} == {*ADDRESSES.values()}
    chex.assert_trees_all_equal(captured, expected)
    assert {name: resolve(name, model) for name in ADDRESSES} == ADDRESSES


def test_short_names_capture_all_blocks(network):
    model, params = network
    for name in ("pattern", "hook_pattern"):
        captured = capture.capture(model, params, TOKENS, names=[name])
        assert list(captured) == ["block_0/attn/weights", "block_1/attn/weights"]


@pytest.mark.parametrize(
    "kind",
    [
        "olmo2",
        *(pytest.param(k, marks=pytest.mark.slow) for k in ("llama", "gemma2", "gemma3_text")),
    ],
)
def test_the_outputs_of_branches_are_what_is_added_to_the_stream(kind):
    model, params, _ = tiny.tiny(CONFIGS[kind], 11)
    hooks = [f"blocks.1.hook_{x}" for x in ("resid_pre", "attn_out", "resid_mid", "mlp_out")]
    hooks.append("blocks.1.hook_resid_post")
    before, attn_out, between, mlp_out, after = (
        next(iter(capture.capture(model, params, TOKENS, names=[hook]).values())) for hook in hooks
    )
    np.testing.assert_allclose(before + attn_out, between, atol=1e-5)
    np.testing.assert_allclose(between + mlp_out, after, atol=1e-5)
    assert np.abs(attn_out).min(-1).max() > 1e-4
    # All functions that take names agree about them.
    assert len(capture.capture(model, params, TOKENS, names=["attn_out"])) == model.spec.layers
    removed = capture.intervene(model, params, TOKENS, {"hook_mlp_out": 0})
    patched = capture.patch(
        model, params, TOKENS, TOKENS[::-1], "hook_mlp_out", lambda logits: logits[0, -1, 3]
    )
    assert np.isfinite(removed).all() and len(patched) == model.spec.layers


@pytest.mark.parametrize("network", ["decoder"], indirect=True)
def test_interventions_and_patches_accept_aliases(network):
    model, params = network
    corrupted = (TOKENS + 1) % 11

    def metric(logits):
        return logits[:, -1, 0].mean()

    def sender_and_receiver(sender, receiver):
        pair = (sender, 1), (receiver, 0)
        return capture.path_patch(model, params, TOKENS, corrupted, *pair, metric)

    edited = capture.intervene(model, params, TOKENS, {"blocks.0.hook_mlp_out": 0})
    ours = capture.intervene(model, params, TOKENS, {"block_0/mlp/output": 0})
    np.testing.assert_array_equal(edited, ours)
    for function in (capture.patch, capture.attribute):
        effects = [
            function(model, params, TOKENS, corrupted, name, metric, by=["head"])
            for name in ("z", r"block_\d+/attn/heads")
        ]
        assert list(effects[0]) == ["block_0/attn/heads", "block_1/attn/heads"]
        chex.assert_trees_all_equal(*effects)
    np.testing.assert_array_equal(
        sender_and_receiver("blocks.0.attn.hook_z", "blocks.1.attn.hook_q"),
        sender_and_receiver("block_0/attn/heads", "block_1/attn/queries"),
    )


def test_each_hook_in_the_table_has_a_short_and_a_full_name():
    for hook, (module, address) in BLOCK_HOOKS.items():
        assert resolve(f"blocks.12.{module}hook_{hook}", None) == f"block_12/{address}"
        assert resolve(hook, None) == resolve(f"hook_{hook}", None) == rf"block_\d+/{address}"
    assert len(FULL_NAMES) + len(MODEL_HOOKS) == 20


def test_addresses_and_patterns_stay_as_they_are():
    for name in ("block_3/attn/weights", r"block_\d+/states", "embedded", "blocks.1.hook_x", ".*z"):
        assert resolve(name, None) == name


def test_a_hook_without_an_address_names_the_way_to_compute_it():
    for name in ("result", "blocks.0.attn.hook_result"):
        with pytest.raises(UserError, match="multiply block_i/attn/heads by the head's rows"):
            resolve(name, None)
