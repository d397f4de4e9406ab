"""Planted parts of small networks are found, useless parts have no effect, bad pairs end early."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer import capture
from jaxformer.core.errors import UserError
from jaxformer.models.decoder import decoder
from jaxformer.models.pretrained.text import TokenIds
from jaxformer.models.recall import recall
from jaxformer.studies.anatomy import inside, layer_facts
from jaxformer.studies.anatomy.effects import effect_of, interval
from jaxformer.studies.anatomy.inside import measure
from jaxformer.studies.anatomy.pairs import pairs_of_batch, pairs_of_task, read_pairs
from jaxformer.tasks.retrieval import Retrieval
from jaxformer.tasks.task import Batch

VOCAB, LENGTH, PAIRS = 12, 5, 24
ANSWERS = 6  # tokens that the planted head copies; it ignores the others
COPIED = 1  # the position of the token that the planted head copies
SPEC = {"vocab_size": VOCAB, "length": LENGTH, "width": 48, "heads": 3, "mlp_width": 8}
MODEL = decoder(**SPEC, layers=2, use_norm=False, init_std=0.02)


@pytest.fixture(scope="module")
def planted():
    """Returns parameters in which head 1 of block_1 copies the token at COPIED into the answer.

    The unembedding reads the dimensions into which the head writes. Attention is uniform. Head 2 of
    block_1 writes nothing.
    """
    params = jax.jit(MODEL.init)(jax.random.key(0), jnp.zeros((1, LENGTH), jnp.int32))["params"]
    params = jax.tree.map(lambda x: 0.05 * x, params)
    embedding = np.zeros((VOCAB, 48), np.float32)
    embedding[:, :VOCAB] = np.eye(VOCAB)
    unembed = np.zeros((48, VOCAB), np.float32)
    unembed[16 : 16 + VOCAB] = 4 * np.eye(VOCAB)
    attn = {name: np.array(x["kernel"]) for name, x in params["block_1"]["attn"].items()}
    head = slice(16, 32)
    attn["value"][:, head], attn["out"][head] = 0, 0
    attn["value"][:ANSWERS, 16 : 16 + ANSWERS] = np.eye(ANSWERS)
    attn["out"][16 : 16 + ANSWERS, 16 : 16 + ANSWERS] = LENGTH * np.eye(ANSWERS)
    attn["out"][32:] = 0
    block = params["block_1"] | {"attn": {name: {"kernel": x} for name, x in attn.items()}}
    new = {"embed": {"embedding": embedding}, "unembed": {"kernel": unembed}, "block_1": block}
    return jax.tree.map(jnp.asarray, params | new)


@pytest.fixture(scope="module")
def pairs():
    """Returns prompts that differ at one position, whose token is the answer."""
    source = np.random.default_rng(0)
    tokens = np.tile(source.integers(ANSWERS, VOCAB, LENGTH), (PAIRS, 1))
    tokens[:, COPIED] = np.arange(PAIRS) % ANSWERS
    weights = np.tile(np.arange(LENGTH) == LENGTH - 1, (PAIRS, 1)).astype(np.float32)
    targets = np.tile(tokens[:, COPIED : COPIED + 1], (1, LENGTH))
    return pairs_of_batch(Batch(*map(jnp.asarray, (tokens, targets, weights))))


@pytest.fixture(scope="module")
def examined(planted, pairs):
    return measure(MODEL, planted, pairs)


def test_a_planted_head_is_found_and_a_useless_head_is_not(examined):
    by_part = {(effect.part, effect.method): effect for effect in examined.effects}
    parts = {part for part, _ in by_part}
    assert len(parts) == 2 * (2 + 3) and examined.samples == PAIRS
    assert set(examined.left_out) == {"labels of heads"}  # five tokens are too short for them
    for method in inside.METHODS:
        if method not in inside.RANKS:
            found = by_part["block_1/attn/head_1", method]
            useless = by_part["block_1/attn/head_2", method]
            assert found.value > found.half_width and found.p_value < 1e-6, method
            assert useless.value == 0 and useless.p_value == 1, method
            others = [
                abs(effect.value)
                for (part, other), effect in by_part.items()
                if other == method and part not in ("block_1/attn", "block_1/attn/head_1")
            ]
            assert found.value > 10 * max(others), method
    assert by_part["block_1/attn", "rank 1 %"].value > 1 + by_part["block_0/mlp", "rank 1 %"].value
    # Only a patch into the corrupted prompt undoes the whole difference.
    patched = by_part["block_1/attn/head_1", "patching"].value
    np.testing.assert_allclose(patched, examined.score - examined.corrupted, rtol=0.05)


def test_facts_of_layers_and_kernels(examined, planted, pairs):
    first, last = examined.layers
    assert last.lens_after[0] == pytest.approx(examined.score, abs=1e-4)
    assert last.lens_before[0] < examined.score - 1 and first.lens_after == last.lens_before
    np.testing.assert_allclose(first.entropy_H, np.log(np.arange(1, 6)).mean(), atol=0.01)
    kernel = np.asarray(planted["block_1"]["attn"]["out"]["kernel"])
    facts = examined.kernels["block_1/attn/out/kernel"]
    assert facts.norm == pytest.approx(np.linalg.norm(kernel), rel=1e-5) and facts.distance is None
    assert 6 <= facts.effective_rank < 8 and facts.rank == 48
    maps = layer_facts.attention_maps(MODEL, planted, pairs.clean, ["block_1/attn/head_1"])
    assert maps["block_1/attn/head_1"].shape == (PAIRS, LENGTH, LENGTH)
    np.testing.assert_allclose(maps["block_1/attn/head_1"].sum(-1), 1, atol=1e-5)


def test_examples_of_a_task_are_pairs():
    task = Retrieval(max_pairs=3, vocab=16)
    pairs = pairs_of_task(task, size=16)
    assert (pairs.clean != pairs.corrupted).any(1).all() and len(pairs) > 4
    assert pairs.unit.startswith("log probability") and (pairs.weight > 0).all()
    at = np.arange(len(pairs))[:, None]
    assert pairs.target.shape == pairs.position.shape == (len(pairs), 1)
    # The answer of retrieval stands in the prompt.
    assert (pairs.clean == pairs.target[at, 0]).any(1).all()


def test_a_model_without_mlps_and_progress(pairs):
    model = decoder(**SPEC, layers=1, use_mlp=False, init_std="fan_in", embed_init_std=1.0)
    params = jax.jit(model.init)(jax.random.key(0), pairs.clean)["params"]
    steps = []
    found = measure(
        *(model, params, pairs),
        heads=False,
        methods=("mean ablation", "rank 10 %"),
        initial=params,
        progress=lambda done, total: steps.append((done, total)),
    )
    assert [effect.part for effect in found.effects] == ["block_0/attn"] * 2
    assert steps == [(1, 2), (2, 2)]
    assert {facts.distance for facts in found.kernels.values()} == {0.0}


def test_mean_ablation_is_an_intervention_with_the_mean_over_all_prompts(planted, pairs, examined):
    """The prompts share their first token, at which the mean changes nothing."""
    assert (pairs.clean[:, 0] == pairs.corrupted[:, 0]).all() and COPIED == 1
    heads, address = {}, "block_1/attn/heads"
    for name in ("clean", "corrupted"):
        heads[name] = capture.capture(MODEL, planted, getattr(pairs, name), names=[address])[
            address
        ]
    mean = (heads["clean"].mean(0) + heads["corrupted"].mean(0)) / 2
    new = heads["clean"].at[:, :, 1].set(mean[:, 1])
    logits = capture.intervene(MODEL, planted, pairs.clean, {address: new})
    last = np.arange(len(pairs)), LENGTH - 1, pairs.target[:, 0]
    without = float(jax.nn.log_softmax(logits)[last].mean())
    by_part = {(effect.part, effect.method): effect.value for effect in examined.effects}
    loss = by_part["block_1/attn/head_1", "mean ablation"]
    assert loss == pytest.approx(examined.score - without, abs=1e-4) and loss > 0.5


def test_a_recall_model_has_attention_and_mlps(pairs):
    """Its blocks may lack an MLP, and its attention has no heads."""
    model = recall(vocab_size=VOCAB, length=LENGTH, width=8, feed_forward=("none", "mlp"))
    params = jax.jit(model.init)(jax.random.key(0), pairs.clean)["params"]
    methods = "patching", "path patching", "attribution", "direct", "rank 10 %"
    found = measure(model, params, pairs, methods=methods)
    by_part = {(effect.part, effect.method): effect.value for effect in found.effects}
    assert {part for part, _ in by_part} == {"block_0/attn", "block_1/attn", "block_1/mlp"}
    assert [len(facts.entropy_H) for facts in found.layers] == [1, 1]
    clean = capture.capture(model, params, pairs.clean, names=["block_1/(attn|mlp)/output"])
    last = np.arange(len(pairs)), LENGTH - 1, pairs.target[:, 0]

    def score(edits):
        logits = capture.intervene(model, params, pairs.corrupted, edits)
        return jax.nn.log_softmax(logits)[last].mean()

    for part in ("block_1/attn", "block_1/mlp"):
        address = f"{part}/output"
        gain = float(score({address: clean[address]})) - found.corrupted
        assert by_part[part, "patching"] == pytest.approx(gain, abs=1e-4)
    assert by_part["block_1/mlp", "path patching"] == by_part["block_1/mlp", "patching"]


def test_bad_pairs_end_with_a_one_line_error(tmp_path, planted, pairs):
    def read(*lines):
        file = tmp_path / "pairs.tsv"
        file.write_text("\n".join("\t".join(line) for line in lines))
        return read_pairs(file, TokenIds(VOCAB))

    good = ("1 2 3", "1 4 3", "2", "4")
    two = read(good, ("1 2", "3 2", "1", "3"))
    assert two.lengths.tolist() == [3, 2] and two.position.tolist() == [[2], [1]]
    for lines, message in (
        ([good, ("1 2", "1 2 3", "2", "4")], "line 2: the clean prompt has 2 tokens and the corru"),
        ([("1 2", "1 2", "2", "4")], "line 1: the two prompts have the same tokens"),
        ([("1 2", "1 3", "2", "2")], "begin with the same token; the score would be 0"),
        ([("1 2", "1 3")], "line 1: expected clean, corrupted, right, wrong with tabs"),
        ([good, good[:3]], "some lines have a wrong answer"),
        ([], "has no prompt"),
    ):
        with pytest.raises(UserError, match=message):
            read(*lines)
    # Prompts of two lengths have the effects of each length alone.
    both = measure(MODEL, planted, two, methods=("patching",), heads=False).effects
    one = measure(MODEL, planted, read(good), methods=("patching",), heads=False).effects
    other = measure(
        MODEL, planted, read(("1 2", "3 2", "1", "3")), methods=("patching",), heads=False
    )
    for effect, *alone in zip(both, one, other.effects, strict=True):
        assert effect.value == pytest.approx(np.mean([x.value for x in alone]), abs=1e-4)
        assert np.isnan(alone[0].half_width) and np.isnan(alone[0].p_value)
    constant = dataclasses.replace(pairs, corrupted=pairs.clean)
    with pytest.raises(UserError, match="nothing to explain"):
        measure(MODEL, planted, constant)
    broken = planted | {"unembed": {"kernel": planted["unembed"]["kernel"] * np.nan}}
    with pytest.raises(UserError, match="24 of 24 pairs is not finite"):
        measure(MODEL, broken, pairs)
    with pytest.raises(UserError, match="Did you mean 'patching'"):
        measure(MODEL, planted, pairs, methods=("patchin",))


def test_intervals_are_those_of_students_t():
    mean, half_width, p_value = interval(np.array([1.0, 2.0, 4.0]))
    assert mean == pytest.approx(7 / 3) and half_width == pytest.approx(3.79466, rel=1e-4)
    assert p_value == pytest.approx(0.118083, rel=1e-4)
    assert effect_of("x", "y", np.array([1e-6, 1e-6]), tolerance=1e-5).p_value == 1
    assert interval(np.array([2.0, 2.0])) == (2.0, 0.0, 0.0)
