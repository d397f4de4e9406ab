"""Curves of circuits beside their nulls, and what is said where there is nothing to explain."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxformer
from jaxformer import nulls
from jaxformer.core import paths
from jaxformer.core.errors import UserError
from jaxformer.interp import circuits, known
from jaxformer.interp.answers import Answers, margin
from jaxformer.interp.circuits import against_null
from tests.interp.test_circuits import OTHERS, TOKENS, Own

N_UNTRAINED = 8


@functools.cache
def toy():
    """The trained toy on induction, with 24 pairs of prompts whose answers differ."""
    model, params, _ = jaxformer.load("toy:induction")
    random = np.random.default_rng(0)
    clean, corrupted, right, wrong = [], [], [], []
    for _ in range(24):
        letters = random.permutation(26)[:7].tolist()
        exchanged = letters.copy()
        exchanged[4], exchanged[5] = letters[5], letters[4]
        clean.append(letters + letters[:4])
        corrupted.append(exchanged + exchanged[:4])
        right.append([letters[4]])
        wrong.append([letters[5]])
    position = np.full((24, 1), 10)
    answers = answers_of(position, right, wrong, np.ones((24, 1)))
    wiring = circuits.Wiring(
        model, params, jnp.array(clean), jnp.array(corrupted), answers, metric=margin
    )
    return model, wiring


def answers_of(*arrays):
    return Answers(*map(jnp.asarray, arrays))


def untrained(model, wiring, seed):
    return wiring.with_params(nulls.untrained(model, jax.random.key(100 + seed)))


@functools.cache
def trained_curve():
    return circuits.curve(toy()[1], sizes=[2, 5, 10])


def test_a_trained_network_does_more_than_its_null_and_its_curve_shows_both():
    curve = trained_curve()
    assert curve.sentence == ""
    network, of_nulls = curve.total.network, curve.total.null_means
    assert len(of_nulls) == 8
    assert network.mean - network.half_width > 3 * max(map(abs, of_nulls))
    rows = str(curve).splitlines()
    assert re.match(r"all edges together: [\d.]+ ± [\d.]+; in networks with block weights", rows[0])
    assert rows[1] == "edges chosen on 12 prompts, measured on 12 other prompts"
    assert rows[2].split() == ["edges", "share", "faithfulness", "random", "null"]
    last = curve.points[-1]
    assert last.faithfulness == pytest.approx(1) and max(map(abs, last.nulls)) < 0.3
    assert "null" in rows[-2] and rows[-1].startswith("area between the curve and 1")


def test_untrained_networks_are_refused_in_one_sentence():
    model, wiring = toy()
    sentences = []
    for seed in range(N_UNTRAINED):
        curve = circuits.curve(untrained(model, wiring, seed), sizes=[5], seed=seed)
        sentences.append(curve.sentence)
        if curve.sentence:
            assert curve.points == () and str(curve) == curve.sentence
            assert curve.sentence.endswith("there is nothing to explain.")
            assert "\n" not in curve.sentence
    assert sum(map(bool, sentences)) >= N_UNTRAINED - 1


def test_a_network_is_no_better_than_a_null_that_has_its_weights():
    """The total alone would pass: it is that of a trained network."""
    _, wiring = toy()
    own = [wiring.params] * 5
    curve = circuits.curve(wiring, sizes=[5], nulls=own)
    assert "the network does no better than its null" in curve.sentence
    assert "in networks with given nulls" in curve.sentence
    assert circuits.curve(wiring, sizes=[5], nulls=own[:2]).sentence  # also as points


def test_a_null_that_does_nothing_on_average_is_no_rival_however_much_its_prompts_vary():
    """Two nulls of SmolLM2 changed eight prompts by -3.7 and .9, with intervals around 0."""

    class Network:
        nothing_B = np.zeros(8)

        def __init__(self, whole_B):
            self.whole_B = np.asarray(whole_B)

    trained = Network([1.2, 2.1, 3.3, 4.0, 4.8, 6.0, 7.1, 7.9])
    noisy = Network([-14.0, 6.0, -12.0, 5.0, -13.0, 4.0, -10.0, 5.0])
    steady = Network([2.2, 3.1, 4.3, 3.0, 4.9, 5.0, 7.0, 8.9])
    assert against_null.total(trained, [noisy, noisy], "nulls").sentence == ""
    assert "no better than its null" in against_null.total(trained, [noisy, steady], "x").sentence


def test_an_error_of_a_total_that_contains_0_is_printed():
    model, wiring = toy()
    for seed in range(N_UNTRAINED):
        network = untrained(model, wiring, seed)
        total = circuits.curve(network, sizes=[5], nulls=0).total
        if not total.network.is_different_from_0:
            assert total.sentence == (
                f"all edges together change the score by {total.network}: there is nothing to "
                "explain."
            )
            return
    pytest.fail("all totals differ from 0")


def test_the_edges_are_chosen_on_prompts_that_do_not_measure():
    """A score that knows the measuring prompts alone would be best there."""
    _, wiring = toy()
    scores = wiring.patch()
    blind = scores.copy()
    blind[:, 1::2] = 0.0  # what the measuring prompts say does not count
    kept = [circuits.curve(wiring, x, sizes=[5], nulls=0) for x in (scores, blind)]
    assert kept[0].points == kept[1].points
    other = scores.copy()
    other[:, ::2] = np.random.default_rng(0).normal(size=other[:, ::2].shape)
    lost = circuits.curve(wiring, other, sizes=[5], nulls=0)
    assert lost.points[1].faithfulness < kept[0].points[1].faithfulness - 0.3
    same = circuits.curve(wiring, scores, sizes=[5], nulls=0, test=wiring)
    assert same.prompts == "edges chosen and measured on the same 24 prompts"
    assert str(same.points[1].ratio).count(" to ") == 1
    assert np.isfinite(same.points[1].ratio.low)  # 24 prompts have an interval, 12 have a range
    assert "single:" in str(kept[0].points[1].ratio)


def test_other_prompts_can_measure():
    _, wiring = toy()
    first, second = wiring.of_prompts(range(16)), wiring.of_prompts(range(16, 24))
    curve = circuits.curve(first, sizes=[5], test=second, nulls=2)
    assert curve.prompts == "edges chosen on 16 prompts, measured on 8 others"
    order = np.argsort(-np.abs(first.patch().mean(1)), kind="stable")
    chosen_E = np.isin(np.arange(wiring.n_edges), order[:5])
    restored_B = second.scores(chosen_E)[0] - second.nothing_B
    expected = restored_B.mean() / (second.whole_B - second.nothing_B).mean()
    assert curve.points[1].faithfulness == pytest.approx(expected, rel=1e-5)
    assert len(curve.points[1].nulls) == 2


def test_prompts_of_one_template_are_one_unit_of_the_interval():
    _, wiring = toy()
    clusters = [f"template {i // 6}" for i in range(24)]
    curve = circuits.curve(wiring, sizes=[5], clusters=clusters, nulls=0)
    assert curve.prompts == "edges chosen on 12 prompts, measured on 12 other prompts of 2 clusters"
    assert curve.points[1].ratio.n == 2
    with pytest.raises(UserError, match="expected a cluster for each of 24 prompts, got 3"):
        circuits.curve(wiring, sizes=[5], clusters="abc")


def test_a_random_circuit_of_the_same_size_restores_nothing():
    points = trained_curve().points
    assert [round(point.random, 2) for point in points[1:3]] == [0, 0]
    assert points[2].faithfulness > 0.3 and np.isnan(points[-1].random)


def test_the_areas_of_mib_have_their_names_at_its_sizes_only():
    _, wiring = toy()
    scores = wiring.patch()
    signed, absolute = (
        circuits.curve(wiring, scores, signed=is_signed, nulls=0) for is_signed in (True, False)
    )
    shares = [point.share for point in signed.points[1:]]  # without the point of no edge
    heights = [point.faithfulness for point in signed.points[1:]]
    assert signed.cpr == pytest.approx(float(np.trapezoid(heights, shares)))
    assert f"CPR {signed.area}" in str(signed) and "CMD" not in str(signed)
    assert f"CMD {absolute.distance}" in str(absolute) and "CPR" not in str(absolute)
    with pytest.raises(UserError, match="CPR of MIB has ten given sizes and signed=True"):
        _ = absolute.cpr
    with pytest.raises(UserError, match="CMD of MIB has ten given sizes and signed=False"):
        _ = trained_curve().cmd or circuits.curve(wiring, scores, [5], nulls=0).cmd


def test_hand_set_weights_do_more_than_their_nulls_although_these_have_large_scores():
    network = known.network("copy")
    wiring = circuits.Wiring(*network[:5])
    curve = circuits.curve(wiring, sizes=[3])
    assert curve.sentence == "" and curve.points[1].faithfulness == pytest.approx(1)


def test_a_module_of_a_user_has_nulls_too():
    model = jaxformer.wrap(Own(), vocab_size=11, length=6)
    params = model.init(jax.random.key(0), TOKENS)["params"]
    answers = answers_of(
        np.array([[4], [3], [4]]),
        np.array([[1], [2], [3]]),
        np.array([[2], [0], [5]]),
        np.ones((3, 1)),
    )
    wiring = circuits.Wiring(model, params, TOKENS, OTHERS, answers)
    other = wiring.with_params(nulls.redraw(params, ".*", jax.random.key(1)))
    fresh = circuits.Wiring(model, other.params, TOKENS, OTHERS, answers)
    np.testing.assert_allclose(other.patch(), fresh.patch(), atol=1e-5)
    part = wiring.of_prompts([2, 0])
    np.testing.assert_allclose(part.patch(), wiring.patch()[:, [2, 0]], atol=1e-5)
    circuits.curve(wiring, sizes=[2], nulls=2)  # three prompts, which are too few to split


@pytest.mark.parametrize("ablation", ["resample", "mean"])
def test_the_same_wiring_with_other_parameters_or_fewer_prompts_is_a_new_one(ablation):
    model, wiring = toy()
    wiring = circuits.Wiring(
        model,
        wiring.params,
        wiring.tokens_BxT,
        wiring.corrupted_BxT,
        wiring.answers,
        ablation=ablation,
        metric=margin,
    )
    params = nulls.untrained(model, jax.random.key(1))
    fresh = circuits.Wiring(
        model,
        params,
        wiring.tokens_BxT,
        wiring.corrupted_BxT,
        wiring.answers,
        ablation=ablation,
        metric=margin,
    )
    other = wiring.with_params(params)
    np.testing.assert_allclose(other.whole_B, fresh.whole_B, atol=1e-5)
    np.testing.assert_allclose(other.patch(), fresh.patch(), atol=1e-4)
    some = [5, 2, 11]
    part = wiring.of_prompts(some)
    np.testing.assert_allclose(part.patch(), wiring.patch()[:, some], atol=1e-4)


def test_bad_nulls_are_one_line():
    _, wiring = toy()
    flat = paths.flatten(wiring.params)
    first = next(path for path in flat if path.startswith("block_0") and path.endswith("kernel"))
    broken = paths.replace(wiring.params, {first: jnp.full_like(flat[first], jnp.nan)})
    with pytest.raises(UserError, match="null network 1: the score of some prompts is not finite"):
        circuits.curve(wiring, sizes=[5], nulls=[wiring.params, broken])
    with pytest.raises(UserError, match="nulls must be a number of draws, or a list"):
        circuits.curve(wiring, sizes=[5], nulls=wiring.params)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="nulls must be at least 0, got -1"):
        circuits.curve(wiring, sizes=[5], nulls=-1)
    other = circuits.Wiring(*known.network("copy")[:5])
    with pytest.raises(UserError, match="test is another network: it has 110 edges"):
        circuits.curve(wiring, sizes=[5], test=other)


def test_two_prompts_and_one_have_no_interval():
    _, wiring = toy()
    two = circuits.curve(wiring.of_prompts([0, 1]), sizes=[5], nulls=0)
    if not two.sentence:
        assert "(too few to hold any out)" in two.prompts and "single:" in str(two)
    one = circuits.curve(wiring.of_prompts([0]), sizes=[5], nulls=0)
    assert one.sentence == "" and "±" not in str(one) and "single" not in str(one)


def test_a_search_says_which_other_circuits_are_as_small():
    network = known.network("twins")
    wiring = circuits.Wiring(*network[:5], ablation="mean")
    found = circuits.find(wiring)
    assert found.completeness > 0.5  # something else does the same
    others = circuits.alternatives(wiring, found)
    assert {found.edges, *(other.edges for other in others)} == set(network.circuits["mean"])
    assert f"{len(found.edges)} edges; distance 0.000; completeness 1." in str(found)


def test_a_search_has_a_distance_on_prompts_that_it_did_not_see():
    _, wiring = toy()
    choosing, testing = wiring.of_prompts(range(6)), wiring.of_prompts(range(6, 24))
    found = circuits.find(choosing, 0.05, test=testing)
    kept_E = wiring.graph.chosen(found.edges)
    change_B = np.abs(testing.scores(kept_E)[0] - testing.whole_B)
    assert found.held_out == pytest.approx(change_B.mean() / testing.scale, rel=1e-4)
    assert found.held_out != found.distance
    assert "on held-out prompts" in str(found) and np.isnan(circuits.find(choosing, 0.05).held_out)
    with pytest.raises(UserError, match="test is another network"):
        circuits.find(wiring, test=circuits.Wiring(*known.network("copy")[:5]))
