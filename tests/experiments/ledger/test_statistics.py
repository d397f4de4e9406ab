"""Intervals of differences against scipy: pairs of seeds, test sets and missing errors."""

import math

import numpy as np
import pytest

from experiments.ledger.power import TEST_SET, seeds_for_rule
from experiments.ledger.rules import (
    HELD,
    NOT_HELD,
    NOT_RUN,
    OPEN,
    Finding,
    above,
    gap,
    near,
    of,
    overall,
)
from jaxformer.stats.differences import (
    Number,
    clopper_pearson,
    difference,
    minus,
)
from jaxformer.stats.members import record_number, share_of_seeds
from jaxformer.stats.members import test_error as error_of_the_test_set
from jaxformer.stats.power import power, seeds_for_share

X, Y = np.array([0.93, 0.96, 0.99, 0.95]), np.array([0.90, 0.95, 0.97, 0.92])


def sample(values, seeds=None, **more) -> Number:
    by_seed = dict(zip(seeds, values, strict=True)) if seeds is not None else {}
    sem = float(np.std(values, ddof=1) / len(values) ** 0.5)
    return Number(float(np.mean(values)), sem, len(values), by_seed=by_seed, **more)


def test_a_gap_reads_both_of_its_cells():
    assert gap("a", "b").cells == ("a", "b")


def test_runs_that_share_seeds_are_compared_seed_by_seed():
    rule = above(of("x"), of("y"))
    paired = {"x": sample(X, range(4)), "y": sample(Y, range(4))}
    apart = {"x": sample(X, range(4)), "y": sample(Y, range(4, 8))}
    assert rule.judge("", lambda side: paired[side.cell]).verdict == HELD
    assert rule.judge("", lambda side: apart[side.cell]).verdict == OPEN


def test_the_test_set_has_an_error_of_its_own_even_when_every_answer_is_right():
    scores = [{"mean": 1.0, "sem": 0.0, "n": 1000}] * 3
    assert error_of_the_test_set(scores) == pytest.approx(1e-3)
    members = [{"seed": s, "metrics": {"accuracy": scores[s]}} for s in range(3)]
    number = record_number({"mean": 1.0, "sem": 0.0, "n": 3}, members, "accuracy")
    compared = difference(number, Number(1.0))
    assert compared.gap == 0 and compared.half == pytest.approx(1.96e-3, rel=1e-3)
    # "1 ± 0" is not certain to be within a tenth of a thousandth of 1.
    assert near(of("x"), 1.0, 1e-4).judge("", _reads(number)).verdict == OPEN
    assert near(of("x"), 1.0, 3e-3).judge("", _reads(number)).verdict == HELD


def test_an_error_that_is_not_known_decides_nothing():
    number = record_number({"mean": 12.3, "sem": None, "n": 1}, [], "U")
    assert difference(number, Number(1.0)).half == math.inf
    assert above(of("x", "U"), 1.0).judge("", _reads(number)).verdict == OPEN
    assert near(of("x", "U"), 99.0, 1.0).judge("", _reads(number)).verdict == OPEN


def test_the_seeds_that_did_not_diverge_decide_nothing():
    """Three of five seeds diverged; the other two agree well, which proves nothing."""
    members = [
        {"seed": s, "chosen": True, "diverged_at": at, "metrics": {"U": {"mean": mean, "n": 9}}}
        for s, (at, mean) in enumerate([(None, 0.81), (None, 0.82), (7, None), (8, None)])
    ]
    value = {"mean": 0.815, "sem": 0.005, "n": 2}
    whole = record_number(value, members[:2], "U")
    spared = record_number(value, members, "U")
    for rule in (above(of("x", "U"), 0.5), near(of("x", "U"), 0.815, 0.1)):
        assert rule.judge("", _reads(whole)).verdict == HELD
        assert rule.judge("", _reads(spared)).verdict == OPEN
    assert above(gap("x", "y", "U"), -1.0).judge("", _reads(minus(spared, whole))).verdict == OPEN


@pytest.mark.parametrize(
    "mean, sem, expected",
    [
        (0.9, 0.01, HELD),
        (0.81, 0.01, OPEN),
        (0.79, 0.01, OPEN),  # on the wrong side, and within the error
        (0.7, 0.01, NOT_HELD),
    ],
)
def test_noise_refutes_no_more_than_it_proves(mean, sem, expected):
    number = Number(mean, sem, n=30)
    assert above(of("x"), 0.8).judge("", _reads(number)).verdict == expected


@pytest.mark.parametrize(
    "mean, sem, expected",
    [(0.97, 0.004, NOT_HELD), (0.97, 0.006, OPEN), (0.985, 0.006, OPEN), (0.985, 0.002, HELD)],
)
def test_near_needs_the_whole_interval_inside(mean, sem, expected):
    number = Number(mean, sem, n=1000)
    assert near(of("x"), 1.0, 0.02).judge("", _reads(number)).verdict == expected


def test_exact_numbers_are_never_open():
    assert above(0.8, of("x")).judge("", _reads(Number(0.8))).verdict == NOT_HELD
    assert near(of("x"), 0.0, 0.0).judge("", _reads(Number(0.0))).verdict == HELD
    assert near(of("x"), 0.0, 0.0).judge("", _reads(Number(2.0))).verdict == NOT_HELD


def _overall(*verdicts, p=1e-4):
    return overall([Finding("", verdict, "", p=p) for verdict in verdicts])


def test_a_claim_holds_if_all_that_it_says_holds():
    assert _overall(HELD, HELD) == HELD
    assert _overall(HELD, OPEN, NOT_HELD) == NOT_HELD
    assert _overall(HELD, OPEN) == _overall(HELD, NOT_RUN) == OPEN
    assert _overall(NOT_RUN) == _overall() == NOT_RUN


def test_the_worst_of_many_rules_must_fail_clearly():
    """One of two rules at p = .02 may fail; among three rules one fails too often by chance."""
    assert _overall(HELD, NOT_HELD, p=0.02) == NOT_HELD
    assert _overall(HELD, HELD, NOT_HELD, p=0.02) == OPEN
    assert _overall(HELD, HELD, NOT_HELD, p=0.0) == NOT_HELD  # exact numbers


def test_seeds_that_are_all_alike_have_a_clopper_pearson_interval():
    """Five successes of five are about as surprising as five heads in a row."""
    assert clopper_pearson(1.0, 5) == pytest.approx((0.478, 1.0), abs=1e-3)
    assert clopper_pearson(5 / 8, 8) == pytest.approx((0.245, 0.915), abs=1e-3)
    assert clopper_pearson(0.0, 3) == pytest.approx((0.0, 0.708), abs=1e-3)
    first = above(of("x", "noise_first"), 0.5)
    for n, verdict in ((5, OPEN), (6, HELD)):
        number = record_number({"mean": 1.0, "sem": 0.0, "n": n}, [], "noise_first")
        assert number.trials == n and first.judge("", _reads(number)).verdict == verdict
    # Three seeds with 65 tokens each are 195 outcomes.
    tokens = record_number({"mean": 1.0, "sem": 0.0, "n": 3}, [], "recall_noise", 65)
    assert above(of("x"), 0.9).judge("", _reads(tokens)).verdict == HELD
    mixed = share_of_seeds([True] * 5 + [False] * 3)
    value = {"mean": mixed.mean, "sem": mixed.sem, "n": 8}
    assert record_number(value, [], "solved").trials == 8
    # Values between 0 and 1 spread less: they are no outcomes.
    assert record_number(value | {"sem": 0.9 * mixed.sem}, [], "U").trials == 0


def test_seeds_for_a_power_of_90_percent():
    """No number of seeds is enough if the error of the test set alone is too large."""
    rng = np.random.default_rng(0)
    values = rng.normal(2.0, 1.0, (20_000, 5))
    half = 2.776 * values.std(1, ddof=1) / 5**0.5
    assert power(2.0, 1.0, 0.0, 5) == pytest.approx((values.mean(1) > half).mean(), abs=0.01)
    rule = above(of("x"), 0.8)
    seeds, _ = seeds_for_rule(rule, difference(Number(0.82, 0.01, 4), Number(0.8)))
    assert power(0.02, 0.02, 0.0, seeds) >= 0.9 > power(0.02, 0.02, 0.0, seeds - 1)
    share = Number(0.82, 0.01, 4, test=0.02, is_share=True)
    assert seeds_for_rule(rule, difference(share, Number(0.8))) == (0, TEST_SET)
    assert seeds_for_share(0.95, 0.5) == 9 and seeds_for_share(0.05, 0.5) == 9


def _reads(number):
    """Returns a record with this number for every cell."""
    return lambda side: number if side.metric else Number(side.value)
