"""How sure a difference is: intervals against scipy's, pairs, test sets, and what is not known."""

import math

import numpy as np
import pytest
from scipy import stats

from experiments.ledger.record_numbers import record_number
from experiments.ledger.record_numbers import test_error as error_of_the_test_set
from experiments.ledger.rules import HELD, NOT_HELD, NOT_RUN, OPEN, above, gap, near, of, overall
from experiments.ledger.statistics import Number, difference, minus, quantile

X, Y = np.array([0.93, 0.96, 0.99, 0.95]), np.array([0.90, 0.95, 0.97, 0.92])


def sample(values, seeds=None, **more) -> Number:
    by_seed = dict(zip(seeds, values, strict=True)) if seeds is not None else {}
    sem = float(np.std(values, ddof=1) / len(values) ** 0.5)
    return Number(float(np.mean(values)), sem, len(values), by_seed=by_seed, **more)


def test_few_seeds_have_a_wide_interval():
    assert quantile(2) == pytest.approx(4.3027, abs=1e-4)
    assert quantile(math.inf) == pytest.approx(1.95996, abs=1e-5)


def test_the_intervals_are_those_of_the_t_tests():
    compared = difference(sample(X), sample(Y[:3]))
    low, high = stats.ttest_ind(X, Y[:3], equal_var=False).confidence_interval(0.95)
    assert (compared.gap - compared.half, compared.gap + compared.half) == pytest.approx(
        (low, high), rel=1e-9
    )
    compared = difference(sample(X, range(4)), sample(Y, range(4)))
    low, high = stats.ttest_rel(X, Y).confidence_interval(0.95)
    assert (compared.gap - compared.half, compared.gap + compared.half) == pytest.approx(
        (low, high), rel=1e-9
    )


def test_runs_that_share_seeds_are_compared_seed_by_seed():
    rule = above(of("x"), of("y"))
    paired = {"x": sample(X, range(4)), "y": sample(Y, range(4))}
    apart = {"x": sample(X, range(4)), "y": sample(Y, range(4, 8))}
    assert rule.judge("", lambda side: paired[side.cell]).verdict == HELD
    assert rule.judge("", lambda side: apart[side.cell]).verdict == OPEN


def test_gaps_of_paired_runs_are_paired_too():
    """(x - y) of four cells with the same seeds is one t-test of the differences of both."""
    z, w = X + 0.3 * Y, Y**2
    gaps = [minus(sample(a, range(4)), sample(b, range(4))) for a, b in ((X, Y), (z, w))]
    compared = difference(*gaps)
    low, high = stats.ttest_rel(X - Y, z - w).confidence_interval(0.95)
    assert (compared.gap - compared.half, compared.gap + compared.half) == pytest.approx(
        (low, high), rel=1e-9
    )
    unpaired = minus(sample(X, range(4)), sample(Y, range(4, 8)))
    assert unpaired.sem == pytest.approx(math.hypot(stats.sem(X), stats.sem(Y)))
    assert gap("a", "b").cells == ("a", "b")


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


def test_of_losses_on_the_same_examples_the_examples_cancel():
    mine, other = sample(X, test=0.05), sample(Y, test=0.05)
    assert difference(mine, other) == difference(sample(X), sample(Y))
    right, wrong = sample(X, test=0.05, is_share=True), sample(Y, test=0.05, is_share=True)
    assert difference(right, wrong).half > difference(mine, other).half
    assert difference(mine, Number(0.9)).half > difference(sample(X), Number(0.9)).half


def test_only_the_members_of_the_chosen_rate_count():
    members = [
        {
            "seed": s,
            "chosen": rate == 0.01,
            "metrics": {"loss": {"mean": s + rate, "sem": 0, "n": 9}},
        }
        for rate in (0.1, 0.01)
        for s in (0, 1)
    ]
    assert record_number({"mean": 0.51, "sem": 0.5, "n": 2}, members, "loss").by_seed == {
        0: 0.01,
        1: 1.01,
    }


def test_an_error_that_is_not_known_decides_nothing():
    number = record_number({"mean": 12.3, "sem": None, "n": 1}, [], "U")
    assert difference(number, Number(1.0)).half == math.inf
    assert above(of("x", "U"), 1.0).judge("", _reads(number)).verdict == OPEN
    assert near(of("x", "U"), 99.0, 1.0).judge("", _reads(number)).verdict == OPEN


def test_the_seeds_that_did_not_diverge_decide_nothing():
    """Two of five that agree well: they are those that the training spared."""
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


def test_a_claim_holds_if_all_that_it_says_holds():
    assert overall([HELD, HELD]) == HELD
    assert overall([HELD, OPEN, NOT_HELD]) == NOT_HELD
    assert overall([HELD, OPEN]) == overall([HELD, NOT_RUN]) == OPEN
    assert overall([NOT_RUN]) == overall([]) == NOT_RUN


def _reads(number):
    """A record with this number in every cell."""
    return lambda side: number if side.metric else Number(side.value)


@pytest.mark.parametrize(
    "mean, sem, words",
    [(0.9327, 0.047, "93.3 ± 4.7"), (0.9998, 0.0009, "99.98 ± 0.09"), (0.6, 0.27, "60 ± 27")],
)
def test_percent_has_the_digits_that_its_error_allows(mean, sem, words):
    assert Number(mean, sem, 3).percent() == words
