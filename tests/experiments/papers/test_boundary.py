"""Tests of the collapse boundary, exponents and covariances of rows reject wrong theories."""

import numpy as np
import pytest

from experiments.papers.two_failure_modes import boundary, score_rows
from theory import rem
from theory.signal import Block, critical_alpha, propagate

BETAS, ALPHAS, LAYERS, T, EPSILON = (0.02, 0.8, 1.6), (0.3, 0.6, 0.9, 1.2, 1.5, 1.8), 60, 64, 0.01


def block(sigma_v2, beta=0.0, alpha=0.0):
    return Block(beta, alpha, 1.0, sigma_v2, 0.2, 4e-4)


def edge(sigma_v2, layers=LAYERS):
    start = block(sigma_v2)
    return np.array([float(critical_alpha(b, start, layers, T, EPSILON)) for b in BETAS])


@pytest.fixture(scope="module")
def cosine_BxAxS():
    ends = [[float(propagate(0.0, block(0.2, b, a), LAYERS, T)[-1]) for a in ALPHAS] for b in BETAS]
    return np.array(ends)[..., None]


def test_only_the_right_boundary_separates_collapsed_networks(cosine_BxAxS):
    """The wrong boundaries use the paper's sigma_V = 1, another depth, or zero."""

    def share(edge_B):
        return boundary.share_on_predicted_side(cosine_BxAxS, np.array(ALPHAS), edge_B, EPSILON)[0]

    assert share(edge(0.2)) == 1.0
    for wrong in (edge(1.0), edge(0.2, layers=12), np.zeros(3)):
        assert share(wrong) < 0.99


def test_the_crossing_is_alpha_c():
    alpha_A = np.linspace(0.4, 2.0, 17)
    cosine_AxS = np.array(
        [[float(propagate(0.0, block(0.2, 0.02, a), LAYERS, T)[-1])] for a in alpha_A]
    )
    (crossing,) = boundary.crossings(alpha_A, cosine_AxS, EPSILON)
    assert crossing == pytest.approx(edge(0.2)[0], abs=5e-3)
    assert boundary.crossings(alpha_A, np.ones_like(cosine_AxS), EPSILON) == [2.0]


def test_the_corrected_exponent_is_that_of_long_rows_and_the_printed_one_is_not():
    b = np.array([0.2, 0.4, 0.5])
    ends = [np.asarray(rem.self_overlap(b * 2**0.5, 0.0, T)) for T in (1e6, 1e8)]
    local = np.log(ends[1] / ends[0]) / np.log(1e2)
    np.testing.assert_allclose(score_rows.corrected_exponent(b), local, atol=0.02)
    assert (np.abs(-1 + b**2 - local) > 0.03).all()


def test_covariances_of_scores_are_those_of_equation_10():
    outcome = score_rows.measure_scores((0.5,), length=6, width=16, heads=2000, chunk=500, seed=0)
    for name, value in (("two", 1.0), ("one", 0.5), ("none", 0.25)):
        measured = outcome.metrics[f"{name}_rho_0.5"]
        assert abs(measured.mean - value) < 4 * measured.sem < 0.2
