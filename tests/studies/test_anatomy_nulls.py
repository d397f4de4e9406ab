"""Labels of heads and effects inside a network beside those of networks that cannot know."""

import functools
import json
from typing import Any

import jax
import numpy as np
import pytest

import jaxformer
from jaxformer import nulls
from jaxformer.core import paths
from jaxformer.core.errors import UserError
from jaxformer.interp import known
from jaxformer.models.decoder import decoder
from jaxformer.studies.anatomy import components, labels
from jaxformer.studies.anatomy.effects import effect_of
from jaxformer.studies.anatomy.examination import first_pairs
from jaxformer.studies.anatomy.inside import Inside
from jaxformer.studies.anatomy.pairs import pairs_of_answers
from jaxformer.studies.anatomy.prompt_changes import PromptChanges
from tests.interp.test_curve import toy


@functools.cache
def pairs():
    _, wiring = toy()
    tokens = np.asarray(wiring.tokens_BxT), np.asarray(wiring.corrupted_BxT)
    return pairs_of_answers(*tokens, wiring.answers)


@pytest.fixture(scope="module")
def trained():
    model, wiring = toy()
    return jaxformer.examine(model, wiring.params, prompts=pairs(), nulls=5, progress=False)


def test_a_report_says_what_its_numbers_are_compared_with(trained):
    (line,) = trained.null_sentences
    total = trained.inside.total
    assert line.startswith("Networks with block weights drawn anew tell clean from corrupted")
    assert f"this one by {total.network}" in line and line in str(trained)
    assert line.replace(" ± ", "\u00a0±\u00a0") in trained.to_html()
    assert max(map(abs, total.null_means)) < 0.1 * total.network.mean
    rows = {row["part"]: row for row in trained.effect_table if row["method"] == "mean ablation"}
    assert abs(rows["block_0/attn"]["null"]) < 0.1 * rows["block_0/attn"]["value"]
    assert rows["block_1/attn/head_0"]["null"] is not None
    assert "in null networks" in str(trained)


def test_an_untrained_network_has_one_sentence_and_no_effects():
    model, _ = toy()
    network = nulls.untrained(model, jax.random.key(101))
    report = jaxformer.examine(model, network, prompts=pairs(), nulls=5, progress=False)
    (sentence,) = report.sentences
    assert sentence.startswith("The difference between clean and corrupted prompts changes the")
    assert sentence.endswith("there is nothing to explain.")
    assert report.effect_sentences == report.group_sentences == []


def test_labels_are_those_of_the_head_whatever_the_prompts(trained):
    """They were read off repetitions of the prompts' own tokens."""
    model, wiring = toy()
    own = labels.head_labels(model, wiring.params)
    assert trained.inside.labels == own
    few = first_pairs(pairs(), 4)
    other: Any = jaxformer.examine(model, wiring.params, prompts=few, nulls=0, progress=False)
    assert other.inside.labels == own
    assert "induction" in [label for label, _ in own.values()]


def test_all_scores_of_heads_are_in_a_table_with_intervals_and_a_null(trained, tmp_path):
    table = trained.labels_table
    heads = {row["head"] for row in table}
    assert heads == {f"block_{b}/attn/head_{h}" for b in (0, 1) for h in (0, 1)}
    assert {"previous token", "duplicate token", "induction"} < {row["label"] for row in table}
    named = [row for row in table if row["is_label"]]
    assert {row["head"] for row in named} == {*trained.inside.labels}
    for row in named:
        assert row["score"] >= 0.4 and row["score"] - row["half_width"] > row["null"]
    trained.save(tmp_path)
    stored = json.loads((tmp_path / "anatomy.json").read_text())["examined"]
    assert len(stored["labels_table"]) == len(table) and stored["total"] and stored["null_effects"]


def test_a_head_that_a_null_has_too_gets_no_name():
    network = known.network("induction")
    assert len(labels.head_labels(network.model, network.params)) == 2
    assert labels.head_labels(network.model, network.params, [network.params]) == {}


def test_a_head_that_copies_through_its_query_is_no_previous_token_head():
    """It looks for the token before among the tokens, and finds its copy as well."""
    n = 8
    looks_back, finds_copy = np.zeros((2, 1, 2 * n, 2 * n))
    for t in range(1, 2 * n):
        looks_back[0, t, t - 1] = 1
        copy = t - 1 - n
        finds_copy[0, t, [t - 1, copy] if copy >= 0 else t - 1] = 0.5 if copy >= 0 else 1
    plain = looks_back  # without a repetition the two are alike
    own = labels._scores_of_head(plain, looks_back, n)["previous token"]
    query = labels._scores_of_head(plain, finds_copy, n)["previous token"]
    assert own.mean == 1 and query.mean == pytest.approx(0)


def test_a_vocabulary_that_is_too_small_for_labels_is_said_to_be():
    model = decoder(vocab_size=5, length=6, width=8, layers=1, heads=2, mlp_width=8)
    why = labels.why_no_labels(model)
    assert why.endswith("the model has 5 tokens and a length of 6")
    assert labels.head_scores(model, nulls.untrained(model, jax.random.key(0))) == []


def test_a_null_that_returns_nan_is_one_line():
    model, wiring = toy()
    flat = paths.flatten(wiring.params)
    first = next(path for path in flat if path.endswith("kernel"))
    broken = paths.replace(wiring.params, {first: flat[first] * np.nan})
    with pytest.raises(UserError, match="null network returns nan"):
        jaxformer.examine(
            model, wiring.params, prompts=pairs(), nulls=[broken], progress=False, heads=False
        )


def test_the_numbers_of_each_prompt_are_kept_with_their_names(trained, tmp_path):
    changes = trained.changes
    effects = {(row["part"], row["method"]): row["value"] for row in trained.effect_table}
    pair = "head 0 of block 0 and head 1 of block 1"
    for key in (("block_0/attn", "mean ablation"), (pair, "together"), ("block 1", "together")):
        assert changes[key].shape == (1, 24)
        assert changes[key].mean() == pytest.approx(effects[key], rel=1e-4)
    rows = changes.frame()
    assert len(rows) == 24 * len(effects) and rows[0].keys() == {
        *("network", "part", "method", "prompt", "change")
    }
    changes.to_npz(tmp_path / "changes.npz")
    stored = np.load(tmp_path / "changes.npz")
    np.testing.assert_array_equal(stored[f"{pair}|together"], changes[pair, "together"])
    assert stored["prompts"].tolist() == [*pairs().names]
    with pytest.raises(UserError, match="Did you mean 'mean ablation'"):
        _ = changes["block_0/attn", "mean ablatoin"]


def changed_inside(**changes):
    """An examination of one part, with the changes of each prompt by method."""
    by_method = {name.replace("_", " "): np.array(x, float) for name, x in changes.items()}
    networks = ({("block_0/mlp", method): x for method, x in by_method.items()},)
    effects = tuple(effect_of("block_0/mlp", method, x) for method, x in by_method.items())
    return Inside(
        *(8.0, 0.1, -8.0, 0.1, "logit of right - wrong", 60, effects, (), {}, {}),
        smallest=0.4,
        changes=PromptChanges(networks, tuple(map(str, range(60)))),
    )


def sentences_of(inside):
    return [text for text, _ in components.sentences(inside, components.decide(inside.effects))]


@pytest.mark.parametrize("n_prompts", [6, 20])
def test_a_part_that_few_prompts_need_is_said_to_be_one(n_prompts):
    (text,) = sentences_of(
        changed_inside(mean_ablation=[4.0] * n_prompts + [0.0] * (60 - n_prompts))
    )
    assert f"(on {n_prompts} of 60 prompts, 4 each)" in text


def test_a_part_that_all_prompts_need_is_not_said_to_be_needed_by_few():
    noise = np.random.default_rng(0).normal(size=60)
    (text,) = sentences_of(changed_inside(mean_ablation=4 + noise))
    assert " prompts" not in text


def test_noise_on_a_few_prompts_is_no_part_that_few_prompts_need():
    noise = np.random.default_rng(0).normal(size=60)
    assert sentences_of(changed_inside(mean_ablation=noise)) == []


@pytest.mark.parametrize(
    "method, said",
    [
        ("zero_ablation", "set to zero, lowers"),
        ("resampling", "taken from another prompt, lowers"),
        ("patching", None),  # what else the clean prompt has may do it
    ],
)
def test_a_part_that_only_another_method_notices_has_a_sentence(method, said):
    texts = sentences_of(changed_inside(mean_ablation=[0.0] * 60, **{method: [4.0] * 60}))
    assert len(texts) == (said is not None)
    for text in texts:
        assert said in text and "; mean ablation 0: its mean" in text
