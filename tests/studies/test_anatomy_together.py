"""Sentences about several parts: redundancy, joint need, and how sure they are."""

import numpy as np
import pytest

import jaxformer
from jaxformer.core.errors import UserError
from jaxformer.interp import groups, known
from jaxformer.interp.components import Measured
from jaxformer.interp.removal import Removal
from jaxformer.studies.anatomy import together
from jaxformer.studies.anatomy.effects import interval
from jaxformer.studies.anatomy.inside import measure
from jaxformer.studies.anatomy.pairs import pairs_of_answers
from tests.interp.test_groups import planted_network

METHODS = ("mean ablation", "patching")


@pytest.fixture(scope="module")
def twins():
    return jaxformer.examine("known:twins", progress=False)


def test_heads_that_replace_each_other_are_said_to_do_so(twins):
    spare, pair_text = twins.group_sentences
    assert spare.startswith("Any one of the heads of block 0 can go, but no more; without all four")
    assert pair_text == (
        "Head 0 of block 0 and head 3 of block 0 replace each other: without both the score falls "
        "by 4, but only by 0 in sum without each alone."
    )
    table = {(row["part"], row["method"]): row for row in twins.effect_table}
    pair = "head 0 of block 0 and head 3 of block 0"
    assert table[pair, "together beyond the sum"]["value"] > 3
    assert table["block_0/attn/head_0", "mean ablation"]["value"] == pytest.approx(0, abs=1e-4)
    for text in twins.group_sentences:
        assert text in str(twins) and text.replace(" ± ", "\u00a0±\u00a0") in twins.to_html()


def test_parts_in_series_are_said_to_do_one_thing():
    report = jaxformer.examine("known:induction", progress=False)
    (text,) = [x for x in report.sentences if x.startswith("Head 2 of block 0 and head 1 of")]
    assert (
        "are needed for one thing: without both the score falls by " in text and ", not by " in text
    )


@pytest.mark.parametrize("n_networks", [6, pytest.param(100, marks=pytest.mark.slow)])
def test_the_report_is_right_about_planted_redundant_heads(n_networks):
    random = np.random.default_rng(1)
    words = {1: "one", 2: "two", 3: "three"}
    for _ in range(n_networks):
        n_heads = int(random.integers(2, 5))
        needed = int(random.integers(1, n_heads + 1))
        network, heads = planted_network(random, n_heads, needed)
        removal = Removal(Measured(*network), "mean")
        found = groups.spare(removal, heads, name="the heads", level=0.99)
        start = "Each" if needed == n_heads else f"Any {words.get(n_heads - needed)}"
        start = "Either" if (n_heads, needed) == (2, 1) else start
        assert found.sentence.startswith(f"{start} of the heads ")
        number = "both" if n_heads == 2 else {3: "all three", 4: "all four"}[n_heads]
        assert f"without {number} (replaced by their means)" in found.sentence


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
