"""The line of a ladder, recomputed by scipy, which shares no code with the judge."""

import math

import numpy as np
import pytest
from scipy import stats

from experiments.ledger import trend
from experiments.ledger.statistics import Number
from jaxformer.core.errors import UserError

SIZES = (8, 16, 32, 64)


def number(values, test=0.0) -> Number:
    values = [float(value) for value in values]
    sem = float(np.std(values, ddof=1) / math.sqrt(len(values)))
    by_seed = dict(enumerate(values))
    return Number(float(np.mean(values)), sem, len(values), test, True, by_seed)


@pytest.fixture
def values() -> np.ndarray:
    """Five seeds at four sizes, whose spread grows with the size."""
    rng = np.random.default_rng(0)
    return 0.3 - 0.07 * np.arange(4) + 0.02 * rng.normal(size=(5, 4)) * np.arange(1, 5)


def test_the_slope_is_the_mean_of_the_seeds_regressions(values):
    slopes = [stats.linregress(np.log2(SIZES), seed).slope for seed in values]
    low, high = stats.t.interval(0.95, 4, np.mean(slopes), stats.sem(slopes))
    made = trend.slope(SIZES, [number(column) for column in values.T])
    np.testing.assert_allclose(made, (np.mean(slopes), low, high), rtol=1e-9)
    assert made.mean == pytest.approx(stats.linregress(np.log2(SIZES), values.mean(0)).slope)


def test_errors_of_test_sets_widen_the_slope(values):
    """The sizes have test sets of their own, whose errors all seeds of a size share."""
    slopes = [stats.linregress(np.log2(SIZES), seed).slope for seed in values]
    logs = np.log2(SIZES) - np.mean(np.log2(SIZES))
    of_test = np.sqrt(np.sum((0.01 * logs / np.sum(logs**2)) ** 2))
    half = np.hypot(stats.t.ppf(0.975, 4) * stats.sem(slopes), stats.norm.ppf(0.975) * of_test)
    made = trend.slope(SIZES, [number(column, 0.01) for column in values.T])
    assert (made.high - made.low) / 2 == pytest.approx(half)


def test_a_prediction_covers_both_lines_and_the_last_size(values):
    intervals = []
    for first in (0, 2):
        at_256 = []
        for seed in values[:, first:]:
            line = stats.linregress(np.log2(SIZES[first:]), seed)
            at_256.append(line.intercept + line.slope * 8)
        sem = stats.sem(at_256)
        intervals.append((np.mean(at_256), *stats.t.interval(0.95, 4, np.mean(at_256), sem)))
    last = values[:, -1]
    intervals.append((last.mean(), *stats.t.interval(0.95, 4, last.mean(), stats.sem(last))))
    made = trend.prediction(SIZES, [number(column) for column in values.T], 256)
    means, lows, highs = zip(*intervals)
    np.testing.assert_allclose(made, (means[0], min(lows), max(highs)), rtol=1e-9)


def test_a_trend_that_bends_predicts_less_exactly_than_a_straight_one():
    jitter = 0.001 * np.arange(-2, 3)
    straight, bent = (
        trend.prediction(SIZES, [number(value + jitter) for value in line], 512)
        for line in ((0.1, 0.2, 0.3, 0.4), (0.1, 0.26, 0.34, 0.36))
    )
    assert straight.low < 0.4 and 0.7 < straight.high < 0.71, "it may go on, or level off"
    assert bent.low < 0.36 and 0.6 < bent.high < 0.75


@pytest.mark.parametrize("at", [1, 4096])
def test_a_prediction_covers_an_effect_that_levels_off(at):
    """Predictions of a correlation at small depth must cover the .5 from which it starts."""
    jitter = 0.001 * np.arange(-2, 3)
    levels = [0.5 + 0.5 / (1 + (16 / size) ** 3) for size in (*SIZES, at)]
    made = trend.prediction(SIZES, [number(level + jitter) for level in levels[:-1]], at)
    assert made.low < levels[-1] < made.high


def test_between_two_sizes_no_level_is_assumed():
    numbers = [number(value + 0.001 * np.arange(-2, 3)) for value in (0.1, 0.2, 0.3, 0.4)]
    made = trend.prediction(SIZES, numbers, 48)
    assert made.high - made.low < 0.01


def test_within_the_sizes_the_neighbours_are_the_second_line(values):
    numbers = [number(column) for column in values.T]
    assert (
        trend.prediction(SIZES, numbers, 24).low
        <= trend.prediction(SIZES[1:3], numbers[1:3], 24).low
    )
    assert (
        trend.prediction(SIZES, numbers, 4).low <= trend.prediction(SIZES[:2], numbers[:2], 4).low
    )


def test_a_baseline_is_subtracted_from_each_seed():
    made = trend.gap(number([0.5, 0.6, 0.7], test=0.01), Number(0.2))
    assert [*made.by_seed.values()] == pytest.approx([0.3, 0.4, 0.5])
    assert (made.mean, made.test) == (pytest.approx(0.4), 0.01)
    turned = trend.gap(Number(0.0), number([0.5, 0.6, 0.7]))
    assert [*turned.by_seed.values()] == pytest.approx([-0.5, -0.6, -0.7])
    paired = trend.gap(number([0.5, 0.6, 0.7]), number([0.4, 0.5, 0.6]))
    assert paired.sem == pytest.approx(0.0, abs=1e-12), "seeds are paired"


def test_other_seeds_at_one_size_are_a_one_line_error():
    numbers = [number([0.1, 0.2, 0.3]), number([0.1, 0.2, 0.3]), number([0.1, 0.2])]
    with pytest.raises(UserError, match="3, 3, 2 seeds") as error:
        trend.slope(SIZES[:3], numbers)
    assert "\n" not in str(error.value)
