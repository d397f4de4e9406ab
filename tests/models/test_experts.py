"""Mixtures of experts: grouped and plain passes agree, and experts have addresses of their own."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxformer
from jaxformer import adapters, capture
from jaxformer.core import paths
from jaxformer.core.adapters import with_equal_shapes
from jaxformer.core.errors import UserError
from jaxformer.core.partition import Partition
from jaxformer.models.pretrained import describe, tiny
from jaxformer.models.pretrained.mlps import grouped_rows
from jaxformer.models.pretrained_init import from_params
from jaxformer.tasks.retrieval import Retrieval
from tests.models.families import REAL, TOKENS, VOCAB, padded
from tests.models.test_families import TOLERANCE, error_of
from tests.models.tiny_configs import CONFIGS

QUICK = ("olmoe", "qwen2_moe", "gpt_oss")
OTHERS = ("mixtral", "olmoe_clipped", "qwen3_moe", "gpt_oss_plain")


@pytest.fixture(scope="module")
def olmoe():
    return tiny.tiny(CONFIGS["olmoe"], VOCAB)[:2]


@pytest.mark.parametrize(
    "kind", [*QUICK, *(pytest.param(k, marks=pytest.mark.slow) for k in OTHERS)]
)
def test_logits_are_those_of_transformers_and_observed_ones_too(kind):
    """A pass that captures computes all experts; a plain one groups the tokens."""
    model, params, _ = tiny.tiny(CONFIGS[kind], VOCAB)
    logits = model.apply({"params": params}, jnp.asarray(TOKENS))
    assert error_of(logits, kind, "logits") < TOLERANCE
    observed = capture.capture(model, params, jnp.asarray(TOKENS), names=["logits"])["logits"]
    assert error_of(observed, kind, "logits") < TOLERANCE
    with_padding = model.apply({"params": params}, jnp.asarray(padded(kind)), None, REAL)
    assert error_of(with_padding, kind, "padded") < TOLERANCE


def test_every_choice_of_every_token_has_a_place_of_its_own():
    """Also where all tokens choose one expert, which other routers would drop."""
    draws = [np.random.default_rng(0).permuted(np.tile(np.arange(5), (7, 1)), axis=1)[:, :2]]
    draws += [np.tile([[3, 1]], (7, 1)), np.array([[4]]), np.zeros((1, 1), int)]
    for chosen in draws:
        slots, expert_of_block, block = grouped_rows(jnp.asarray(chosen), 5)
        slots, experts = np.asarray(slots), np.asarray(expert_of_block)
        assert len(np.unique(slots)) == chosen.size
        assert slots.min() >= 0 and slots.max() < len(experts) * block
        np.testing.assert_array_equal(experts[slots // block], chosen)


def test_gradients_of_grouped_and_of_all_experts_are_equal(olmoe):
    model, params = olmoe
    params = jax.tree.map(jnp.asarray, params)
    names = ["block_1/mlp/router_scores"]

    def plain(params):
        return jnp.sin(model.apply({"params": params}, TOKENS)).sum()

    def observed(params):
        request = jaxformer.models.activation_points.Request(names=names)
        with request.active():
            return plain(params)

    one, two = (paths.flatten(jax.jit(jax.grad(f))(params)) for f in (plain, observed))
    for path, leaf in one.items():
        scale = np.abs(two[path]).max() + 1e-3
        np.testing.assert_allclose(leaf / scale, two[path] / scale, atol=3e-5, err_msg=path)
    assert np.abs(one["block_1/mlp/expert_5/in/kernel"]).max() > 0
    assert np.abs(one["block_0/mlp/router/kernel"]).max() > 0


def test_an_expert_is_captured_cut_and_patched(olmoe):
    model, params = olmoe
    tokens = jnp.asarray(TOKENS)
    addresses = capture.names(model)
    assert {"block_1/mlp/expert_5/hidden", "block_1/mlp/router_scores"} <= {*addresses}
    kept = capture.capture(model, params, tokens, names=["block_1/mlp/.*"])
    weights = kept["block_1/mlp/router_weights"]
    assert ((weights > 0).sum(-1) == 2).all()
    total = sum(weights[..., e : e + 1] * kept[f"block_1/mlp/expert_{e}/output"] for e in range(6))
    np.testing.assert_allclose(total, kept["block_1/mlp/output"], atol=1e-5)
    expert = "block_1/mlp/expert_5/output"
    uses = weights[..., 5] > 0
    assert uses.any() and not uses.all()
    cut = {expert: capture.zero}
    _, after = capture.run(model, params, tokens, names=["block_1/mlp/output"], edits=cut)
    moved = np.abs(after["block_1/mlp/output"] - kept["block_1/mlp/output"]).max(-1) > 1e-6
    np.testing.assert_array_equal(moved, uses)

    def off(scores):
        return scores.at[..., 5].set(-jnp.inf)

    rerouted = {"block_1/mlp/router_scores": off}
    names = ["block_1/mlp/router_weights"]
    after = capture.run(model, params, tokens, names=names, edits=rerouted)[1][names[0]]
    assert not after[..., 5].any() and ((after > 0).sum(-1) == 2).all()


def test_experts_are_patched_one_by_one(olmoe):
    model, params = olmoe
    clean, corrupted = (jnp.asarray(TOKENS[:1]), jnp.asarray(TOKENS[1:]))

    def margin(logits):
        return logits[0, -1, 3] - logits[0, -1, 4]

    found = capture.patch(model, params, clean, corrupted, r"block_1/mlp/expert_\d/output", margin)
    assert [*found] == [f"block_1/mlp/expert_{e}/output" for e in range(6)]
    base = margin(model.apply({"params": params}, corrupted))
    weights = capture.capture(model, params, corrupted, names=["block_1/mlp/router_weights"])
    used = np.asarray(weights["block_1/mlp/router_weights"][0, -1] > 0)
    effects = np.abs(np.array([float(np.squeeze(value) - base) for value in found.values()]))
    np.testing.assert_array_equal(effects > 1e-6, used)


@pytest.mark.parametrize(
    "rules",
    [
        [("block_1/mlp/expert_(1|5)/in/kernel", "lora(2)")],
        [
            ("block_1/mlp/expert_[0-2]/in/kernel", "lora(2)"),
            ("block_1/mlp/expert_[3-5]/in/kernel", "lora(3)"),
        ],
    ],
)
def test_experts_without_adapters_or_of_other_ranks_act_as_their_merged_kernels(rules, olmoe):
    model, params = olmoe
    partition = Partition((*rules, (".*", "frozen")))
    added = adapters.add(params, partition.adapters(params), jax.random.key(0))
    added = paths.map_with_path(lambda path, x: x + 0.5 * path.endswith("lora_b"), added)
    one, two, before = (
        model.apply({"params": p}, TOKENS) for p in (added, adapters.merge(added), params)
    )
    np.testing.assert_allclose(one, two, atol=1e-4)
    assert np.abs(one - before).max() > 1e-2


def test_a_missing_adapter_becomes_zeros_and_its_kernel_keeps_its_bits():
    """A sum with the kernel would lose what bfloat16 cannot add to it."""
    kernel = jnp.ones((2, 2), jnp.bfloat16)
    a, b, scale = jnp.full((2, 1), 1e-3), jnp.ones((1, 2)), jnp.ones(())
    leaves = {"lora_a": a, "lora_b": b, "lora_scale": scale}
    adapted, bare = with_equal_shapes(
        [{"in": {"kernel": kernel, **leaves}}, {"in": {"kernel": kernel}}]
    )
    np.testing.assert_array_equal(adapted["in"]["lora_a"], a)
    assert bare["in"]["kernel"].dtype == jnp.bfloat16 and not np.any(bare["in"]["lora_b"])
    assert jax.tree.map(jnp.shape, adapted) == jax.tree.map(jnp.shape, bare)


@pytest.mark.slow  # compiles a training run
def test_one_expert_is_trained():
    task = Retrieval(max_pairs=2, vocab=8)
    model, params, _ = tiny.tiny(CONFIGS["olmoe"], task.vocab_size)
    rules = (("block_1/mlp/expert_5/.*", "train"), (".*", "frozen"))
    run = jaxformer.train(
        task, from_params(model, params), rules, steps=2, batch_size=8, seeds=2, progress=False
    )
    before = paths.flatten(params)
    for path, leaf in paths.flatten(run.member(1)).items():
        is_equal = np.array_equal(leaf, before[path])
        assert is_equal == (not path.startswith("block_1/mlp/expert_5/")), path


def test_half_precision_runs_grouped_experts(olmoe):
    model, params = olmoe
    half = model.clone(spec=describe_in_half(CONFIGS["olmoe"]))
    cast = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.bfloat16), params)
    logits = half.apply({"params": cast}, TOKENS).astype(jnp.float32)
    expected = model.apply({"params": params}, TOKENS)
    assert np.isfinite(logits).all()
    assert np.median(np.abs(logits - expected)) < 0.1 * expected.std()


def describe_in_half(config):
    spec = describe(dict(config) | {"vocab_size": VOCAB})
    return replace(spec, dtype=jnp.bfloat16, param_dtype=jnp.bfloat16)


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"num_experts_per_tok": 7}, "between 1 and all 6 experts, got experts_per_token = 7"),
        ({"num_experts_per_tok": 0}, "between 1 and all 6 experts, got experts_per_token = 0"),
        ({"num_experts": -1}, "experts must be"),
        ({"n_shared_experts": 1}, "n_shared_experts: 1 is not supported for olmoe"),
    ],
)
def test_wrong_numbers_of_experts_are_one_line_errors(fields, message):
    with pytest.raises(UserError, match=message):
        describe(CONFIGS["olmoe"] | {"vocab_size": VOCAB} | fields)
