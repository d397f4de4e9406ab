"""Intervals of differences against scipy, numbers from members, corrections and standard errors."""

import math

import numpy as np
import pytest
from scipy import stats

from jaxformer.stats import (
    Number,
    benjamini_hochberg,
    difference,
    holm,
    number_over_seeds,
    p_value,
    power,
    seeds_for_distance,
    standard_error,
)
from jaxformer.stats.differences import minus, quantile
from jaxformer.stats.members import record_number

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


def test_of_losses_on_the_same_examples_the_examples_cancel():
    sampled, other = sample(X, test=0.05), sample(Y, test=0.05)
    assert difference(sampled, other) == difference(sample(X), sample(Y))
    right, wrong = sample(X, test=0.05, is_share=True), sample(Y, test=0.05, is_share=True)
    assert difference(right, wrong).half > difference(sampled, other).half
    assert difference(sampled, Number(0.9)).half > difference(sample(X), Number(0.9)).half


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


def test_a_p_value_is_below_5_percent_if_the_interval_excludes_the_border():
    left, right = sample(X), Number(0.9)
    t = (left.mean - 0.9) / left.sem
    assert p_value(left, right, 0.0) == pytest.approx(2 * stats.t.sf(abs(t), left.n - 1), rel=1e-3)
    assert p_value(Number(1.0), Number(0.5), 0.0) == 0.0
    assert math.isnan(p_value(Number(1.0, math.nan, 1), right, 0.0))
    for border in (-0.02, 0.0, 0.004, 0.02, 0.05):
        is_decided = difference(left, right).verdict(border) != "cannot tell"
        assert (p_value(left, right, border) < 0.05) == is_decided


def test_holm_and_benjamini_hochberg_on_a_known_example():
    p_values = [0.01, 0.04, 0.03, 0.005]
    assert holm(p_values) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert benjamini_hochberg(p_values) == pytest.approx([0.02, 0.04, 0.04, 0.02])


@pytest.mark.parametrize(
    "mean, sem, expected",
    [(0.9327, 0.047, "93.3 ± 4.7"), (0.9998, 0.0009, "99.98 ± 0.09"), (0.6, 0.27, "60 ± 27")],
)
def test_percent_has_the_digits_that_its_error_allows(mean, sem, expected):
    assert Number(mean, sem, 3).percent() == expected


def test_the_least_number_of_seeds_is_that_of_the_power():
    seeds = seeds_for_distance(0.03, 0.02)
    assert power(0.03, 0.02, 0.0, seeds) >= 0.9 > power(0.03, 0.02, 0.0, seeds - 1)
    assert not seeds_for_distance(0.03, 0.02, test=0.02), "more seeds do not enlarge a test set"


def test_the_standard_error_of_arrays_is_that_of_numbers():
    values_SxK = np.stack([X, Y], 1)
    by_column = [number_over_seeds(dict(enumerate(column)), "accuracy").sem for column in (X, Y)]
    assert standard_error(values_SxK) == pytest.approx(by_column, rel=1e-12)
    assert np.isnan(standard_error(values_SxK[:1])).all(), "one seed has no spread"
