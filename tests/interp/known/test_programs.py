"""Programs that are none, and networks that do not fit, are errors of one line."""

import numpy as np
import pytest

from jaxformer.core.errors import UserError
from jaxformer.interp import known
from jaxformer.interp.known import Aggregate, back, equal
from tests.interp.known.programs import SHAPE, SUMS, TWO_BACK, T, V, compiled, program_of, wiring_of

NUMBERS = known.Table("token", (0.5,) * V)


def refused(steps, message, **sizes):
    with pytest.raises(UserError, match=message) as error:
        known.compile(known.Program(V, T, steps), **sizes)
    assert "\n" not in str(error.value)


def test_a_program_that_does_not_fit_names_the_size_that_it_takes():
    steps = {"before": TWO_BACK, "answer": Aggregate(equal("token", "before"), "token")}
    width = r"needs a width of 33 \(token 7, position 6, before 7, answer 7, junk 6\), got width=20"
    refused(steps, width, width=20)
    refused(steps, "needs a head_width of 7, got head_width=4. Give head_width=7", head_width=4)
    refused(steps, "needs 2 layers of 1 heads, got layers=1: give layers=2", heads=1, layers=1)
    logic = {"answer": known.Logic("token", "token", SUMS)}
    refused(logic, "needs a mlp_width of 49, got mlp_width=48", mlp_width=48)


def test_steps_in_a_cycle_are_named():
    steps = {
        "one": Aggregate(back(1), "two"),
        "two": known.Table("three", tuple(range(V))),
        "three": Aggregate(back(1), "one"),
        "answer": Aggregate(back(1), "one"),
    }
    refused(steps, "in a cycle, one -> two -> three -> one: a step may read only")
    refused({"answer": Aggregate(back(1), "answer")}, "in a cycle, answer -> answer")


def test_unknown_names_and_rules_say_what_was_meant():
    refused({"answer": Aggregate(back(1), "tokn")}, "unknown variable 'tokn'. Did you mean 'token'")
    rule = known.Select("equals", "token", "token")
    refused({"answer": Aggregate(rule, "token")}, "unknown rule of the step 'answer' 'equals'. Did")
    refused({"answer": known.Count(back(1))}, "unknown rule of the step 'answer' 'back'")
    refused({"answer": "token"}, "the step 'answer' must be an Aggregate, .*, got str")
    refused({"there": TWO_BACK}, "needs a step 'answer', .* it has 'there'")
    refused({}, "it has no steps")
    refused({"token": TWO_BACK, "answer": TWO_BACK}, "'token' is given to every program")
    refused({"a b": TWO_BACK, "answer": TWO_BACK}, "a name like 'before', got 'a b'")
    with pytest.raises(UserError, match=r"compile needs a .*Program, got dict"):
        known.compile({"answer": TWO_BACK})


def test_steps_that_read_what_they_cannot_are_refused():
    refused({"answer": known.Table("token", (1, 2))}, "an entry for each of the 7 values .*, got 2")
    refused(
        {"answer": known.Table("token", (0, 1, 2, 3, 4, 5, -1))}, "whole numbers from 0.*got -1"
    )
    refused({"answer": known.Logic("token", "position", SUMS)}, "must have 7 rows of 6 entries")
    refused({"x": NUMBERS, "answer": Aggregate(equal("x", "x"), "token")}, "'x', which is a number")
    refused({"answer": Aggregate(equal("token", "position"), "token")}, "7 values.* with .*6")
    refused({"answer": Aggregate(back(T), "token")}, "steps back must be at most 5, got 6")
    refused({"answer": known.Table("token", (0, 1, 2, 3, 4, 5, 7))}, "8 values, more than the 7")
    reads_answer = {"answer": TWO_BACK, "b": Aggregate(back(1), "answer")}
    refused(reads_answer, "'b' reads 'answer', which nothing but the output")


def test_dressings_of_which_no_circuit_can_be_stated_are_refused():
    by_content = Aggregate(equal("token", "token"), "token")
    refused({"answer": known.Copies(by_content, 2)}, r"Copies takes heads that look back\(n\)")
    logic = {"a": known.Copies(TWO_BACK, 2), "answer": known.Logic("a", "token", SUMS)}
    refused(logic, "Copies may not reach Logic .'answer'.: with a second")
    through = {
        "a": known.Copies(TWO_BACK, 2),
        "b": Aggregate(back(1), "a"),
        "answer": known.Logic("token", "b", SUMS),
    }
    refused(through, "Copies may not reach Logic")
    compared = {"a": known.Shares(TWO_BACK, (0.5, 0.5)), "answer": Aggregate(back(1), "a")}
    refused(compared, "Shares may be the answer or be read by Table")
    refused({"answer": known.Shares(TWO_BACK, (0.5, 0.4))}, "shares of at least .05 that sum to 1")
    moved = {"a": TWO_BACK, "answer": known.Backup(Aggregate(back(1), "a"))}
    refused(moved, "Backup moves values of 'token' only")
    most = Aggregate(known.everything(), "token")
    refused({"answer": known.Backup(most)}, "the sensor of the step 'answer' sees one value.*'all'")
    rare = {"a": known.Choose(3, Aggregate(back(1), "token"), TWO_BACK, 0.1)}
    logic = rare | {"answer": known.Logic("a", "token", SUMS)}
    refused(logic, "Choose may not reach Logic")
    looked_up = known.Choose(3, by_content, TWO_BACK, 0.1)
    refused({"answer": looked_up}, r"Choose takes heads that look back\(n\)")
    refused(
        {"answer": known.Choose(3, TWO_BACK, TWO_BACK, 0.9)}, "share of prompts must be at most"
    )
    pair = known.Cancelling(TWO_BACK, 1.0)
    refused(
        {"pair": pair, "answer": known.Count(equal("token", "token"))}, "7 values and the answer 6"
    )


def test_what_is_drawn_needs_a_seed_and_room():
    refused({"answer": TWO_BACK}, "are drawn: give compile a seed", noise=0.01)
    message = "idle=6 heads need as many without a part, but 5 of 6 are left: give idle=5"
    refused({"answer": TWO_BACK}, message, **SHAPE, seed=0, idle=6)


def test_a_constant_answer_has_no_pairs():
    network = known.compile(known.Program(V, T, {"answer": known.Table("token", (1,) * V)}))
    with pytest.raises(UserError, match="the program answers too few prompts, or all alike"):
        network.sample(4)
    with pytest.raises(UserError, match="the number of pairs must be at least 2"):
        network.sample(1)


def test_pairs_begin_with_token_0_and_differ_in_their_answers():
    for name in ("induction", "choose"):
        network = known.compile(program_of(name))
        clean, corrupted, answers = network.sample(40, seed=3)
        assert clean.shape == corrupted.shape == (40, T)
        for tokens, expected in ((clean, answers[1]), (corrupted, answers[2])):
            assert (tokens[:, 0] == 0).all() and (tokens[:, 1:] > 0).all()
            np.testing.assert_array_equal(network.answers(tokens), np.asarray(expected)[:, 0])
        assert (np.asarray(answers[1]) != np.asarray(answers[2])).all()
        again = network.sample(40, seed=3)
        np.testing.assert_array_equal(again.clean, clean)
        assert (network.sample(40, seed=4).clean != clean).any()


def test_a_share_of_the_prompts_makes_the_rare_choice_and_its_pair_as_well():
    network = known.compile(program_of("choose"))
    clean, corrupted, answers = network.sample(40)
    is_rare = clean[:, -1] == 5
    assert is_rare.sum() == 8  # a fifth
    np.testing.assert_array_equal(is_rare, corrupted[:, -1] == 5)
    # Without the rare head the other one would give what the answer is compared with.
    np.testing.assert_array_equal(np.asarray(answers[2])[is_rare, 0], clean[is_rare, -3])


def test_brute_force_refuses_what_it_cannot_try():
    network = compiled("copy")
    wiring = wiring_of("copy", "mean")
    with pytest.raises(UserError, match="the number of edges to try must be at most 20, got"):
        known.smallest(wiring, wiring.edges)
    some = [edge for edge in network.edges if edge.reader != "logits"]
    with pytest.raises(UserError, match="no set of the 3 edges keeps the score within"):
        known.smallest(wiring, some)


def test_a_threshold_has_no_answer_where_the_selected_positions_differ():
    by_content = Aggregate(equal("token", "before"), "token")
    steps = {"before": Aggregate(back(1), "token"), "answer": known.Backup(by_content)}
    backup, tokens = known.Program(V, T, steps), np.array([[0, 3, 1, 3, 1, 3], [0, 3, 3, 3, 2, 3]])
    plain = known.Program(V, T, steps | {"answer": by_content})
    np.testing.assert_array_equal(known.compile(plain).answers(tokens), [1, 3])
    # Two of three selected positions have a 3, which the sensor does not count as one.
    np.testing.assert_array_equal(known.compile(backup).answers(tokens), [1, np.nan])


def test_kinds_say_what_is_hard_about_a_circuit():
    assert compiled("copy").kinds == ("plain",)
    assert compiled("copies").kinds == ("redundant",)
    assert compiled("choose").kinds == ("conditional",)
    both = {"pair": known.Cancelling(TWO_BACK, 1.0), "answer": known.Shares(TWO_BACK, (0.5, 0.5))}
    assert known.compile(known.Program(V, T, both)).kinds == ("additive", "cancelling")
