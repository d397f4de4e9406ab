"""Sentences about several parts: redundancy, joint need, and how sure they are."""

import dataclasses
import json

import jax
import numpy as np
import pytest

import jaxformer
from jaxformer.core import paths
from jaxformer.core.errors import UserError
from jaxformer.interp import circuits, groups, known, mechanisms
from jaxformer.interp.components import Measured
from jaxformer.interp.removal import Removal
from jaxformer.models.decoder import decoder
from jaxformer.studies.anatomy import components, judge, together
from jaxformer.studies.anatomy.effects import Effect, interval
from jaxformer.studies.anatomy.head_writes import head_writes
from jaxformer.studies.anatomy.inside import Inside, measure
from jaxformer.studies.anatomy.labels import head_labels
from jaxformer.studies.anatomy.pairs import pairs_of_answers
from jaxformer.studies.anatomy.parts import FROZEN, ONLY, REMOVED, Variant
from jaxformer.studies.anatomy.report import Report
from tests.interp.test_groups import planted_network
from tests.studies.test_anatomy_judge import cells_of

SIZES = {"vocab_size": 12, "length": 12, "width": 16, "layers": 1, "heads": 1, "mlp_width": 1}
METHODS = ("mean ablation", "patching")


@pytest.fixture(scope="module")
def twins():
    return jaxformer.examine("known:twins", progress=False)


def test_heads_that_replace_each_other_are_said_to_do_so(twins):
    spare, pair_text = twins.group_sentences
    assert spare == (
        "Of the heads of block 0, heads 1 and 2 are not needed; of heads 0 and 3 one is needed; "
        "without all four (replaced by their means) the score falls by 4."
    )
    assert pair_text == (
        "Head 0 of block 0 and head 3 of block 0 replace each other: without both the score falls "
        "by 4, but not without one of them."
    )
    table = {(row["part"], row["method"]): row for row in twins.effect_table}
    pair = "head 0 of block 0 and head 3 of block 0"
    assert table[pair, "together beyond the sum"]["value"] > 3
    assert table["block_0/attn/head_0", "mean ablation"]["value"] == pytest.approx(0, abs=1e-4)
    for text in twins.group_sentences:
        assert text in str(twins) and text.replace(" ± ", "\u00a0±\u00a0") in twins.to_html()


def test_a_group_whose_loss_is_not_decided_may_still_go():
    parts = ("block_0/attn/head_0", "block_0/attn/head_1")
    spare = groups.Spare("the heads", parts, 2, True, False, groups.Interval(0.1, 0.2), "mean")
    texts = together.sentences([], [spare], score=mechanisms.LOGITS, n_networks=3)
    assert texts == ["Both of the heads can go together, over 3 trained networks."]


def planted_group(kinds, together_value, singles, parts=("block_0/attn/head_1", "block_1/mlp")):
    """A group whose views have these kinds, by (ablation, score), and the same numbers."""
    together_B, single_CxB = np.full(12, together_value), np.tile(np.array(singles)[:, None], 12)
    numbers = mechanisms.numbers_of(together_B, single_CxB, margin=0.4)
    keys = [(ablation, score) for ablation in circuits.ABLATIONS for score in mechanisms.SCORES]
    views = {key: numbers._replace(kind=kinds.get(key, "")) for key in keys}
    return mechanisms.Group(
        parts, views, mechanisms.agreed_kind({k: v.kind for k, v in views.items()})
    )


def everywhere(kind, *ablations, scores=mechanisms.SCORES):
    return {(ablation, score): kind for ablation in ablations for score in scores}


@pytest.mark.parametrize(
    "kinds, said",
    [
        (everywhere(mechanisms.REPLACE, "mean", "zero"), "replace each other: without both"),
        (everywhere(mechanisms.REPLACE, "mean", "resample"), "replace each other: without both"),
        (everywhere(mechanisms.REPLACE, "mean"), "; only mean ablation shows it"),
        (everywhere(mechanisms.REPLACE, "zero", "resample"), None),
        (
            everywhere(mechanisms.REPLACE, "mean", "zero", scores=[mechanisms.LOG]),
            "; the two scores disagree, since a log probability saturates",
        ),
    ],
)
def test_a_mechanism_is_named_where_two_scores_and_two_ablations_agree(kinds, said):
    group = planted_group(kinds, 8.0, (0.0, 0.0))
    texts = together.sentences([group], [], score=mechanisms.LOG)
    assert len(texts) == (said is not None)
    for text in texts:
        assert text.startswith("Head 1 of block 0 and the MLP of block 1") and said in text
        assert ("replace" in text) == ("replace" in said)


@pytest.mark.parametrize(
    "together_value, singles, kind",
    [
        (8.0, (0.0, 0.0), mechanisms.REPLACE),
        (8.0, (2.0, 2.0), mechanisms.REPLACE),
        (8.0, (8.0, 8.0), mechanisms.ONE_THING),
        (8.0, (5.0, 3.0), mechanisms.ADD_UP),
        (0.1, (5.0, -5.0), mechanisms.OFFSET),
        (0.1, (5.0, 5.0), mechanisms.OFFSET),
        (8.0, (8.0, 0.0), ""),  # the second does nothing
        (1.9, (2.0, -1.5), ""),  # the second works against the first
        (-1.0, (-0.9, -0.9), ""),  # the score rises without them
        (0.3, (0.1, 0.1), ""),  # less than counts
        (4.0, (8.0, 8.0), ""),  # together less than alone, but not nothing
    ],
)
def test_the_kind_of_a_group_follows_from_its_numbers(together_value, singles, kind):
    noise = np.random.default_rng(0).normal(size=12) * 0.05
    single_CxB = np.array(singles)[:, None] + noise
    found = mechanisms.numbers_of(together_value + noise, single_CxB, margin=0.4)
    assert found.kind == kind


def test_parts_that_work_on_different_prompts_are_told_from_parts_that_add_up():
    is_first_B = np.arange(60) < 6
    single_CxB = 4.0 * np.array([is_first_B, ~is_first_B])
    found = mechanisms.numbers_of(np.full(60, 4.0), single_CxB, margin=0.2)
    assert found.kind == mechanisms.DIFFERENT
    assert found.prompts == (6, 54) and found.on_them == pytest.approx((4, 4))
    kinds = everywhere(mechanisms.DIFFERENT, "mean", "zero")
    group = planted_group(kinds, 4.0, (1.0, 3.0))
    group = dataclasses.replace(group, views=dict.fromkeys(group.views, found))
    (text,) = together.sentences([group], [], score=mechanisms.LOGITS)
    assert text == (
        "Head 1 of block 0 and the MLP of block 1 work on different prompts: in logits, head 1 of "
        "block 0 is worth 4 on 6 of 60 prompts and the MLP of block 1 is worth 4 on 54 of 60 "
        "prompts."
    )


def test_one_pair_of_prompts_decides_no_kind():
    assert mechanisms.numbers_of(np.array([8.0]), np.zeros((2, 1)), margin=0.4).kind == ""


def test_parts_in_series_are_said_to_do_one_thing():
    report = jaxformer.examine("known:induction", progress=False)
    (text,) = [x for x in report.sentences if x.startswith("Head 2 of block 0 and head 1 of")]
    assert (
        "are needed for one thing: without both the score falls by " in text and ", not by " in text
    )


@pytest.mark.parametrize("n_networks", [6, pytest.param(100, marks=pytest.mark.slow)])
def test_the_report_is_right_about_planted_redundant_heads(n_networks):
    random = np.random.default_rng(1)
    words, undecided = {1: "one", 2: "two", 3: "three"}, 0
    for _ in range(n_networks):
        n_heads = int(random.integers(2, 5))
        needed = int(random.integers(1, n_heads + 1))
        network, heads = planted_network(random, n_heads, needed)
        removal = Removal(Measured(*network), "mean")
        found = groups.spare(removal, heads, name="the heads", level=0.99)
        start = "Each" if needed == n_heads else f"Any {words.get(n_heads - needed)}"
        start = "Either" if (n_heads, needed) == (2, 1) else start
        if not found.sentence:  # means of twelve prompts vary much
            undecided += 1
            continue
        assert found.sentence.startswith(f"{start} of the heads ")
        number = "both" if n_heads == 2 else {3: "all three", 4: "all four"}[n_heads]
        assert f"without {number} (replaced by their means)" in found.sentence
    assert undecided <= 0.05 * n_networks


def test_at_most_five_percent_of_sentences_about_a_loss_at_the_border_are_wrong():
    """All choices lose just more than what counts as none, so no part can go."""
    random, wrong, n_cases = np.random.default_rng(2), {1: 0, -1: 0}, 200

    class AtTheBorder:
        parts, ablation = ("a", "b", "c"), "mean"
        whole_B, nothing_B = np.ones(24), np.zeros(24)

        def __init__(self, sign):
            self.loss = groups.MARGIN + sign * 1e-6

        def without(self, chosen):
            return 1 - self.loss + random.normal(size=(len(chosen), 24)) * 0.1

    for _ in range(n_cases):
        for sign in wrong:
            found = groups.spare(AtTheBorder(sign), ("a", "b", "c"))
            is_true = found.spare == (0 if sign > 0 else 3)
            wrong[sign] += found.spare is not None and not is_true
    assert max(wrong.values()) <= 0.05 * n_cases


def test_effects_of_two_trainings_count_seeds_and_prompts():
    random = np.random.default_rng(0)
    values_NxB = random.normal(size=(3, 50)) + np.array([0.0, 1.0, 2.0])[:, None]
    mean, half, p = interval(values_NxB)
    assert mean == pytest.approx(values_NxB.mean())
    by_prompt, by_seed = interval(values_NxB.mean(0))[1], interval(values_NxB.mean(1))[1]
    assert by_seed * 0.9 < half < by_seed + by_prompt and by_prompt < by_seed
    assert p > interval(values_NxB[1])[2]
    # Networks that are equal have the error of the prompts only.
    assert interval(np.stack([values_NxB[0]] * 3))[1] == pytest.approx(interval(values_NxB[0])[1])


def test_effects_of_blocks_are_those_of_all_networks_and_heads_those_of_the_first():
    model, params, clean, corrupted, answers, _ = known.network("copy")
    other = known.network("useless").params
    pairs = pairs_of_answers(clean, corrupted, answers)
    first, second, both = (
        measure(model, p, pairs, methods=METHODS, others=others)
        for p, others in ((params, ()), (other, ()), (params, (other,)))
    )
    assert both.networks == 2
    for one, two, effect in zip(first.effects, second.effects, both.effects, strict=True):
        is_head = "/head_" in effect.part
        assert effect.networks == (1 if is_head else 2)
        expected = one.value if is_head else (one.value + two.value) / 2
        assert effect.value == pytest.approx(expected, abs=1e-4)
    by_group = {(x.part, x.method): x for x in both.groups}
    assert by_group["the heads of block 0", together.TOGETHER].networks == 2


def test_an_unknown_network_is_one_line():
    with pytest.raises(UserError, match="known network"):
        jaxformer.examine("known:coppy", progress=False)


@pytest.mark.parametrize(
    "name, expected",
    [
        ("induction", {"block_1/attn/head_1": "copy"}),  # head 2 of block 0 writes for this one
        (
            "cancel",
            {f"block_0/attn/head_{i}": x for i, x in enumerate(["copy"] * 2 + ["negative"])},
        ),
        ("useless", {"block_0/attn/head_0": "copy"}),  # head 1 writes where nothing reads
    ],
)
def test_heads_are_named_for_what_they_write(name, expected):
    network = known.network(name)
    found = head_writes(network.model, network.params)
    assert {head: label for head, (label, _) in found.items()} == expected
    assert min(share for _, share in found.values()) > 0.8


def test_heads_are_named_for_what_they_attend_to():
    network = known.network("induction")
    labels = head_labels(network.model, network.params)
    assert {head: label for head, (label, _) in labels.items()} == {
        "block_0/attn/head_2": "previous token",
        "block_1/attn/head_1": "induction",
    }
    assert min(share for _, share in labels.values()) > 0.6
    report = jaxformer.examine("known:induction", progress=False)
    assert any(text.startswith("Head 1 of block 1 (induction: ") for text in report.sentences)


def test_a_head_that_looks_at_a_fixed_distance_is_no_induction_head():
    """Its attention to the earlier copy comes from the distance at which the copy stands."""
    model = decoder(
        **SIZES, use_norm=False, use_mlp=False, positions="none", learned_positions=True
    )
    params = jax.jit(model.init)(jax.random.key(0), np.zeros((1, 12), int))["params"]
    flat = paths.flatten(params)
    place = np.eye(12)
    flat["embed/embedding"] = np.zeros((12, 16))
    flat["positions/embedding"] = np.pad(place, ((0, 0), (0, 4)))
    flat["block_0/attn/key/kernel"] = 40 * np.eye(16)
    for distance, label in ((5, "5 tokens back"), (1, "previous token"), (6, None)):
        shift = np.eye(16, k=-distance)
        labels = head_labels(
            model,
            paths.unflatten(flat | {"block_0/attn/query/kernel": shift}),
        )
        assert labels.get("block_0/attn/head_0", (None, 0))[0] == label


def planted_inside(**methods):
    effects = tuple(
        Effect("block_0/attn", name.replace("_", " "), value, 0.01, 50, 1e-9)
        for name, value in methods.items()
    )
    return Inside(
        0.0, 0.1, -5.0, 0.1, "log probability (nats)", 50, effects, (), {}, {}, smallest=0.2
    )


@pytest.mark.parametrize(
    "methods, end",
    [
        ({"mean_ablation": 1.1}, " nats."),
        (
            {"mean_ablation": 1.1, "resampling": 1.0, "patching": 1.2, "zero_ablation": 1.2},
            " nats.",
        ),
        (
            {"mean_ablation": 1.1, "resampling": 0.0, "patching": 0.0},
            "; resampling 0.000 ± 0.010 and patching 0.000 ± 0.010, probably because it does the "
            "same in both prompts of a pair.",
        ),
        (
            {"mean_ablation": 0.5, "resampling": 0.5, "patching": 8.0},
            "; patching +8.000 ± 0.010.",
        ),
        (
            {"mean_ablation": 0.5, "zero_ablation": 4.0},
            "; zero ablation +4.000 ± 0.010, because the network relies on its mean.",
        ),
    ],
)
def test_methods_that_differ_in_size_are_named_with_the_likely_reason(methods, end):
    inside = planted_inside(**methods)
    ((text, _),) = components.sentences(inside, components.decide(inside.effects))
    assert text.endswith(end)


def test_a_part_that_replaces_another_is_named_beside_its_patch():
    inside = planted_inside(mean_ablation=0.5, resampling=0.5, patching=8.0)
    group = planted_group(
        everywhere(mechanisms.REPLACE, "mean", "zero"),
        8.0,
        (0.0, 0.0),
        ("block_0/attn", "block_1/mlp"),
    )
    inside = dataclasses.replace(inside, mechanisms=(group,))
    ((text, _),) = components.sentences(inside, components.decide(inside.effects))
    assert text.endswith("; patching +8.000 ± 0.010, because the MLP of block 1 can replace it.")


def test_a_sentence_does_not_narrow_the_interval_that_was_measured():
    """.146 with one digit is .1, a third less."""
    inside = planted_inside(mean_ablation=0.0)
    effect = Effect("block_0/attn", "mean ablation", 4.083, 0.146, 50, 1e-9)
    inside = dataclasses.replace(inside, effects=(effect,))
    ((text, _),) = components.sentences(inside, components.decide(inside.effects))
    assert text.endswith(" of the right answer by 4.08 ± 0.15 nats.")


def test_effects_that_are_nothing_the_network_does_get_no_sentence():
    inside = planted_inside(mean_ablation=0.05, patching=0.1)
    decided = components.decide(inside.effects)
    assert decided[0].is_decided and components.sentences(inside, decided) == []


def test_a_report_that_decided_nothing_says_so_first_and_what_to_do():
    whole, cells = cells_of({Variant("MLP", FROZEN): -0.0395, Variant("MLP", REMOVED): -0.0395})
    report = Report(
        "Sort", judge.judge(whole, cells, 0.2), inside=planted_inside(mean_ablation=1.0)
    )
    text, page = str(report), report.to_html().replace("\u00a0", " ")
    first = "Nothing is decided about training yet: 2 of 2 comparisons are open. A larger budget"
    for output in (text, page):
        assert output.index(first) < output.index("Attention of block 0, replaced")
        assert (
            "One trained network: the intervals are over 50 prompts and not over seeds." in output
        )


def test_more_seeds_are_advised_where_they_would_be_examined():
    """One examined network beside three trained ones is that of a run."""
    for seeds in (1, 3):
        table = judge.judge(*cells_of({Variant("MLP", FROZEN): -0.04}, seeds=seeds), 0.2)
        page = Report("Sort", table, inside=planted_inside(mean_ablation=1.0)).to_html()
        advice = "With more seeds the trained networks are examined together."
        assert (advice in page) == ("What to do next" in page) == (seeds == 1)


def test_a_report_whose_decided_rows_have_no_sentence_does_not_say_that_all_are_open():
    """That one part alone is not enough has no sentence for each part."""
    shifts = {
        Variant("MLP", ONLY): -0.5,
        Variant("norms", ONLY): -0.6,
        Variant("MLP", FROZEN): -0.04,
    }
    report = Report("Sort", judge.judge(*cells_of(shifts), 0.2))
    assert [row["outcome"] for row in report.table] == ["worse", "worse", "open"]
    first = "No part that was trained alone is enough: 2 of 3 comparisons are decided."
    for output in (str(report), report.to_html()):
        assert first in output and "Nothing is decided" not in output


def test_the_json_of_a_report_has_score_unit_and_pairs(tmp_path):
    report = jaxformer.examine("known:copy", progress=False)
    report.save(tmp_path)
    record = json.loads((tmp_path / "anatomy.json").read_text())
    examined = record["examined"]
    assert examined["unit"] == "logit of right - wrong" and examined["pairs"] == 12
    assert examined["score"] == pytest.approx(4, abs=0.01) and examined["smallest_effect"] > 0
    assert record["costs"]["examination_seconds"] > 0 and record["whole_network"] is None
