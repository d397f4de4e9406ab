"""Compiled programs: the network computes the program, and the stated circuit is the true one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.interp import circuits, known
from jaxformer.interp.known import Aggregate, back
from tests.interp.known.programs import (
    N_PAIRS,
    PROGRAMS,
    SHAPE,
    SUMS,
    SWAPPED,
    TWO_BACK,
    T,
    V,
    all_prompts,
    compiled,
    pairs_of,
    program_of,
    wiring_of,
)

BRUTE_FORCE = 12  # edges


def by_hand(name, tokens):
    """The answer to one prompt, written without the interpreter; None where there is none."""
    last, earlier = tokens[-1], tokens[1:]
    if name in ("copy", "copies", "shares", "backup", "cancelling", "useless"):
        return tokens[-3]
    if name == "table":
        return SWAPPED[tokens[-3]]
    if name == "logic":
        return SUMS[tokens[-3]][last]
    if name == "shift of shift":
        return tokens[-4]
    if name == "induction":
        return most_frequent([tokens[i] for i in range(1, T) if tokens[i - 1] == last])
    if name.startswith("count"):
        is_counted = {"equal": int.__eq__, "less": int.__lt__, "greater": int.__gt__}
        compare = is_counted[name.split()[1]]
        return sum(compare(int(token), int(last)) for token in earlier)
    if name == "next":
        return min((token for token in tokens if token > last), default=None)
    if name == "choose":
        return tokens[-2] if last == 5 else tokens[-3]
    assert name == "majority"
    return most_frequent(tokens)


def most_frequent(tokens):
    counts = np.bincount(tokens, minlength=V)
    return counts.argmax() if (counts == counts.max()).sum() == 1 else None


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_says_what_one_would_write_by_hand(name):
    tokens_BxT = all_prompts()
    answer_B = compiled(name).answers(tokens_BxT)
    expected = [by_hand(name, tokens) for tokens in tokens_BxT.tolist()]
    np.testing.assert_array_equal(answer_B, [np.nan if x is None else x for x in expected])
    assert np.isfinite(answer_B).mean() > 0.1 and len(set(answer_B[np.isfinite(answer_B)])) > 2


@pytest.mark.parametrize("seed", [None, 0])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_network_gives_the_answer_of_its_program_to_all_prompts(name, seed):
    network, tokens_BxT = compiled(name, seed), all_prompts()
    answer_B = network.answers(tokens_BxT)
    logits_BxV = apply(network, tokens_BxT)
    is_defined_B = np.isfinite(answer_B)
    np.testing.assert_array_equal(logits_BxV.argmax(-1)[is_defined_B], answer_B[is_defined_B])
    assert is_defined_B.any()


def apply(network, tokens_BxT):
    return np.asarray(jax.jit(network.model.apply)({"params": network.params}, tokens_BxT))[:, -1]


@pytest.mark.parametrize("ablation", circuits.ABLATIONS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_stated_circuits_are_those_of_brute_force(name, ablation):
    network = compiled(name)
    assert len(network.edges) <= BRUTE_FORCE
    stated = network.circuits[ablation]
    found = known.smallest(wiring_of(name, ablation), network.edges)
    assert set(found) == set(stated) and len(stated) == len(set(stated))


@pytest.mark.parametrize("ablation", circuits.ABLATIONS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_edges_that_no_part_reads_have_no_effect_at_all(name, ablation):
    wiring = wiring_of(name, ablation, seed=0)
    is_read_E = wiring.graph.chosen(compiled(name, 0).edges)
    only_B = wiring.scores(is_read_E[None])[0]
    np.testing.assert_allclose(only_B, wiring.whole_B, atol=1e-4)
    effects_E = np.abs(wiring.patch()).max(1)
    assert effects_E[~is_read_E].max() < 1e-4  # of logits of 8
    assert effects_E[is_read_E].max() > 1


@pytest.mark.parametrize("ablation", circuits.ABLATIONS)
@pytest.mark.parametrize(
    "name", ["induction", "copies", "shares", "backup", "choose", "cancelling"]
)
def test_effects_of_the_equations_are_those_of_the_network(name, ablation):
    network, wiring = compiled(name, 0), wiring_of(name, ablation, seed=0)
    effects = network.effects(pairs_of(name), ablation)
    without_CxB = wiring.without([[part] for part in wiring.parts])
    assert [*effects] == wiring.parts
    for part, without_B in zip(wiring.parts, without_CxB, strict=True):
        np.testing.assert_allclose(effects[part], wiring.whole_B - without_B, atol=1e-3)
    assert max(np.abs(effect).max() for effect in effects.values()) > 1


def test_circuits_in_words_queries_keys_and_values():
    prev, found = "block_0/attn/head_0", "block_1/attn/head_0"
    content = {
        ("embedded", f"{prev}/value"),
        (prev, f"{found}/key"),
        ("embedded", f"{found}/query"),
        ("embedded", f"{found}/value"),
        (found, "logits"),
    }
    circuit = compiled("induction").circuits
    assert circuit["resample"] == circuit["mean"] == (content,)
    wiring = {("embedded", f"{prev}/query"), ("embedded", f"{prev}/key")}
    assert circuit["zero"] == (content | wiring,)
    assert compiled("induction").roles == {prev: ["before: head"], found: ["answer: head"]}


def test_two_circuits_are_stated_where_both_are_equally_small():
    copies, backup = compiled("copies").circuits, compiled("backup").circuits
    assert [len(copies[ablation]) for ablation in circuits.ABLATIONS] == [1, 2, 2]
    assert [len(backup[ablation]) for ablation in circuits.ABLATIONS] == [1, 1, 2]
    main, other = backup["zero"]
    assert len(main) == len(other) and main != other


def test_three_copies_have_three_circuits_by_mean_and_a_hidden_effect():
    network = known.compile(known.Program(V, T, {"answer": known.Copies(TWO_BACK, 3)}), **SHAPE)
    assert [len(network.circuits[ablation]) for ablation in circuits.ABLATIONS] == [1, 3, 3]
    assert len(network.circuits["resample"][0]) == 7
    wiring = circuits.Wiring(network.model, network.params, *pairs_of("copy"), ablation="mean")
    assert set(known.smallest(wiring, network.edges)) == set(network.circuits["mean"])


def test_parts_of_one_block_share_its_mlp():
    steps = {
        "one": known.Table("token", SWAPPED),
        "two": known.Table("token", SWAPPED[:1] + SWAPPED[:0:-1]),
        "first": Aggregate(back(1), "one"),
        "answer": Aggregate(back(2), "two"),
    }
    network = known.compile(known.Program(V, T, steps), **SHAPE)
    assert network.roles["block_0/mlp"] == ["two: table", "one: table"] or (
        network.roles["block_0/mlp"] == ["one: table", "two: table"]
    )
    tokens_BxT = all_prompts()
    np.testing.assert_array_equal(
        apply(network, tokens_BxT).argmax(-1), network.answers(tokens_BxT)
    )


def test_a_network_may_return_a_number():
    steps = {
        "worth": known.Table("token", tuple(float(token) / 2 for token in range(V))),
        "answer": Aggregate(known.everything(), "worth"),
    }
    network = known.compile(known.Program(V, T, steps), **SHAPE)
    tokens_BxT = all_prompts()
    mean_B = tokens_BxT.mean(1) / 2
    np.testing.assert_allclose(network.answers(tokens_BxT), mean_B)
    np.testing.assert_allclose(apply(network, tokens_BxT)[:, 0], mean_B, atol=1e-5)
    pairs = network.sample(N_PAIRS)
    wiring = circuits.Wiring(network.model, network.params, *pairs, metric=network.metric)
    np.testing.assert_allclose(wiring.whole_B, network.answers(pairs.clean), atol=1e-5)
    assert set(known.smallest(wiring, network.edges)) == set(network.circuits["resample"])


def test_a_rotation_changes_weights_and_no_output():
    plain, turned = (
        known.compile(program_of("induction"), **SHAPE, seed=4, idle=1, rotated=rotated)
        for rotated in (False, True)
    )
    assert plain.circuits == turned.circuits
    tokens_BxT = all_prompts()
    np.testing.assert_allclose(apply(plain, tokens_BxT), apply(turned, tokens_BxT), atol=1e-4)
    kernels = [network.params["block_0"]["attn"]["out"]["kernel"] for network in (plain, turned)]
    assert (kernels[0] == 0).mean() > 0.5 and (kernels[1] == 0).mean() < 0.9
    used = jnp.abs(kernels[1]).max(0)
    assert (used > 1e-3).all()  # no number of the stream has a meaning of its own


def test_noise_moves_every_weight_by_its_share_and_the_answers_little():
    plain, noisy = (
        known.compile(program_of("induction"), **SHAPE, seed=4, rotated=True, noise=noise)
        for noise in (0.0, 0.02)
    )
    for name in ("query", "out"):
        kernel = np.asarray(plain.params["block_0"]["attn"][name]["kernel"])
        other = np.asarray(noisy.params["block_0"]["attn"][name]["kernel"])
        both = [plain.params[f"block_{b}"]["attn"][name]["kernel"] for b in (0, 1)]
        expected = 0.02 * np.sqrt(np.mean(np.square(both)))
        assert np.std(other - kernel) == pytest.approx(expected, rel=0.1)
    tokens_BxT = all_prompts()
    answer_B = noisy.answers(tokens_BxT)
    is_right_B = apply(noisy, tokens_BxT).argmax(-1) == answer_B
    assert is_right_B[np.isfinite(answer_B)].mean() > 0.95


def test_places_are_drawn_with_a_seed_and_the_first_ones_without():
    first, again = (known.compile(program_of("copy"), **SHAPE) for _ in range(2))
    assert first.roles == again.roles == {"block_0/attn/head_0": ["answer: head"]}
    drawn = {tuple(known.compile(program_of("copy"), **SHAPE, seed=s).roles) for s in range(8)}
    assert len(drawn) > 2


def test_sizes_are_those_that_the_program_needs_unless_they_are_given():
    spec = known.compile(program_of("induction")).model.spec
    # Tokens, positions, two variables of 7 values, and 6 numbers for idle parts.
    assert (spec.layers, spec.heads, spec.width) == (2, 1, 7 + 6 + 7 + 7 + 6)
    assert (spec.head_width, spec.gated) == (7, False)
    one_head = known.compile(known.Program(V, T, {"answer": known.Copies(TWO_BACK, 3)}), heads=1)
    assert one_head.model.spec.layers == 3
