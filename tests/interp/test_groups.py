"""Parts that are removed together: redundancy, joint need, and the sentences about them."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer import capture
from jaxformer.core.errors import UserError
from jaxformer.interp import circuits, groups, known
from jaxformer.interp.answers import score
from jaxformer.interp.components import Measured, mean_of_prompts
from jaxformer.interp.known.builder import HIDDEN, VOCAB, Builder
from jaxformer.interp.removal import Removal
from tests.interp.test_capture import MODELS, OTHERS, TOKENS, params_of
from tests.interp.test_circuits import ANSWERS, wiring_of

WORDS = {1: "one", 2: "two", 3: "three", 4: "four"}
TWINS = ["block_0/attn/head_0", "block_0/attn/head_3"]


def planted_network(random, n_heads, needed):
    """A network in which some heads copy the previous token and `needed` of them suffice."""
    builder = Builder()
    heads = sorted(random.permutation(4)[:n_heads].tolist())
    for head in heads:
        builder.previous(0, head, "before")
    gate, threshold, out = (np.zeros(n) for n in ((VOCAB, HIDDEN), (1, HIDDEN), (HIDDEN, VOCAB)))
    for token in range(VOCAB):
        pair = [2 * token, 2 * token + 1]
        gate[token, pair] = 8
        threshold[0, pair] = 4 - 8 * needed, 3 - 8 * needed
        out[pair, token] = 1, -1
    linear = {"one": np.ones((1, HIDDEN))}
    builder.mlp(1, {"before": gate, "one": threshold}, linear, {"answer": out})
    model, params = builder.finish()
    clean = random.integers(0, VOCAB, (12, 8))
    corrupted = (clean + random.integers(1, VOCAB, (12, 8))) % VOCAB
    right, wrong = (np.repeat(x[:, -2:-1], 4, 1) for x in (clean, corrupted))
    answers = known.network("twins").answers  # they are scored at the last position only
    answers = answers._replace(target_BxK=jnp.array(right), against_BxK=jnp.array(wrong))
    network = model, params, clean, corrupted, answers
    return network, [f"block_0/attn/head_{head}" for head in heads]


@pytest.mark.parametrize("n_networks", [8, pytest.param(100, marks=pytest.mark.slow)])
def test_sentences_about_redundant_heads_are_right_in_all_planted_networks(n_networks):
    random = np.random.default_rng(0)
    for _ in range(n_networks):
        n_heads = int(random.integers(2, 5))
        needed = int(random.integers(1, n_heads + 1))
        network, heads = planted_network(random, n_heads, needed)
        wiring = circuits.Wiring(*network, ablation="zero")
        found = groups.spare(wiring, heads, name="the heads of block 0")
        assert found.spare == n_heads - needed and found.is_exact
        everything = "both" if n_heads == 2 else f"all {WORDS[n_heads]}"
        lost = f"without {everything} (set to zero) the score falls by {found.together}"
        number = WORDS[n_heads - needed] if needed < n_heads else ""
        heads_of = "of the heads of block 0"
        if needed == n_heads:
            expected = f"Each {heads_of} is needed; {lost}."
        elif needed == 1:
            first = "Either" if n_heads == 2 else f"Any {number}"
            expected = f"{first} {heads_of} can go, but not {everything}; {lost}."
        else:
            expected = f"Any {number} {heads_of} can go, but no more; {lost}."
        assert found.sentence == expected
        assert found.together.mean == pytest.approx(4, abs=1e-4)
        (joint,) = groups.joint_effects(wiring, {"heads": heads})
        singles = n_heads if needed == n_heads else 0
        assert joint.surplus.mean == pytest.approx(4 * (1 - singles), abs=1e-4)


def test_heads_that_do_nothing_can_all_go():
    idle = ["block_0/attn/head_1", "block_1/attn/head_2", "block_0/mlp"]
    found = groups.spare(wiring_of("twins", "zero"), idle, name="the idle parts")
    assert found.sentence == "All three of the idle parts can go together."


def test_resampled_twins_are_both_needed_because_the_mlp_cannot_tell_which_is_right():
    found = groups.spare(wiring_of("twins"), TWINS, name="the twins")
    assert found.spare == 0 and "(resampled)" in found.sentence


def test_groups_of_a_network_and_their_sums():
    joints = {joint.name: joint for joint in groups.joint_effects(wiring_of("twins", "mean"))}
    assert list(joints) == [
        *("the heads of block 0", "block 0", "the heads of block 1", "block 1"),
        *("the heads of all blocks", "all MLPs"),
    ]
    heads = joints["the heads of block 0"]
    assert heads.singles.mean == 0 and heads.together.mean > 3
    assert heads.surplus.mean - heads.surplus.half_width > 3  # they replace each other
    assert str(heads).startswith("the heads of block 0: together ")
    # Cutting both of what cancels costs nothing: the sum of single effects exaggerates.
    pair = {"pair": ["block_0/attn/head_1", "block_0/attn/head_2"]}
    (cancelling,) = groups.joint_effects(wiring_of("cancel", "zero"), pair)
    assert cancelling.together.mean == pytest.approx(0, abs=1e-5)


def test_a_small_budget_searches_greedily_and_says_so():
    heads = [f"block_0/attn/head_{i}" for i in range(4)]
    wiring = wiring_of("twins", "zero")
    found = groups.spare(wiring, heads, name="the heads of block 0", budget=10)
    assert not found.is_exact and found.spare == 3
    assert found.sentence.startswith("The least missed three of the heads of block 0 can go")
    assert groups.spare(wiring, heads, budget=15).is_exact


class Lossy:
    """Parts a, b, c, .. whose removed groups lose what a function of their names says."""

    ablation, whole_B, nothing_B = "zero", np.full(24, 1.0), np.zeros(24)

    def __init__(self, n, loss_of, spread=0.001):
        self.parts, self.loss_of, self.spread = tuple("abcdefgh"[:n]), loss_of, spread
        self.random = np.random.default_rng(2)

    def without(self, groups):
        losses_Cx1 = np.array([[self.loss_of("".join(sorted(group)))] for group in groups])
        return 1 - losses_Cx1 - self.spread * self.random.normal(size=(len(groups), 24))


def test_parts_that_offset_each_other_are_not_said_to_be_needed():
    """Each of two opposite parts is missed, but not both."""
    found = groups.spare(Lossy(2, {"a": 0.5, "b": 0.5, "ab": 0.0}.get), ["a", "b"], name="the pair")
    assert found.spare is None and found.sentence == ""


def test_a_greedy_search_does_not_say_that_no_other_choice_can_go():
    """The least missed part is a, but b, c and d can go together without it."""

    def loss(group):
        return 0.0 if group in ("a", *"bcd", "bc", "bd", "cd", "bcd") else 0.5

    network = Lossy(4, loss, spread=0.0)
    network.random = np.random.default_rng(3)
    found = groups.spare(network, network.parts, name="the four", budget=10)
    assert not found.is_exact and found.spare == 1
    assert found.sentence == (
        "The least missed one of the four can go, and a greedy search found no two that can; "
        "without all four (set to zero) the score falls by 0.5."
    )


def test_the_largest_of_many_losses_has_its_share_of_the_error():
    """Any four of eight parts can go, just so; one of 70 choices may look as if it could not."""

    def loss(group):
        return {4: groups.MARGIN - 1e-6}.get(len(group), float(len(group) > 4))

    class AtTheBorder(Lossy):
        def without(self, groups):
            spread_Cx1 = np.array([[0.1 if len(group) == 4 else 0.001] for group in groups])
            noise_CxB = self.random.normal(size=(len(groups), 24))
            return super().without(groups) - spread_Cx1 * noise_CxB

    network = AtTheBorder(8, loss)
    wrong = sum(groups.spare(network, network.parts).spare == 3 for _ in range(60))
    assert wrong <= 3


def test_prompts_that_disagree_decide_nothing():
    random = np.random.default_rng(1)

    class Prompts:
        """Heads whose removal costs .1 of the score on average, with a wide spread."""

        whole_B, nothing_B, ablation = np.full(6, 1.0), np.zeros(6), "mean"
        parts = wiring_of("twins").parts
        noise_B = random.normal(size=6) * 0.3

        def without(self, groups):
            return 0.9 + self.noise_B[None].repeat(len(groups), 0)

    found = groups.spare(Prompts(), TWINS, name="the twins")
    assert found.spare is None and found.sentence == ""


def test_bad_groups_are_one_line_errors():
    wiring = wiring_of("twins", "zero")
    for problem, parts in (
        ("has block_0/attn/head_0 twice", [TWINS[0], TWINS[0]]),
        ("needs two parts or more, got 1: no head is left", TWINS[:1]),
        ("needs two parts or more, got 0: no head is left", []),
        (
            "no part 'block_0/attn/head_9'.* Did you mean 'block_0/attn/head_",
            ["block_0/attn/head_9"],
        ),
        ("must be a sequence of parts", "block_0/mlp"),
    ):
        with pytest.raises(UserError, match=problem):
            groups.joint_effects(wiring, {"twins": parts})
    with pytest.raises(UserError, match="budget must be at least 1"):
        groups.spare(wiring, TWINS, budget=0)
    with pytest.raises(UserError, match="a budget of 1 runs is too small for 2 parts"):
        groups.spare(wiring, TWINS, budget=1)


@pytest.mark.parametrize("ablation", ["mean", "resample", "zero"])
def test_removing_components_is_cutting_all_edges_that_leave_them(ablation):
    wiring = wiring_of("twins", ablation)
    network = known.network("twins")
    measured = Measured(*network[:5])
    removal = Removal(measured, ablation)
    assert sorted(removal.parts) == sorted(wiring.parts)
    chosen = [TWINS, TWINS[:1], ["block_1/mlp", "block_0/mlp"], ["block_1/attn/head_2"], []]
    np.testing.assert_allclose(removal.without(chosen), wiring.without(chosen), atol=1e-4)
    np.testing.assert_allclose(removal.nothing_B, wiring.nothing_B, atol=1e-4)
    np.testing.assert_allclose(removal.whole_B, wiring.whole_B, atol=1e-4)
    for network_without in (removal, wiring):  # a network of one part has no groups
        assert network_without.without([]).shape == (0, len(network.clean))
    # A part in one group changes no other group.
    np.testing.assert_array_equal(removal.without(chosen)[-1], removal.whole_B)


def test_a_trained_decoder_loses_what_an_intervention_takes_away():
    model, params = MODELS["decoder"], params_of("decoder")
    measured = Measured(model, params, np.asarray(TOKENS), np.asarray(OTHERS), ANSWERS)
    parts = ["block_0/attn/head_1", "block_1/mlp"]
    found = Removal(measured, "zero").without([parts])[0]
    heads = capture.capture(model, params, TOKENS, names=["block_0/attn/heads"])
    cut = heads["block_0/attn/heads"].at[:, :, 1].set(0)
    logits = capture.intervene(
        model, params, TOKENS, {"block_0/attn/heads": cut, "block_1/mlp/output": 0}
    )
    rows = np.arange(len(TOKENS))[:, None]
    np.testing.assert_allclose(found, score(logits[rows, ANSWERS.position_BxK], ANSWERS), atol=1e-5)


def test_the_mean_of_large_activations_is_finite_in_half_precision():
    """Published models have activations of a thousand, and a sum of 128 is beyond float16."""
    large = jnp.full((64, 2, 1), 1000, jnp.float16)
    mean = mean_of_prompts(large, large, jnp.ones((64, 2), bool))
    assert mean.dtype == jnp.float16 and (mean == 1000).all()
