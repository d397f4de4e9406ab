"""Was the network trained on whose loss a verdict of the ledger rests?"""

from types import SimpleNamespace

import numpy as np
import pytest

from experiments.ledger.controlled import untrained_loser
from experiments.ledger.rules import HELD, NOT_HELD, above, near, of, trivial

JITTER = 0.001 * np.arange(-2, 3)
LOSES = above(of("standard"), of("mixit"), 0.2)  # "MixiT is far behind"
NO_WORSE = above(of("mixit"), of("standard"), -0.02)  # "MixiT is at most .02 below"


def record(mean, chosen=3e-3, rates=(1e-3, 3e-3, 1e-2), steps=400, scores=None):
    scores = (mean + JITTER).tolist() if scores is None else scores
    members = [
        {
            "seed": seed,
            "learning_rate": rate,
            "chosen": rate == chosen,
            "diverged_at": None,
            "reached_at": None,
            "metrics": {"accuracy": {"mean": x - 0.02 * (rate != chosen), "sem": 1e-3, "n": 999}},
        }
        for rate in rates
        for seed, x in enumerate(scores)
    ]
    sem = float(np.std(scores, ddof=1) / 5**0.5)
    return SimpleNamespace(
        config={"train": {"steps": steps}},
        members=members,
        metrics={"accuracy": {"mean": float(np.mean(scores)), "sem": sem, "n": 5}},
        baselines={"guess": 0.3},
        steps=steps,
    )


def words(mixit, rule=LOSES, verdict=HELD):
    return untrained_loser(rule, verdict, {"standard": record(0.99), "mixit": mixit})


@pytest.mark.parametrize(
    "mixit, reason",
    [
        (record(0.6, rates=(3e-3,)), "one learning rate"),
        (record(0.6, chosen=1e-3), "its best rate 0.001 is the lowest that was tried"),
        (record(0.6), "cannot tell whether it ended"),
        (record(0.5, scores=[0.95, 0.3, 0.94, 0.31, 0.3]), "cannot tell whether it ended"),
    ],
    ids=["one rate", "dead rate", "stopped early", "bimodal"],
)
def test_a_loser_that_was_not_shown_to_be_trained_is_named(mixit, reason):
    assert words(mixit) == f"mixit lost, not shown to be trained: {reason}"


def test_a_loser_that_solves_the_task_was_trained():
    assert words(record(0.93)) == ""


def test_a_network_that_learns_nothing_in_four_times_the_steps_was_tried_enough():
    assert words(record(0.29, steps=1600)) == ""
    assert "not shown to be trained" in words(record(0.29, steps=1500))


def test_a_network_that_is_no_worse_needs_no_training_of_its_own():
    """At a ceiling, too."""
    assert words(record(0.985, rates=(3e-3,)), NO_WORSE) == ""
    assert words(record(0.985, rates=(3e-3,)), near(of("mixit"), of("standard"), 0.02)) == ""
    assert words(record(0.9, rates=(3e-3,)), NO_WORSE, NOT_HELD) != ""


def test_a_network_that_beats_a_guess_needs_no_training_and_one_that_does_not_does():
    beats = above(of("mixit"), trivial("mixit", "guess"))
    assert words(record(0.6, rates=(3e-3,)), beats) == ""
    assert "one learning rate" in words(record(0.2, rates=(3e-3,)), beats, NOT_HELD)


def test_two_numbers_of_one_network_compare_no_trainings():
    rule = above(of("mixit", "accuracy/first"), of("mixit", "accuracy/second"))
    assert words(record(0.6, rates=(3e-3,)), rule) == ""
