"""Did it train? Plants of each kind, judged by the rules of `jaxformer.stats.controls`."""

import math

import pytest

from jaxformer.stats import controls
from jaxformer.stats.controls import Training, compare, modes, state
from jaxformer.stats.members import number_over_seeds

RATES = (1e-3, 3e-3, 1e-2)
GUESS = 0.5


def scores(*values):
    return number_over_seeds(dict(enumerate(values)), "accuracy")


def training(*values, **more):
    """A network with three rates, the middle one best, on a task that counts as solved at .9."""
    told = {"rate": 3e-3, "rates": RATES, "steps": 400, "guess": GUESS, "solved": 0.9}
    return Training(scores(*values), **(told | more))


WHOLE = training(0.97, 0.98, 0.99, 0.97, 0.98, solved_at=300)
LOW = (0.70, 0.71, 0.72, 0.70, 0.71)
DEAD = (0.49, 0.50, 0.51, 0.50, 0.49)
CASES = {
    "a loser that solved the task and ended": (
        training(0.90, 0.91, 0.92, 0.91, 0.90),
        "worse",
        "",
    ),
    "a loser whose twice the steps score the same": (
        training(*LOW, longer=scores(0.71, 0.70, 0.72, 0.71, 0.70)),
        "worse",
        "",
    ),
    "one rate": (training(*LOW, rates=(3e-3,), longer=scores(*LOW)), "not trained", "one learning"),
    "the best rate at the edge": (
        training(*LOW, rate=1e-3, longer=scores(*LOW)),
        "not trained",
        "0.001 is the lowest",
    ),
    "stopped early": (
        training(*LOW, longer=scores(0.95, 0.96, 0.97, 0.95, 0.96)),
        "not trained",
        "2 x 400 steps score 0.958",
    ),
    "no longer run, such as a record of an older version": (
        training(*LOW),
        "not trained",
        "cannot tell whether it ended",
    ),
    "a seed that diverged": (
        training(0.70, 0.71, 0.72, 0.70, math.nan, longer=scores(*LOW)),
        "cannot tell",
        "",
    ),
    "stopped before its next tries": (
        training(*LOW, missing=controls.WITHIN_BUDGET),
        "not trained",
        "within the budget",
    ),
    "a loss that rises at the end": (
        training(*LOW, longer=scores(0.71, 0.70, 0.72, 0.71, 0.70), is_rising=True),
        "not trained",
        "its loss rises at the end",
    ),
    "a longer run that leaves room for no loss": (
        training(*LOW, longer=scores(0.40, 0.99, 0.99, 0.99, 0.40)),
        "cannot tell",
        "2 x 400 steps leave room for no loss",
    ),
    "stopped by its target": (
        training(0.90, 0.91, 0.92, 0.91, 0.90, is_at_target=True),
        "cannot tell",
        "its training stopped at its target",
    ),
    "seeds in two modes": (
        training(0.51, 0.99, 0.50, 0.98, 0.52),
        "two modes",
        "2 of 5 seeds solve it",
    ),
    "dead in a longer run of four times the steps": (
        training(*DEAD, steps=600, best_elsewhere=0.5, longer=scores(*DEAD)),
        "does not learn",
        "",
    ),
    "dead after four times the steps": (
        training(*DEAD, steps=1200, best_elsewhere=0.5),
        "does not learn",
        "",
    ),
    "dead, but too early to believe it": (training(*DEAD, steps=400), "not trained", ""),
    "both at the ceiling": (
        training(0.999, 0.998, 0.999, 1.0, 0.997),
        "at a ceiling",
        "not needed to solve this task at this size",
    ),
    "as good": (training(0.97, 0.98, 0.99, 0.97, 0.98), "as good", ""),
    "an interval that leaves room for both": (
        training(0.90, 0.99, 0.75, 0.99, 0.99),
        "cannot tell",
        "",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_plant_gets_its_word(name):
    left, word, reason = CASES[name]
    right = WHOLE
    if word == "at a ceiling":
        right = training(0.999, 0.999, 1.0, 0.999, 0.998, solved_at=300)
    found = compare(left, right, margin=0.02)
    assert found.word == word
    assert reason in found.reason


@pytest.mark.parametrize(
    "change",
    [
        {"rates": RATES[:2]},
        {"steps": 1199},
        {"rate": 1e-2, "best_elsewhere": 0.6},
    ],
)
def test_a_network_does_not_learn_only_after_all_tries(change):
    dead = training(*DEAD, **({"steps": 1200, "best_elsewhere": 0.5} | change))
    assert controls.does_not_learn(dead, 300).word == "not trained"


def test_four_seeds_are_too_few_to_say_that_nothing_is_learned():
    four = training(*DEAD[:4], steps=1200, best_elsewhere=0.5)
    assert controls.does_not_learn(four, 300).reason == "4 seeds of 5 that are needed"


def test_nothing_is_said_if_the_other_network_did_not_solve_the_task():
    dead = training(*DEAD, steps=1200, best_elsewhere=0.5)
    assert controls.does_not_learn(dead, None).word == "not trained"


def test_a_winner_needs_no_tuning():
    """One rate and no longer run are enough for it."""
    winner = training(0.98, 0.99, 0.98, 0.99, 0.98, rates=(3e-3,))
    loser = training(*LOW)
    assert compare(winner, loser).word == "as good"


def test_seeds_in_two_modes_are_counted():
    assert modes(dict(enumerate((0.17, 0.99, 0.16, 0.98, 0.99))), 0.9, 0.1) == (
        "3 of 5 seeds solve it"
    )
    assert modes(dict(enumerate((0.91, 0.89, 0.92))), 0.9, 0.1) == ""
    assert modes(dict(enumerate((0.2, 0.3, 0.2))), 0.9, 0.1) == ""


def test_a_seed_without_a_score_was_not_trained():
    assert state(training(0.7, math.nan)).reason == "a seed diverged"


def test_the_words_of_a_budget_read_as_a_sentence():
    found = compare(training(*LOW, missing=controls.WITHIN_BUDGET), WHOLE)
    assert str(found) == "not trained within the budget"


@pytest.mark.parametrize(
    "losses, is_rising",
    [
        ([4.0, 2.0, 1.0, 1.5], True),
        ([4.0, 2.0, 1.0, 1.1], False),
        ([4.16, 4.15, 4.155, 4.153], False),  # noise of a network that learns nothing
        ([4.0, 1e-3, 2e-3], False),
        ([4.0, 2.0, math.nan], True),
        ([4.0, 5.0], False),  # two points are no curve
    ],
)
def test_a_loss_that_rises_at_its_end_is_told_from_noise(losses, is_rising):
    assert controls.rises(losses) == is_rising


def test_a_network_of_comparison_in_two_modes_is_counted_too():
    right = training(0.99, 0.99, 0.50, 0.99, 0.99)
    found = compare(training(*LOW), right)
    assert str(found) == "two modes (the whole network: 4 of 5 seeds solve it)"
