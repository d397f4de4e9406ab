"""The second judge: which errors it counts, and what the correction for many rules decides."""

import math

import pytest

from experiments.confirmation.judgement import first_judge
from experiments.ledger import judging
from experiments.ledger.item import Cell, Item
from experiments.ledger.record import Record
from experiments.ledger.rules import HELD, NOT_HELD, OPEN, Finding, above, computed, of, trivial
from tests.experiments.made_up import population

CONFIG = "configs/mixit/retrieval.py:variant=standard,scale=small"


def record(recipe="train", **metrics):
    """Returns a record with these metrics, each (mean, sem, n)."""
    made = Record.from_json(population(CONFIG, {}, (0.5, 0.5, 0.5)))
    made.config["recipe"] = recipe
    for name, (mean, sem, n) in metrics.items():
        made.metrics[name.replace("__", "/")] = {"mean": mean, "sem": sem, "n": n}
    return {"A": made}


def both(rule, records):
    """Returns the verdicts of the first and of the second judge."""
    judges = (first_judge, judging.judge_rule)
    return [judge("rule", rule, records).verdict for judge in judges]


def test_the_draws_of_one_chain_decide_nothing_about_a_task():
    sampled = record("posterior", U=(-5.03, 0.02, 12_356))
    assert both(above(0.0, of("A", "U")), sampled) == [HELD, OPEN]
    # A sentence about the posterior of this data set itself has the error of the draws.
    assert both(above(0.0, computed("A", "U")), sampled) == [HELD, HELD]


def test_the_tokens_of_one_network_are_its_test_set():
    rule = above(of("A", "copies", trials=65), 0.9)
    assert both(rule, record(copies=(1.0, 0.0, 5))) == [HELD, HELD]
    numbers = [judging.read_side(record(copies=(1.0, 0.0, n)), rule.left) for n in (5, 20)]
    assert all(number and number.test == 1 / 65 and not number.trials for number in numbers)
    assert both(above(of("A", "copies", trials=20), 0.95), record(copies=(1.0, 0.0, 5)))[1] == OPEN


def test_a_test_that_does_not_reject_is_no_evidence():
    few = record(ks__law=(0.15, None, 1), ks_noise=(0.163, None, 1))
    assert both(above(computed("A", "ks_noise"), computed("A", "ks/law")), few)[0] == HELD
    assert both(above(0.2, computed("A", "ks/law")), few)[1] == OPEN
    many = record(ks__law=(0.0104, None, 1), ks_noise=(0.0163, None, 1))
    assert both(above(0.03, computed("A", "ks/law")), many)[1] == HELD
    other_law = record(ks__law=(0.22, None, 1), ks_noise=(0.0163, None, 1))
    assert both(above(0.03, computed("A", "ks/law")), other_law)[1] == NOT_HELD


def test_a_loss_is_compared_with_its_baseline_example_by_example():
    """The whole error of the test set, .05 nats, is for the most part common to both."""
    runs = record(loss=(3.25, 0.004, 3), loss_above_unigram=(-0.05, 0.004, 3))
    for member in runs["A"].members:
        member["metrics"]["loss"] = {"mean": 3.25, "sem": 0.05, "n": 512}
    runs["A"].baselines["unigram_loss"] = 3.30
    rule = above(of("A", "loss"), trivial("A", "unigram_loss"), -0.1)
    assert both(rule, runs) == [OPEN, HELD]
    assert judging.judge_rule("rule", rule, runs).numbers.startswith("-0.0500 ± 0.0040 against 0")
    del runs["A"].metrics["loss_above_unigram"]
    assert both(rule, runs) == [OPEN, OPEN]


@pytest.mark.parametrize("found", [HELD, NOT_HELD])
def test_a_claim_whose_primary_rule_is_lost_to_the_correction_is_open(found):
    rules = {"main": above(of("A"), 0.9)}
    item = Item("Table 1", "c.", {"A": Cell(CONFIG)}, rules)
    finding = Finding("main", found, "1 against 0.9", p=0.01, q=0.2, family="primary")
    assert judging.verdict(item, [finding]) == OPEN
    assert judging.verdict(item, [finding._replace(q=0.04)]) == found
    assert judging.verdict(item, [finding._replace(p=0.0, q=math.nan)]) == found
    for uncounted in ({"repeats": "Table 2"}, {"merged": "Table 2"}):
        assert judging.verdict(item._replace(**uncounted), [finding]) == found
