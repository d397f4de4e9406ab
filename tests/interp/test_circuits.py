"""Circuits: edges, their exact effects and attributions, on networks whose circuit is known."""

import functools
import json
import re
import sys
from xml.etree import ElementTree

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxformer
from jaxformer import capture
from jaxformer.core.errors import UserError
from jaxformer.interp import circuits, known
from jaxformer.interp.answers import Answers, score
from jaxformer.interp.circuits import running, scoring
from jaxformer.models.activation_points import tap
from jaxformer.models.pretrained.tiny import tiny
from tests.interp.test_capture import DECODER, MODELS, OTHERS, TOKENS, params_of
from tests.models.tiny_configs import CONFIGS

STEPS = 20  # the hand-set networks have steep thresholds
ANSWERS = Answers(
    np.array([[4], [3], [4]]), np.array([[1], [2], [3]]), np.array([[2], [0], [5]]), np.ones((3, 1))
)


@functools.cache
def wiring_of(name, ablation="resample"):
    model, params, clean, corrupted, answers, _ = known.network(name)
    return circuits.Wiring(model, params, clean, corrupted, answers, ablation=ablation)


def any_circuit(name, ablation):
    """Returns booleans over edges, true in any of the smallest circuits."""
    return wiring_of(name, ablation).graph.chosen(
        set().union(*known.network(name).circuits[ablation])
    )


def random_wiring(name, ablation="resample"):
    if name in MODELS:
        model, params = MODELS[name], params_of(name)
    else:
        model, params, _ = tiny(CONFIGS[name], 11)
        params = jax.tree.map(jnp.asarray, params)
    return circuits.Wiring(model, params, TOKENS, OTHERS, ANSWERS, ablation=ablation)


@pytest.mark.parametrize("name", known.NETWORKS)
def test_the_known_networks_solve_their_tasks(name):
    network = known.network(name)
    logits = network.model.apply({"params": network.params}, network.clean)
    position_BxK, target_BxK, _, weight_BxK = network.answers
    guess_BxK = np.take_along_axis(np.asarray(logits).argmax(-1), position_BxK, 1)
    assert (guess_BxK == target_BxK)[weight_BxK > 0].all()


@pytest.mark.parametrize("ablation", circuits.ABLATIONS)
@pytest.mark.parametrize("name", known.NETWORKS)
def test_the_search_finds_the_known_circuit_with_precision_and_recall_one(name, ablation):
    found = circuits.find(wiring_of(name, ablation))
    assert found.edges in known.network(name).circuits[ablation]
    assert found.is_finished and found.distance < 1e-6
    assert min(circuits.minimality(wiring_of(name, ablation), found.edges).values()) > 0.05


@pytest.mark.parametrize("ablation", circuits.ABLATIONS)
@pytest.mark.parametrize("name", known.NETWORKS)
@pytest.mark.filterwarnings("ignore:the attributions of all edges miss")  # twins, by 47 %
def test_the_strongest_attributions_are_the_known_edges(name, ablation):
    wiring = wiring_of(name, ablation)
    scores_E = np.abs(wiring.attribute(STEPS).mean(1))
    is_true_E = any_circuit(name, ablation)
    strongest_E = np.argsort(-scores_E, kind="stable")[: is_true_E.sum()]
    assert is_true_E[strongest_E].mean() >= 0.9  # precision, which is recall at this size


def test_edges_of_useless_parts_have_no_effect_although_the_parts_compute_something():
    wiring = wiring_of("useless")
    is_true_E = any_circuit("useless", "resample")
    effects_E = np.abs(wiring.patch()).max(1)
    assert (effects_E[~is_true_E] == 0).all() and (effects_E[is_true_E] > 1).all()
    junk = capture.capture(
        *(wiring.model, wiring.params, wiring.tokens_BxT), names=["block_0/attn/heads"]
    )["block_0/attn/heads"]
    assert (jnp.abs(junk).max((0, 1, 3)) > 0.1).all()


def test_twins_hide_each_other_and_only_completeness_tells():
    wiring = wiring_of("twins", "mean")
    heads_E = np.array(["head_0" in str(e) or "head_3" in str(e) for e in wiring.edges])
    heads_E &= any_circuit("twins", "mean")
    assert (wiring.patch()[heads_E] == 0).all()
    assert not wiring.scores(~heads_E[None]).any()  # without both, nothing is left
    one, other = known.network("twins").circuits["mean"]
    assert circuits.completeness(wiring, one) > 0.5
    assert circuits.completeness(wiring, one | other) < 1e-6


def test_heads_that_cancel_matter_alone_and_go_together():
    wiring = wiring_of("cancel", "zero")
    pair = [("block_0/attn/head_1", "logits"), ("block_0/attn/head_2", "logits")]
    effects = dict(zip(wiring.edges, np.abs(wiring.patch()).max(1), strict=True))
    assert all(effects[edge] > 1 for edge in pair)
    everything = set(wiring.edges)
    np.testing.assert_allclose(
        wiring.circuit_scores(everything - set(pair)), wiring.whole_B, atol=1e-5
    )
    unfinished = circuits.find(wiring, budget=wiring.n_edges)
    assert not unfinished.is_finished and set(pair) <= unfinished.edges


def test_the_trained_toy_has_an_induction_circuit():
    model, params, config = jaxformer.load("toy:induction")
    random, letters = np.random.default_rng(0), len(config["alphabet"])
    # Half of the letters, then the first six again: the answer is the seventh.
    first, second = (np.stack([random.permutation(letters)[:12] for _ in range(16)]) for _ in "ab")
    clean, corrupted = (np.concatenate([x, x[:, :6]], 1) for x in (first, second))
    answers = Answers(np.full((16, 1), 17), first[:, 6:7], second[:, 6:7], np.ones((16, 1)))
    wiring = circuits.Wiring(model, params, clean, corrupted, answers, ablation="mean")
    found = circuits.find(wiring, tolerance=0.1)
    # What passes from block 0 to block 1 is read as keys only, by one induction head.
    between = {e.reader for e in found.edges if "block_0" in e.source and e.reader != "logits"}
    assert between == {"block_1/attn/head_0/key"}
    assert len(found.edges) < wiring.n_edges / 2


# Rotary and norms; norms after sums; grouped queries with norms of outputs; a parallel block.
@pytest.mark.parametrize("name", ["decoder", "encoder", "gemma2", "gpt_neox"])
def test_an_edge_patch_is_a_path_patch(name):
    wiring = random_wiring(name)
    everything, nothing = np.ones(wiring.n_edges, bool), np.zeros(wiring.n_edges, bool)
    for chosen_E, tokens in ((everything, TOKENS), (nothing, OTHERS)):
        logits = wiring.model.apply({"params": wiring.params}, tokens)
        expected_B = score(jnp.take_along_axis(logits, ANSWERS[0][..., None], 1), wiring.answers)
        np.testing.assert_allclose(wiring.scores(chosen_E[None])[0], expected_B, atol=1e-5)

    def last_score(logits):
        return score(jnp.take_along_axis(logits, ANSWERS[0][..., None], 1), wiring.answers)

    edge = circuits.Edge("block_0/attn/head_1", "block_1/attn/head_0/query")
    patched_B = capture.path_patch(
        *(wiring.model, wiring.params, OTHERS, TOKENS, ("block_0/attn/heads", 1)),
        *(("block_1/attn/queries", 0), last_score),
    )
    effect_B = wiring.patch()[wiring.edges.index(edge)]
    np.testing.assert_allclose(wiring.whole_B - effect_B, patched_B, atol=1e-5)
    assert np.abs(effect_B).max() > 1e-4


def test_a_parallel_mlp_does_not_read_the_attention_of_its_block():
    edges = random_wiring("gpt_neox").edges
    readers = {edge.reader for edge in edges if edge.source == "block_0/attn/head_0"}
    assert "block_0/mlp" not in readers and "block_1/mlp" in readers
    edges = random_wiring("gpt2").edges
    assert ("block_0/attn/head_0", "block_0/mlp") in edges


def test_load_gives_a_known_network():
    model, params, config = jaxformer.load("known:copy")
    assert model == known.network("copy").model and config == {"known": "copy"}
    assert params["unembed"]["kernel"].shape == (model.spec.width, known.builder.VOCAB)
    with pytest.raises(UserError, match="Did you mean 'copy'"):
        jaxformer.load("known:cpoy")


def test_heads_that_share_keys_share_a_reader():
    readers = random_wiring("gemma2").graph.readers
    assert "block_0/attn/head_3/query" in readers and "block_0/attn/group_1/key" in readers


@pytest.mark.parametrize("ablation", ["resample", "mean"])
def test_attributions_of_all_edges_sum_to_the_effect_of_all_edges(ablation):
    wiring = random_wiring("decoder", ablation)
    total_B = wiring.attribute(50).sum(0)
    np.testing.assert_allclose(total_B, wiring.whole_B - wiring.nothing_B, atol=0.02)
    with pytest.raises(UserError, match="steps must be"):
        wiring.attribute(0)


def test_attributions_that_miss_most_of_the_effect_are_a_warning():
    # A norm gives the same output for half of its input, so all gradients along this path are 0.
    with pytest.warns(UserWarning, match="miss .*ablation='zero' no number of steps suffices"):
        random_wiring("decoder", "zero").attribute(5)


def test_faithfulness_goes_from_zero_to_one_with_the_area_under_it():
    wiring = wiring_of("induction")
    curve = circuits.curve(wiring, wiring.patch(), sizes=[2, 5, 55], nulls=0)
    assert [point.size for point in curve.points] == [0, 2, 5, 55, 110]
    values = [point.faithfulness for point in curve.points]
    assert values[0] == 0 and values[2:] == pytest.approx([1, 1, 1])
    # By hand: two trapezoids up to the whole circuit, then a rectangle of height 1.
    n, f = wiring.n_edges, values[1]
    expected = (2 * f / 2 + 3 * (1 + f) / 2 + (n - 5)) / n
    assert curve.area.value == pytest.approx(expected)
    assert curve.distance.value == pytest.approx(1 - expected)
    assert "area under the curve 0.9" in str(curve) and "CPR" not in str(curve)


def test_a_circuit_is_written_as_json_csv_and_picture(tmp_path):
    wiring = wiring_of("induction")
    (circuit,) = known.network("induction").circuits["resample"]
    effects = wiring.patch()
    curve = circuits.curve(wiring, effects, sizes=[5], nulls=0)
    circuits.to_json(tmp_path / "c.json", wiring, circuit, effects, curve)
    stored = json.loads((tmp_path / "c.json").read_text())
    assert {(row["source"], row["reader"]) for row in stored["circuit"]} == circuit
    assert stored["area"]["value"] == curve.area.value and stored["curve"][1]["size"] == 5
    assert stored["total"]["network"]["mean"] == pytest.approx(8, abs=0.1)
    assert all(row["score"] > row["half_width"] >= 0 for row in stored["circuit"])
    circuits.to_csv(tmp_path / "c.csv", wiring, effects)
    lines = (tmp_path / "c.csv").read_text().splitlines()
    assert len(lines) == 1 + wiring.n_edges and lines[0] == "source,reader,score,half_width"
    circuits.to_svg(tmp_path / "c.svg", wiring, circuit)
    svg = ElementTree.parse(tmp_path / "c.svg").getroot()
    titles = {title.text for title in svg.iter("{http://www.w3.org/2000/svg}title")}
    assert {str(circuits.Edge(*edge)) for edge in circuit} < titles
    assert "block_0/attn/head_0" not in titles  # only the parts of the circuit are drawn


class Own(nn.Module):
    """A module of a user: its MLPs have addresses because they call `tap`."""

    @nn.compact
    def __call__(self, tokens):
        x = tap(self, "embedded", nn.Embed(11, 8)(tokens))
        for i in range(2):
            x = x + Branch(name=f"mlp_{i}")(x)
        return nn.Dense(11)(x)


class Branch(nn.Module):
    @nn.compact
    def __call__(self, x):
        return tap(self, "output", nn.tanh(nn.Dense(8)(x)))


def test_a_module_of_a_user_has_the_nodes_that_it_taps():
    model = jaxformer.wrap(Own(), vocab_size=11, length=6)
    params = model.init(jax.random.key(0), TOKENS)["params"]
    wiring = circuits.Wiring(model, params, TOKENS, OTHERS, ANSWERS)
    assert [*map(str, wiring.edges)] == [
        "embedded -> mlp_0",
        "embedded -> mlp_1",
        "mlp_0 -> mlp_1",
        "embedded -> logits",
        "mlp_0 -> logits",
        "mlp_1 -> logits",
    ]
    total_B = wiring.attribute(50).sum(0)
    np.testing.assert_allclose(total_B, wiring.whole_B - wiring.nothing_B, atol=0.02)


class Untapped(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        return nn.Dense(11)(nn.Embed(11, 8)(tokens))


def constant(logits, answers):
    return jnp.zeros(len(logits))


def test_bad_inputs_are_one_line_errors():
    params = params_of("decoder")
    valid = DECODER, params, TOKENS, OTHERS, ANSWERS
    with pytest.raises(UserError, match=r"one shape .* got \(3, 5\) and \(3, 4\): .*one length"):
        circuits.Wiring(DECODER, params, TOKENS, OTHERS[:, :4], ANSWERS)
    with pytest.raises(
        UserError, match="have 2 to 3 tokens: a circuit needs prompts of one length"
    ):
        circuits.Wiring(DECODER, params, [[1, 2], [1, 2, 3]], OTHERS, ANSWERS)
    with pytest.raises(UserError, match="but Decoder knows no tokenizer"):
        circuits.Wiring(DECODER, params, ["a text"], OTHERS, ANSWERS)
    with pytest.raises(UserError, match="it is constant, so no edge can matter"):
        circuits.Wiring(*valid, metric=constant)
    with pytest.raises(UserError, match="Did you mean 'resample'"):
        circuits.Wiring(*valid, ablation="resampel")
    untapped = jaxformer.wrap(Untapped(), vocab_size=11, length=6)
    with pytest.raises(UserError, match="Wrapped has no"):
        own = untapped.init(jax.random.key(0), TOKENS)["params"]
        circuits.Wiring(untapped, own, TOKENS, OTHERS, ANSWERS)
    wiring = wiring_of("copy")
    missing = (
        "the network has no edge embedded -> block_0/mpl. Did you mean 'embedded -> block_0/mlp'"
    )
    with pytest.raises(UserError, match=re.escape(missing)):
        wiring.circuit_scores([("embedded", "block_0/mpl")])
    with pytest.raises(UserError, match=r"size of a circuit must be .* 110, got 111"):
        circuits.curve(wiring, wiring.patch(), sizes=[111])
    with pytest.raises(UserError, match="expected a score for each of 110 edges"):
        circuits.curve(wiring, np.ones(7))
    scores = np.ones(110)
    scores[0] = np.nan
    with pytest.raises(
        UserError, match="score of embedded -> block_0/attn/head_0/query is not fin"
    ):
        circuits.curve(wiring, scores)
    with pytest.raises(UserError, match="budget must be at least 1"):
        circuits.find(wiring, budget=0)
    with pytest.raises(UserError, match="the circuit has no edge"):
        circuits.minimality(wiring, [])


def test_a_nan_in_an_edge_names_the_edge():
    wiring = wiring_of("copy")
    effects = np.zeros((wiring.n_edges, 2))
    effects[3, 1] = np.nan
    with pytest.raises(UserError, match=f"the first is {wiring.edges[3]}"):
        wiring._checked(effects)


# Bias terms, learned positions; groups of heads; a parallel block; and blocks with a scaled branch.
# Published families are run block by block in the quick suite too, where a patch is a path patch.
@pytest.mark.parametrize(
    "name",
    [
        pytest.param("gpt2", marks=pytest.mark.slow),
        pytest.param("llama", marks=pytest.mark.slow),
        pytest.param("gpt_neox", marks=pytest.mark.slow),
        "decoder",
    ],
)
def test_blocks_one_by_one_equal_the_whole_network(name):
    wiring = random_wiring(name, "zero")
    assert type(wiring.network).__name__ == "Blockwise"
    whole = running.Whole(wiring.setting)
    chosen_CxE = np.random.default_rng(0).random((3, wiring.n_edges)) < 0.6
    masks_CxRxS = np.moveaxis(wiring.graph.mask(chosen_CxE.T), -1, 0)
    expected_CxBxKxV = whole.logits(masks_CxRxS)
    np.testing.assert_allclose(wiring.network.logits(masks_CxRxS), expected_CxBxKxV, atol=1e-5)
    assert np.ptp(expected_CxBxKxV, axis=0).max() > 0.01

    def slope(logits_BxKxV):
        return scoring.slope(score, logits_BxKxV, wiring.answers)

    is_edge = wiring.graph.exists_RxS
    slopes, expected = (network.slopes(0.5, slope)[is_edge] for network in (wiring.network, whole))
    np.testing.assert_allclose(slopes, expected, atol=1e-4)
    assert np.abs(expected).max() > 0.1


factor = 1.0  # what `scaled` reads


def scaled(logits_BxKxV, answers):
    return factor * score(logits_BxKxV, answers)


@pytest.mark.parametrize("kind", ["Blockwise", "Whole"])
def test_a_metric_that_reads_a_changed_variable_scores_anew(kind, monkeypatch):
    model = MODELS["decoder" if kind == "Blockwise" else "encoder"]
    params = params_of("decoder" if kind == "Blockwise" else "encoder")
    once, twice = {}, {}
    for found, number in ((once, 1.0), (twice, 2.0)):
        monkeypatch.setattr(sys.modules[__name__], "factor", number)
        wiring = circuits.Wiring(model, params, TOKENS, OTHERS, ANSWERS, metric=scaled)
        assert type(wiring.network).__name__ == kind
        found |= {
            "whole": wiring.whole_B,
            "slopes": wiring.attribute(STEPS),
            "edges": wiring.patch(),
        }
    for name, value in once.items():
        assert np.abs(value).max() > 1e-3
        np.testing.assert_allclose(twice[name], 2 * value, rtol=1e-3, atol=1e-5)
    # The same wiring follows as well.
    monkeypatch.setattr(sys.modules[__name__], "factor", 1.0)
    np.testing.assert_allclose(wiring.patch(), once["edges"], rtol=1e-3, atol=1e-5)


def test_a_metric_of_a_circuit_that_forgets_a_token_is_a_one_line_error():
    arguments = DECODER, params_of("decoder"), TOKENS, OTHERS, ANSWERS
    with pytest.raises(UserError, match=r"one number for each of the 3 prompts.*\(3, 11\)"):
        circuits.Wiring(*arguments, metric=lambda logits_BxKxV, answers: logits_BxKxV[:, 0])
