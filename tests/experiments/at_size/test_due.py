"""Which runs follow from what others found."""

from types import SimpleNamespace

import pytest

from experiments.at_size import due
from experiments.at_size.due import When, best_rate, is_due, learns


def text_record(losses_by_rate, gaps_by_rate=None):
    """A record of masked text: validation and test losses of the seeds at each rate."""
    members = []
    for rate, losses in losses_by_rate.items():
        gaps = (gaps_by_rate or {}).get(rate, [loss - 5.75 for loss in losses])
        for loss, gap in zip(losses, gaps, strict=True):
            members.append(
                {
                    "learning_rate": rate,
                    "chosen": rate == min(losses_by_rate),
                    "chosen_by": "loss",
                    "validation_loss": loss,
                    "diverged_at": None,
                    "reached_at": None,
                    "metrics": {
                        "loss": {"mean": loss},
                        "loss_above_unigram": {"mean": gap},
                    },
                }
            )
    return SimpleNamespace(members=members, baselines={"unigram_loss": 5.75})


def digits_record(accuracies, reached=None):
    """A record of addition: one seed at each rate."""
    members = [
        {
            "learning_rate": rate,
            "chosen": accuracy == max(accuracies.values()),
            "chosen_by": "accuracy",
            "validation_accuracy": accuracy,
            "diverged_at": None,
            "reached_at": (reached or {}).get(rate),
            "metrics": {"accuracy": {"mean": accuracy}},
        }
        for rate, accuracy in accuracies.items()
    ]
    return SimpleNamespace(members=members, baselines={"by_position": 0.28, "unigram_loss": 2.4})


def test_the_best_rate_of_a_loss_is_the_lowest_mean_over_its_seeds():
    record = text_record({1e-4: [5.7, 5.6], 3e-4: [5.5, 5.4], 8e-4: [5.3, 5.8]})
    assert best_rate([record]) == 3e-4


def test_a_rate_at_which_a_seed_diverged_is_not_the_best():
    record = text_record({1e-4: [5.7], 3e-4: [5.1]})
    record.members[1]["diverged_at"] = 40
    assert best_rate([record]) == 1e-4


def test_rates_on_the_same_stair_give_the_one_in_the_middle():
    assert best_rate([digits_record({3e-4: 0.399, 1e-3: 0.401, 3e-3: 0.405})]) == 1e-3
    assert best_rate([digits_record({3e-4: 0.401, 1e-3: 0.30, 3e-3: 0.405})]) == 3e-4
    assert best_rate([digits_record({3e-4: 0.30, 1e-3: 0.40, 3e-3: 0.50})]) == 3e-3


def test_two_more_rates_are_due_only_for_a_cell_that_learns_with_its_best_at_an_edge():
    learned = text_record({1e-4: [5.4], 3e-4: [5.6], 8e-4: [5.7]})
    assert is_due(When(due.LOWEST, ("grid",)), [learned])
    assert not is_due(When(due.HIGHEST, ("grid",)), [learned])
    inside = text_record({1e-4: [5.6], 3e-4: [5.4], 8e-4: [5.7]})
    assert not is_due(When(due.LOWEST, ("grid",)), [inside])
    dead = text_record({1e-4: [5.70], 3e-4: [5.75], 8e-4: [5.76]})
    assert not is_due(When(due.LOWEST, ("grid",)), [dead])


def test_a_cell_learns_at_a_rate_only_if_every_seed_does():
    record = text_record({1e-4: [5.4, 5.74]})
    assert not learns([record], 1e-4)
    assert is_due(When(due.NEVER_LEARNS, ("grid",)), [record])
    assert learns([text_record({1e-4: [5.4, 5.64]})], 1e-4)
    assert learns([digits_record({1e-3: 0.29})], 1e-3)
    assert not learns([digits_record({1e-3: 0.27})], 1e-3)


def test_a_longer_run_is_due_where_a_seed_misses_the_target():
    when = When(due.UNSOLVED, ("final",))
    assert is_due(when, [digits_record({1e-3: 0.9})])
    assert not is_due(when, [digits_record({1e-3: 0.96}, reached={1e-3: 400})])


def test_four_times_the_steps_are_due_where_twice_the_steps_lower_the_loss():
    when = When(due.LONGER_HELPS, ("double", "grid"))
    grid = text_record({1e-4: [5.3], 3e-4: [5.5]})
    assert is_due(when, [text_record({3e-4: [5.47]}), grid])
    assert not is_due(when, [text_record({3e-4: [5.49]}), grid])


def test_a_misspelt_condition_is_an_error():
    with pytest.raises(Exception, match="condition"):
        is_due(When("the best rate is lowest", ("grid",)), [])
