"""Tests the REM of attention: identities, limits, Monte Carlo, the rows of the reference file."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.theory.commands import wrong_errors
from theory import rem
from theory.rem import integrals

REFERENCE = json.loads(
    (Path(__file__).parents[1] / "reference" / "signal_propagation.json").read_text()
)
TOLERANCES = REFERENCE["tolerances"]
LENGTHS = (2, 64, 512, 100_000)
SPREADS = (0.0, 0.3, 1.7, 1.8, 5.0, 40.0)


def columns(name, T):
    rows = [row for row in REFERENCE[name] if row["T"] == T]
    return {field: np.array([row[field] for row in rows]) for field in rows[0]}


def mean_log_partition(beta, rho, T):
    """Returns E ln sum_s e^{a_ts} = H + s^2 (1 - Y_q), without the mean of the row of scores."""
    variance = beta**2 * (1 - rho) * np.log(T)
    entropy = rem.attention_entropy(beta, rho, T)
    return entropy + variance * (1 - rem.self_overlap(beta, rho, T))


# Every length compiles a new function: two of four are slow tests.
TWO_LENGTHS = [pytest.param(T, marks=[pytest.mark.slow] * (T in (2, 512))) for T in LENGTHS]


@pytest.mark.parametrize("T", TWO_LENGTHS)
def test_self_overlaps_equal_the_reference(T):
    row = columns("row_stats", T)
    args = row["beta"], row["rho"], T
    np.testing.assert_allclose(rem.self_overlap(*args), row["Yq"], rtol=1e-6)
    np.testing.assert_allclose(rem.second_moment(*args), row["EY2"], rtol=1e-6)
    # At T = 1e5 the reference's own u range is too short by 2e-5 (the next test).
    entropy_error = 1e-6 if T < 1e5 else TOLERANCES["entropy_abs"]
    np.testing.assert_allclose(rem.attention_entropy(*args), row["entropy"], atol=entropy_error)
    np.testing.assert_allclose(mean_log_partition(*args), row["ElogZ_centred"], atol=entropy_error)


# A pair table that overlaps.npz does not have takes 13 CPU seconds.
@pytest.mark.parametrize(
    "T", [pytest.param(T, marks=[pytest.mark.slow] * (T != 64)) for T in LENGTHS]
)
def test_cross_overlaps_equal_the_reference(T):
    pair = columns("Yp", T)
    y_q, y_p = (f(pair["beta"], pair["rho"], T) for f in (rem.self_overlap, rem.cross_overlap))
    np.testing.assert_allclose(y_p, pair["Yp"], rtol=TOLERANCES["Yp_rel"])
    ratio = ((1 - pair["rho"]) * y_p + pair["rho"]) / ((1 - pair["rho"]) * y_q + pair["rho"])
    # At beta = 0.02, rho = 0 the ratio is e^{-s^2}, 3.6e-5 above the reference at T = 1e5.
    ratio_error = TOLERANCES["SA_rho_abs"] if T < 1e5 else 4e-5
    np.testing.assert_allclose(ratio, pair["SA_rho"], atol=ratio_error)


def test_a_nearly_uniform_row():
    # H = ln T - s^2 (1 - 1/T) / 2 + O(s^4), and T Y_q -> e^{s^2} at large T
    variance = 0.02**2 * np.log(100_000)
    overlap = rem.self_overlap(0.02, 0.0, 100_000)
    assert float(overlap) * 100_000 == pytest.approx(np.exp(variance), rel=1e-7)
    for T in LENGTHS:
        variance = 0.02**2 * np.log(T)
        expected = np.log(T) - variance * (1 - 1 / T) / 2
        assert abs(float(rem.attention_entropy(0.02, 0.0, T)) - expected) < variance**2


@pytest.mark.parametrize("T", TWO_LENGTHS)
def test_identities_of_the_integrals(T):
    for s in SPREADS:
        row = integrals.row_statistics(s, T)
        assert integrals.pair_overlap(s, s, 0.0, T) == pytest.approx(1 / T, rel=1e-8)
        twins = integrals.pair_overlap(s, s, 1.0, T)
        assert twins == pytest.approx(row.self_overlap, rel=1e-8)
        # The general case (two rows that differ) meets the equal one.
        unequal = integrals.pair_overlap(s, s * (1 + 1e-9), 0.4, T)
        assert unequal == pytest.approx(integrals.pair_overlap(s, s, 0.4, T), rel=1e-7)
    flat = integrals.row_statistics(0.0, T)
    assert flat.self_overlap == pytest.approx(1 / T, rel=1e-8)
    assert flat.second_moment == pytest.approx(1 / T**2, rel=1e-8)
    assert flat.log_partition == pytest.approx(np.log(T), rel=1e-8)
    one = integrals.row_statistics(1.5, 1.0000001)  # one token
    assert one.self_overlap == pytest.approx(1, abs=1e-6)


def test_the_weights_sum_to_one():
    # E sum_s A_s = T int psi_1 psi_0^{T-1}: the columns' averages are consistent.
    for s in SPREADS[1:]:
        u, du = integrals.trapezoid(*integrals._integration_range(s, 64), 400)
        missing, psi_1 = integrals._column_averages(u, s, (1,))
        total = 64 * np.sum(du * psi_1 * (1 - missing) ** 63)
        assert total == pytest.approx(1, rel=1e-7)


@pytest.mark.slow
def test_tables_are_the_integrals():
    for T in (64, 1024, 3e4):
        for beta, rho in ((0.3, 0.2), (1.3, 0.05), (1.9, 0.97), (3.5, 0.6), (4.0, 0.0)):
            s = beta * np.sqrt(np.log(T) * (1 - rho))
            exact = integrals.row_statistics(s, T)
            assert rem.self_overlap(beta, rho, T) == pytest.approx(exact.self_overlap, rel=1e-7)
            assert rem.second_moment(beta, rho, T) == pytest.approx(exact.second_moment, rel=1e-6)
            pair = integrals.pair_overlap(s, s, rho, T)
            assert rem.cross_overlap(beta, rho, T) == pytest.approx(pair, rel=5e-6)
    # Past the end of the pair table.
    s = 9.0 * np.sqrt(np.log(64) * 0.7)
    pair = integrals.pair_overlap(s, s, 0.3, 64)
    assert rem.cross_overlap(9.0, 0.3, 64) == pytest.approx(pair, rel=2e-3)


def test_the_limit_of_many_tokens_equals_the_paper():
    rows = REFERENCE["paper_inf"]
    beta, rho, beta_c, y = (np.array([r[k] for r in rows]) for k in ("beta", "rho", "beta_c", "Yq"))
    np.testing.assert_allclose(rem.critical_beta(rho), beta_c, rtol=1e-12)
    np.testing.assert_allclose(rem.self_overlap(beta, rho), y, atol=1e-12)
    np.testing.assert_array_equal(rem.cross_overlap(beta, rho), 0)
    # The exact overlap creeps to its limit like 1/ln T: smaller gaps, slowly.
    gaps = [
        abs(float(rem.self_overlap(1.8, 0.0, T) - rem.self_overlap(1.8, 0.0)))
        for T in (16, 256, 65536)
    ]
    assert gaps[0] > gaps[1] > gaps[2] > 0
    # Ghirlanda-Guerra, in the condensed phase.
    moments = [
        abs(float(rem.second_moment(3.0, 0.0, T) - rem.second_moment(3.0, 0.0))) for T in (64, 1e5)
    ]
    assert moments[1] < 0.7 * moments[0]


def test_finite_size_exponent():
    # E Y ~ T^{-1 + 2 b^2}, not the paper's T^{-1 + b^2}, at b = 0.4.
    beta = 0.4 * 2**0.5
    low, high = (float(rem.self_overlap(beta, 0.0, T)) for T in (1e6, 1e8))
    exponent = np.log(high / low) / np.log(100)
    assert abs(exponent - (-1 + 2 * 0.16)) < 0.01
    paper = [float(rem.self_overlap_heuristic(beta, 0.0, T)) for T in (1e6, 1e8)]
    assert np.log(paper[1] / paper[0]) / np.log(100) == pytest.approx(-1 + 0.16)


def test_overlaps_and_entropy_agree_with_sampled_rows():
    T, beta, rho, n = 32, 1.2, 0.4, 40_000
    s = beta * np.sqrt(np.log(T) * (1 - rho))
    shared, *own = np.random.default_rng(0).normal(size=(3, n, T))
    rows = [s * (rho**0.5 * shared + (1 - rho) ** 0.5 * x) for x in own]
    a, b = (np.asarray(jax.nn.softmax(row, -1)) for row in rows)
    y = np.sum(a**2, -1)
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.sum(np.where(a > 0, a * np.log(a), 0), -1)
    log_z = np.log(np.sum(np.exp(rows[0]), -1))
    for samples, predicted in (
        (y, rem.self_overlap(beta, rho, T)),
        (y**2, rem.second_moment(beta, rho, T)),
        (np.sum(a * b, -1), rem.cross_overlap(beta, rho, T)),
        (entropy, rem.attention_entropy(beta, rho, T)),
        (log_z, mean_log_partition(beta, rho, T)),
    ):
        z = (samples.mean() - float(predicted)) / (samples.std() / n**0.5)
        assert abs(z) < 4
    # The samples reject the paper's rule.
    assert abs(y.mean() - float(rem.self_overlap_heuristic(beta, rho, T))) > 20 * y.std() / n**0.5


def test_overlaps_of_narrow_heads_agree_with_sampled_queries():
    # Given q_t a row is Gaussian with the variance of |q_t|^2: sample both queries.
    T, beta, rho, d_head, n = 16, 1.8, 0.3, 8, 40_000
    rng = np.random.default_rng(1)
    s = beta * np.sqrt(np.log(T) * (1 - rho))
    q = rng.normal(size=(2, n, d_head)) / d_head**0.5
    q[1] = rho * q[0] + (1 - rho**2) ** 0.5 * q[1]
    k = rng.normal(size=(n, T, d_head))
    a, b = (np.asarray(jax.nn.softmax(s * np.einsum("ntk,nk->nt", k, x), -1)) for x in q)
    for samples, overlap in (
        (np.sum(a**2, -1), rem.self_overlap),
        (np.sum(a * b, -1), rem.cross_overlap),
    ):
        predicted, wide = overlap(beta, rho, T, d_head), overlap(beta, rho, T)
        error = samples.std() / n**0.5
        assert abs(samples.mean() - float(predicted)) < 4 * error
        assert abs(samples.mean() - float(wide)) > 4 * error
    # Published spot values: 64 and 256 dimensions a head.
    for width, value in ((64, 0.00940), (256, 0.00821)):
        assert rem.cross_overlap(1.8, 0.0, 128, width) == pytest.approx(value, abs=5e-6)


def test_gradients_and_shapes():
    def total(beta, rho):
        return (
            rem.self_overlap(beta, rho, 64)
            + rem.cross_overlap(beta, rho, 64)
            + rem.attention_entropy(beta, rho, 64)
            + rem.self_overlap(beta, rho)
            + rem.self_overlap_heuristic(beta, rho, 64)
            + rem.spectrum_radius(beta, rho, 64)
        )

    beta, rho = jnp.array([0.0, 0.5, 2.0, 8.0]), jnp.array([0.0, 0.5, 1.0])
    grid = jax.vmap(jax.vmap(jax.grad(total, (0, 1)), (None, 0)), (0, None))
    gradients = jax.jit(grid)(beta, rho)
    assert all(bool(jnp.all(jnp.isfinite(g))) for g in gradients)
    # At rho = 1 the truth is d Y_q / d rho = -beta^2 ln T (1 - 1/T) / T.
    slope = jax.grad(rem.self_overlap, 1)(1.0, 1.0, 64)
    assert float(slope) == pytest.approx(-np.log(64) / 64 * (1 - 1 / 64), rel=1e-4)
    h = 1e-5
    slope = jax.grad(rem.cross_overlap, 0)(1.3, 0.4, 64)
    secant = rem.cross_overlap(1.3 + h, 0.4, 64) - rem.cross_overlap(1.3 - h, 0.4, 64)
    assert float(slope) == pytest.approx(float(secant) / (2 * h), rel=1e-6)
    for f in (rem.self_overlap, rem.cross_overlap, rem.second_moment, rem.attention_entropy):
        assert f(beta[:, None], rho, 64).shape == (4, 3)
        assert f(beta, 0.5, 64).shape == (4,)
        assert f(1.0, 0.5, 64).shape == ()


def test_wrong_arguments_are_one_line_errors():
    cases = [
        (lambda: rem.self_overlap(-0.1, 0.0, 64), "beta must be"),
        (lambda: rem.self_overlap(np.nan, 0.0, 64), "beta must be"),
        (lambda: rem.cross_overlap(1.0, 1.1, 64), "rho must be in"),
        (lambda: rem.critical_beta(-0.5), "rho must be in"),
        (lambda: rem.self_overlap(1.0, 0.0, 1), "T must be"),
        (lambda: rem.attention_entropy(1.0, 0.0, None), "needs the number of tokens T"),
        (lambda: rem.self_overlap(1.0, 0.0, None, d_head=64), "needs the number of tokens T"),
        (lambda: rem.self_overlap(1.0, 0.0, 64, d_head=1), "d_head must be"),
        (lambda: jax.jit(lambda T: rem.self_overlap(1.0, 0.0, T))(64.0), "known before tracing"),
    ]
    assert wrong_errors(cases) == []
