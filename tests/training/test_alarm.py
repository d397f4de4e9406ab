"""A run that ends worse than a predictor of frequencies has a warning in its record."""

from jaxformer.training.alarm import alarms
from jaxformer.training.metrics import Mean


def members(*losses, chosen=True):
    return [
        {"seed": seed, "chosen": chosen, "metrics": {"loss": Mean(loss, 0.0, 9)}}
        for seed, loss in enumerate(losses)
    ]


def test_a_loss_above_the_unigram_predictor_is_a_one_line_warning():
    (line,) = alarms(members(3.7, 3.2, 3.4), {"unigram_loss": 3.31})
    assert "2 of 3 seeds" in line and "3.700" in line and "3.310" in line and "\n" not in line


def test_runs_that_have_learned_and_members_that_are_not_chosen_raise_no_alarm():
    assert alarms(members(3.2, 0.1), {"unigram_loss": 3.31}) == []
    assert alarms(members(3.3105), {"unigram_loss": 3.31}) == []  # it knows the frequencies
    assert alarms(members(9.0, chosen=False) + members(1.0), {"unigram_loss": 3.31}) == []
    assert alarms(members(9.0), {"best_constant": 0.1}) == []
