"""Ratios of means: Fieller's interval, and what is printed where there is none."""

import math

import numpy as np
import pytest

from jaxformer.core.errors import UserError
from jaxformer.stats.ratios import ratio, spread


def draws(mean, n, n_sets=2000, seed=0):
    """Numerators that are .6 of denominators on average, whose mean is so many errors from 0."""
    random = np.random.default_rng(seed)
    for _ in range(n_sets):
        denominator = mean / n**0.5 + random.normal(size=n)
        yield 0.6 * mean / n**0.5 + 0.5 * random.normal(size=n), denominator


@pytest.mark.parametrize("mean", [10, 3, 1])
def test_the_interval_covers_the_truth_also_where_the_denominator_may_be_0(mean):
    covers = [(x := ratio(*pair)).low <= 0.6 <= x.high for pair in draws(mean, 20)]
    assert 0.935 < np.mean(covers) < 0.985


def test_the_interval_is_unbounded_exactly_where_the_denominator_is_no_different_from_0():
    for numerator, denominator in draws(2, 20, 300):
        found = ratio(numerator, denominator)
        assert found.is_bounded == spread(denominator).is_different_from_0
        if not found.is_bounded:
            assert (found.low, found.high) == (-math.inf, math.inf)
            assert str(found) == f"{found.value:.3f} (unbounded)"


def test_an_exact_denominator_gives_the_interval_of_the_mean():
    numerator = np.random.default_rng(0).normal(size=30) + 2
    found = ratio(numerator, np.full(30, 4.0))
    mean, half = spread(numerator)
    assert (found.value, found.low, found.high) == pytest.approx(
        (mean / 4, (mean - half) / 4, (mean + half) / 4)
    )


def test_below_twenty_examples_the_range_of_the_examples_is_printed():
    found = ratio([1.0, 2.0, 3.0], [2.0, 2.0, 4.0])
    assert math.isnan(found.low) and found.value == pytest.approx(0.75)
    assert str(found) == "0.750 (single: 0.38 to 1.12)"
    assert str(ratio([1.0], [2.0])) == "0.500"


def test_examples_of_a_cluster_count_once():
    random = np.random.default_rng(0)
    clusters = np.repeat(np.arange(25), 8)
    template = random.normal(size=25)[clusters]  # examples of one template are all alike
    numerator, denominator = 0.5 + template, np.full(200, 2.0)
    naive, honest = ratio(numerator, denominator), ratio(numerator, denominator, clusters)
    assert honest.n == 25 and honest.value == pytest.approx(naive.value)
    assert (honest.high - honest.low) / (naive.high - naive.low) == pytest.approx(8**0.5, rel=0.1)
    assert spread(numerator, clusters).half_width > 2.5 * spread(numerator).half_width
    assert math.isnan(ratio(numerator, denominator, clusters % 10).low)  # ten templates


def test_bad_input_is_one_line():
    with pytest.raises(UserError, match="mean denominator of a ratio is 0"):
        ratio([1.0, 2.0], [1.0, -1.0])
    with pytest.raises(UserError, match="expected a cluster for each of 2 prompts, got 3"):
        ratio([1.0, 2.0], [1.0, 1.0], [0, 1, 1])
    assert math.isnan(spread([1.0]).half_width) and not spread([1.0]).is_different_from_0
