"""Low-rank adapters as a label: what is trained, counted, merged and refused."""

import operator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxformer
from jaxformer import adapters, capture, surgery
from jaxformer.core import paths, small_parts
from jaxformer.core.adapters import Lora, parse
from jaxformer.core.errors import UserError
from jaxformer.core.partition import Partition
from jaxformer.models.decoder import decoder
from jaxformer.models.layers import Dense
from jaxformer.tasks.retrieval import Retrieval

TASK = Retrieval(max_pairs=2, vocab=8)
SIZES = dict(width=8, layers=2, heads=2, mlp_width=16, init_std="fan_in", embed_init_std=1.0)
ONLY_LORA = ((".*/(query|value)/kernel", "lora(2)"), (".*", "frozen"))
ADAPTED = [f"block_{i}/attn/{name}" for i in (0, 1) for name in ("query", "value")]


def build(**more):
    return decoder(vocab_size=TASK.vocab_size, length=TASK.length, **SIZES, **more)


@pytest.fixture(scope="module")
def params():
    return build().init(jax.random.key(0), TASK.blank())["params"]


@pytest.fixture(scope="module")
def adapted(params):
    """Adapters whose update is not zero."""
    added = adapters.add(params, Partition(ONLY_LORA).adapters(params), jax.random.key(1))
    return paths.map_with_path(lambda path, leaf: leaf + 0.3 * path.endswith("lora_b"), added)


def test_a_label_gives_each_matched_kernel_an_adapter_and_freezes_the_kernel(params):
    partition = Partition(ONLY_LORA)
    loras = partition.adapters(params)
    assert loras == {f"{module}/kernel": Lora(2) for module in ADAPTED}
    added = adapters.add(params, loras, jax.random.key(0))
    labels = paths.flatten(partition.labels(added))
    trained = {path for path, label in labels.items() if label != "frozen"}
    assert trained == {f"{module}/{leaf}" for module in ADAPTED for leaf in ("lora_a", "lora_b")}
    assert partition.count(added)["lora"] == 4 * (8 * 2 + 2 * 8)
    trainable, frozen = partition.split(added)
    assert set(paths.flatten(trainable)) == trained
    assert "block_0/attn/query/kernel" in paths.flatten(frozen)


def test_an_adapter_changes_nothing_until_it_is_trained(params):
    added = adapters.add(params, Partition(ONLY_LORA).adapters(params), jax.random.key(0))
    model, tokens = build(), TASK.blank()
    before, after = (model.apply({"params": p}, tokens) for p in (params, added))
    np.testing.assert_array_equal(before, after)


def test_the_output_is_that_of_the_kernel_plus_the_scaled_product(params, adapted):
    module = adapted["block_1"]["attn"]["value"]
    merged = adapters.merge(adapted)
    expected = module["kernel"] + 4.0 * np.asarray(module["lora_a"]) @ np.asarray(module["lora_b"])
    np.testing.assert_allclose(merged["block_1"]["attn"]["value"]["kernel"], expected, atol=1e-6)
    model, tokens = build(), jnp.arange(TASK.length)[None] % 8
    one, two = (model.apply({"params": p}, tokens) for p in (adapted, merged))
    np.testing.assert_allclose(one, two, atol=1e-5)
    assert np.abs(one - model.apply({"params": params}, tokens)).max() > 0.01


def test_merge_writes_an_adapter_once(params, adapted):
    merged = adapters.merge(adapted)
    assert jax.tree.structure(merged) == jax.tree.structure(params)
    with pytest.raises(UserError, match=r"no adapter to merge .* once and removes it"):
        adapters.merge(merged)


def test_members_merge_together(adapted):
    members = jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf]), adapted)
    merged = adapters.merge(members)
    for member in (0, 1):
        alone = adapters.merge(jax.tree.map(operator.itemgetter(member), members))
        for one, two in zip(jax.tree.leaves(alone), jax.tree.leaves(merged), strict=True):
            np.testing.assert_allclose(one, two[member], atol=1e-5)


def test_the_update_has_an_address_that_is_captured_and_cut(params, adapted):
    model, tokens = build(), jnp.arange(TASK.length)[None] % 8
    kept = capture.capture(model, adapted, tokens, names=[".*/lora"])
    assert set(kept) == {f"{module}/lora" for module in ADAPTED}
    without = capture.intervene(model, adapted, tokens, {".*/lora": capture.zero})
    plain = model.apply({"params": params}, tokens)
    np.testing.assert_allclose(without, plain, atol=1e-6)


def test_a_scan_over_blocks_takes_adapters(adapted):
    tokens = jnp.arange(TASK.length)[None] % 8
    deep = adapted | {"block_2": adapted["block_1"]}
    one, two = (
        decoder(
            vocab_size=TASK.vocab_size, length=TASK.length, **SIZES | {"layers": 3}, scan=scan
        ).apply({"params": deep}, tokens)
        for scan in (False, True)
    )
    np.testing.assert_allclose(one, two, atol=1e-5)


def test_a_scan_over_blocks_that_differ_is_a_one_line_error(adapted, params):
    model = decoder(
        vocab_size=TASK.vocab_size, length=TASK.length, **SIZES | {"layers": 3}, scan=True
    )
    deep = adapted | {"block_1": params["block_1"], "block_2": params["block_1"]}
    rank_1 = {f"{ADAPTED[2 * i]}/kernel": Lora(1 + i) for i in (0, 1)}
    for differing in (deep, adapters.add(deep | params, rank_1, jax.random.key(0))):
        with pytest.raises(UserError, match="scan=True needs blocks with the same parameters"):
            model.apply({"params": differing}, TASK.blank())


def test_an_own_rule_decides_about_one_half_of_an_adapter(params):
    partition = Partition(((".*/lora_a", "frozen"), *ONLY_LORA))
    added = adapters.add(params, partition.adapters(params), jax.random.key(0))
    labels = paths.flatten(partition.labels(added))
    assert labels["block_0/attn/query/lora_a"] == "frozen"
    assert labels["block_0/attn/query/lora_b"] == "lora"


def test_the_scale_of_a_label_is_that_of_peft():
    assert parse("train") is None and parse("lora") is None
    assert parse("lora(8)") == Lora(8) and Lora(8).scale == 1.0
    assert parse("lora( 4 , alpha=16)").scale == 4.0
    assert parse("lora(4,alpha=16, stabilised)").scale == 8.0


@pytest.mark.parametrize(
    "label, message",
    [
        ("lora(x)", "the rank in the label 'lora\\(x\\)' must be a whole number of at least 1"),
        ("lora()", "must be a whole number of at least 1, got nothing: write lora\\(8\\)"),
        ("lora(0)", "must be a whole number of at least 1, got 0"),
        ("lora(-1)", "must be a whole number of at least 1, got -1"),
        ("lora(8, 16)", "unknown option '16': lora takes a rank, alpha=NUMBER and stabilised"),
        ("lora(8, alpha=nan)", "alpha in the label .* must be a number above 0"),
        ("lora(8", "the label 'lora\\(8' is not complete: write lora\\(8\\)"),
        ("dora(8)", "names no known adapter: use lora\\(RANK\\).* DoRA"),
    ],
)
def test_a_wrong_label_is_a_one_line_error(label, message):
    with pytest.raises(UserError, match=message):
        Partition(((".*/kernel", label), (".*", "frozen")))


@pytest.mark.parametrize(
    "rules, message",
    [
        ([(".*/query/kernel", "lora(9)")], "exceeds the rank of block_0/attn/query/kernel.* 8 "),
        ([("embed/.*", "lora(2)")], "matches embed/embedding .* Embeddings, norms and biases"),
        ([(".*norm.*", "lora(2)")], "matches block_0/attn_norm/scale .* Embeddings, norms and bi"),
        (
            [(".*/query/kernel", "lora(2)"), ("block_0/attn/.*/kernel", "lora(4)")],
            "two rules give block_0/attn/query/kernel an adapter",
        ),
    ],
)
def test_a_parameter_that_takes_no_adapter_is_named(params, rules, message):
    with pytest.raises(UserError, match=message):
        Partition((*rules, (".*", "frozen"))).adapters(params)


def test_a_second_adapter_on_a_kernel_is_refused(adapted):
    message = r"has an adapter already: go on with the one .* or write"
    with pytest.raises(UserError, match=message):
        Partition(ONLY_LORA).adapters(adapted)
    with pytest.raises(UserError, match=message):
        adapters.add(adapted, {f"{ADAPTED[0]}/kernel": Lora(2)}, jax.random.key(0))
    with pytest.raises(UserError, match="no parameter 'block_0/attn/q/kernel'"):
        adapters.add(adapted, {"block_0/attn/q/kernel": Lora(2)}, jax.random.key(0))


def test_a_label_that_forgets_the_rank_is_refused(params):
    """It would train the whole kernel."""
    with pytest.raises(UserError, match=r"'lora' of block_0/attn/query/kernel has no rank: write"):
        Partition(((".*/query/kernel", "lora"), (".*", "frozen"))).labels(params)


def test_a_tree_without_its_adapters_is_refused(params):
    """A caller that forgets to add them would train nothing, in silence."""
    with pytest.raises(UserError, match=r"needs an adapter of .*, which these parameters lack"):
        Partition(ONLY_LORA).labels(params)


def test_cuts_of_kernels_with_adapters_ask_for_a_merge(adapted):
    with pytest.raises(UserError, match=r"LASER would leave out the adapter of block_0/attn/query"):
        surgery.laser(adapted, "block_0/attn/query", 0.5)
    with pytest.raises(UserError, match="the removal of a head would leave out the adapter"):
        out = Partition(((".*/out/kernel", "lora(2)"), (".*", "frozen")))
        bare = adapters.effective(adapted)
        with_out = adapters.add(bare, out.adapters(bare), jax.random.key(0))
        surgery.ablate_heads(with_out, {"block_0/attn": [0]}, n_heads=2)


def test_a_dropped_kernel_asks_for_a_merge_and_a_dropped_module_adds_nothing(adapted):
    """A branch whose kernel is zero still adds the update of its adapter."""
    with pytest.raises(UserError, match="a drop would leave out the adapter of block_0/attn/value"):
        surgery.drop(adapted, "block_0/attn/value/kernel")
    dropped = surgery.drop(adapted, "block_0/attn/value")
    assert not np.any(adapters.merge(dropped)["block_0"]["attn"]["value"]["kernel"])


def test_the_maps_of_heads_are_those_of_the_merged_kernels(adapted):
    model = build()
    for read in (jaxformer.lens.qk, jaxformer.lens.ov):
        one, two = (read(model, p, block=1, head=0) for p in (adapted, adapters.merge(adapted)))
        np.testing.assert_allclose(one, two, atol=1e-5)


def test_half_precision_sums_the_gradient_of_an_adapter_in_float32():
    """A sum of ones in bfloat16 stops at 256."""
    module = {
        "kernel": jnp.ones((1, 1), jnp.bfloat16),
        "lora_a": jnp.ones((1, 1)),
        "lora_b": jnp.full((1, 1), 1e-3),
        "lora_scale": jnp.ones(()),
    }
    dense = Dense(1, use_bias=False, dtype=jnp.bfloat16, param_dtype=jnp.bfloat16)

    def loss(module, x):
        return dense.apply({"params": module}, x).astype(jnp.float32).sum()

    gradient = jax.grad(loss)(module, jnp.ones((512, 1), jnp.bfloat16))
    assert gradient["lora_b"].dtype == jnp.float32 and gradient["lora_b"].item() == 512.0


def trained(rules, params):
    partition = Partition(rules)
    params = adapters.add(params, partition.adapters(params), jax.random.key(0))
    labels = paths.flatten(partition.labels(params))
    return {path for path, label in labels.items() if label != "frozen"}


def test_named_rules_train_what_they_say(params):
    biased = jax.eval_shape(
        build(use_bias=True).init, jax.random.key(0), jax.ShapeDtypeStruct((1, 3), jnp.int32)
    )["params"]
    assert trained(small_parts.BITFIT, params | jax.tree.map(jnp.zeros_like, biased)) == {
        path for path in paths.flatten(biased) if path.endswith("/bias")
    }
    blocks = {f"block_{i}/{name}_norm/scale" for i in (0, 1) for name in ("attn", "mlp")}
    assert trained(small_parts.NORMS, params) == {"final_norm/scale"} | blocks
    last = {path for path in paths.flatten(params) if path.startswith("block_1/")}
    assert trained(small_parts.last_blocks(params, 1), params) == last
    halves = {f"{module}/lora_{half}" for module in ADAPTED for half in "ab"}
    assert trained(small_parts.lora(2), params) == halves
    assert trained(small_parts.lora(2, "in", "alpha=16, stabilised"), params) == {
        f"block_{i}/mlp/in/lora_{half}" for i in (0, 1) for half in "ab"
    }
    with pytest.raises(UserError, match="the number of last blocks must be"):
        small_parts.last_blocks(params, 3)
