"""Random networks of every kind: their answers, circuits and effects are what they say."""

import functools
import math

import jax
import numpy as np
import pytest

from jaxformer import capture
from jaxformer.core.errors import UserError
from jaxformer.interp import circuits, known
from jaxformer.interp.circuits.search import distances

KINDS = {
    "plain": {},
    "additive": dict(additive=2),
    "redundant": dict(redundancy=1),
    "cancelling": dict(cancelling=1),
    "backup": dict(backup=True),
    "conditional": dict(conditional=0.1),
}
SIZES = dict(heads=4, layers=2, idle=2)
N_PAIRS = 20
MAX_SETS = 10_000  # that brute force tries in a minute or two
MANY = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 10)]
SEARCHED = [
    pytest.param(seed, ablation, marks=pytest.mark.slow)
    for seed in range(2, 10)
    for ablation in circuits.ABLATIONS
]
CASES = [(kind, seed) for kind in KINDS for seed in (0, 1)]


@functools.cache
def drawn(kind, seed, noise=0.0):
    network = known.random(seed, **SIZES, **KINDS[kind], noise=noise)
    return network, network.sample(N_PAIRS, seed)


def wiring_of(kind, seed, ablation, noise=0.0):
    network, pairs = drawn(kind, seed, noise)
    return circuits.Wiring(network.model, network.params, *pairs, ablation=ablation)


@pytest.mark.parametrize("seed", [0, 1, *MANY])
@pytest.mark.parametrize("kind", KINDS)
def test_a_random_network_answers_right_and_says_its_kind(kind, seed):
    network, (clean, corrupted, answers) = drawn(kind, seed)
    assert network.kinds == (kind,)
    for tokens, expected in ((clean, answers[1]), (corrupted, answers[2])):
        logits_BxTxV = jax.jit(network.model.apply)({"params": network.params}, tokens)
        np.testing.assert_array_equal(logits_BxTxV[:, -1].argmax(-1), np.asarray(expected)[:, 0])


@pytest.mark.parametrize("ablation", circuits.ABLATIONS)
@pytest.mark.parametrize("seed", [0, *MANY])
@pytest.mark.parametrize("kind", KINDS)
def test_each_stated_circuit_keeps_the_score_and_none_of_its_edges_can_go(kind, seed, ablation):
    network, _ = drawn(kind, seed)
    wiring = wiring_of(kind, seed, ablation)
    for circuit in network.circuits[ablation]:
        assert circuit <= network.edges
        chosen_E = wiring.graph.chosen(circuit)
        assert distances(wiring, chosen_E[None])[0] < 1e-3
        assert min(circuits.minimality(wiring, circuit).values()) > 0.05


@pytest.mark.slow
@pytest.mark.parametrize("ablation", circuits.ABLATIONS)
@pytest.mark.parametrize("kind, seed", [(kind, seed) for kind in KINDS for seed in range(6)])
def test_the_stated_circuits_of_random_networks_are_those_of_brute_force(kind, seed, ablation):
    network, _ = drawn(kind, seed)
    stated = network.circuits[ablation]
    n_edges, n_kept = len(network.edges), len(stated[0])
    if sum(math.comb(n_edges, size) for size in range(n_kept + 1)) > MAX_SETS:
        pytest.skip(f"{n_kept} of {n_edges} edges take hours to try")
    found = known.smallest(wiring_of(kind, seed, ablation), network.edges)
    assert set(found) == set(stated)


@pytest.mark.parametrize("seed, ablation", [(1, "mean"), *SEARCHED])
@pytest.mark.parametrize("kind", KINDS)
def test_the_search_finds_a_stated_circuit_with_precision_and_recall_one(kind, seed, ablation):
    found = circuits.find(wiring_of(kind, seed, ablation))
    assert found.edges in drawn(kind, seed)[0].circuits[ablation]


@pytest.mark.parametrize("kind", KINDS)
def test_effects_follow_from_the_program_and_idle_parts_have_none(kind):
    network, pairs = drawn(kind, 0)
    for ablation in circuits.ABLATIONS:
        wiring = wiring_of(kind, 0, ablation)
        effects = network.effects(pairs, ablation)
        without_CxB = wiring.without([[part] for part in wiring.parts])
        for part, without_B in zip(wiring.parts, without_CxB, strict=True):
            np.testing.assert_allclose(effects[part], wiring.whole_B - without_B, atol=1e-3)
            if part not in network.roles:
                assert (effects[part] == 0).all()
    idle = [node for node in network.nodes if node not in network.roles]
    assert len(idle) >= SIZES["idle"]


def test_idle_heads_compute_something_that_differs_between_prompts():
    network, pairs = drawn("plain", 0)
    kept = capture.capture(network.model, network.params, pairs.clean, names=["block_./attn/heads"])
    varying = {
        f"block_{block}/attn/head_{head}"
        for block in range(2)
        for head in range(4)
        if kept[f"block_{block}/attn/heads"][:, -1, head].std(0).max() > 0.1
    }
    assert len(varying - network.roles.keys()) == SIZES["idle"]


@pytest.mark.parametrize("ablation", circuits.ABLATIONS)
@pytest.mark.parametrize("kind", ["redundant", "conditional"])
def test_with_noise_the_circuit_is_what_has_more_than_the_stated_effect(kind, ablation):
    network, _ = drawn(kind, 0, noise=0.03)
    assert network.tolerance == pytest.approx(0.07)
    wiring = wiring_of(kind, 0, ablation, noise=0.03)
    effects_E = np.abs(wiring.patch()).mean(1) / wiring.scale
    is_read_E = wiring.graph.chosen(network.edges)
    assert 0 < effects_E[~is_read_E].max() < network.tolerance  # every edge has some effect
    for circuit in network.circuits[ablation]:
        chosen_E = wiring.graph.chosen(circuit)
        assert 1e-3 < distances(wiring, chosen_E[None])[0] < network.tolerance
        assert min(circuits.minimality(wiring, circuit).values()) > network.tolerance


def test_all_networks_of_the_same_heads_and_layers_share_one_shape():
    models = {drawn(kind, seed)[0].model for kind, seed in CASES}
    assert len(models) == 1
    shapes = {
        str(jax.tree.map(np.shape, (drawn(kind, seed)[0].params, drawn(kind, seed)[1])))
        for kind, seed in CASES
    }
    assert len(shapes) == 1


def test_a_seed_decides_everything():
    first, again, other = (known.random(seed, **SIZES, backup=True) for seed in (7, 7, 8))
    assert first.program == again.program and first.circuits == again.circuits
    for leaf, same in zip(*map(jax.tree.leaves, (first.params, again.params)), strict=True):
        np.testing.assert_array_equal(leaf, same)
    assert other.circuits != first.circuits
    programs = [known.random(seed, **SIZES).program for seed in range(20)]
    assert len({str(program.steps) for program in programs}) > 12


def test_requests_that_cannot_be_drawn_are_one_line_errors():
    with pytest.raises(
        UserError, match="one kind, got redundancy and backup: give one of additive"
    ):
        known.random(0, redundancy=1, backup=True)
    with pytest.raises(UserError, match="no random program fits; the last one did not because"):
        known.random(0, layers=1, heads=1, backup=True)
    with pytest.raises(UserError, match="idle=12 heads need as many without a part"):
        known.random(0, heads=4, layers=3, idle=12)
    with pytest.raises(UserError, match="noise must be at most"):
        known.random(0, noise=0.5)
    with pytest.raises(UserError, match="of the prompts would be lost in noise"):
        known.random(0, conditional=0.05, noise=0.03)
    with pytest.raises(UserError, match="additive=1 head has nothing to add to"):
        known.random(0, additive=1)
    with pytest.raises(UserError, match="seed must be at least 0"):
        known.random(-1)
