"""The covariance SDE against finite networks: the gap shrinks with the width."""

import jax
import numpy as np
import pytest

from theory import covariance_sde as cs


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


def ks(x, y) -> float:
    """Returns the Kolmogorov-Smirnov distance of two samples."""
    from scipy.stats import ks_2samp

    return float(ks_2samp(np.asarray(x), np.asarray(y)).statistic)


def start(m: int) -> np.ndarray:
    return 0.5 * np.eye(m) + 0.5


@pytest.mark.parametrize("causal", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_gap_shrinks_with_width(causal):
    m, count = 4, 5000
    times = [0.5, 1.0]
    mixing = cs.Mixing(causal)
    paths = cs.predict(jax.random.key(0), start(m), 1.0, count, 60, times, mixing)
    gaps = {}
    for n in (4, 64):
        layers = [n // 2, n]
        nets = cs.measure(jax.random.key(n), start(m), n, n, count, layers, mixing)
        gaps[n] = [
            [ks(cs.log_trace(paths[:, i]), cs.log_trace(nets[:, i])) for i in range(2)],
            [
                ks(cs.correlation(paths[:, i], 2, 3), cs.correlation(nets[:, i], 2, 3))
                for i in (0, 1)
            ],
        ]
    # 1.63 sqrt(2/N): the 1 % point of the distance between two samples of one distribution.
    noise = 1.63 * (2 / count) ** 0.5
    assert np.max(gaps[64]) < noise + 0.005, gaps
    assert np.mean(gaps[64]) < 0.6 * np.mean(gaps[4]), gaps


@pytest.mark.slow  # 2,000 networks of 16 layers
def test_a_network_built_from_the_models_lines_agrees():
    m, n, count = 4, 32, 2000
    mixing = cs.Mixing(causal=True, heads=2, output_projection=True, scale="head")
    paths = cs.predict(jax.random.key(1), start(m), 0.5, count, 40, mixing=mixing)
    networks = {"mixing": mixing, "network": cs.Network()}
    nets = cs.measure(jax.random.key(2), start(m), n, 16, count, **networks)
    limit = 1.63 * (2 / count) ** 0.5 + 0.01
    assert ks(cs.log_trace(paths), cs.log_trace(nets)) < limit
    assert ks(cs.correlation(paths, 2, 3), cs.correlation(nets, 2, 3)) < limit


def test_the_printed_variance_blows_up():
    """The printed 1/sqrt(n m) is not the scaling of the SDE: log-trace grows with depth."""
    m, n = 8, 256
    nets, theory = (
        cs.measure(
            jax.random.key(3), start(m), n, 16, 200, mixing=cs.Mixing(scale=(n * m) ** power)
        )
        for power in (-0.25, -0.5)
    )
    assert abs(float(cs.log_trace(nets).mean()) - 1.50) < 0.15
    assert abs(float(cs.log_trace(theory).mean())) < 0.1


@pytest.mark.slow
@pytest.mark.parametrize("m", [4, 8])
def test_distributions_at_width_200(m):
    count, n = 20_000, 200
    paths = cs.predict(jax.random.key(4), start(m), 1.0, count, 300, [0.5, 1.0])
    nets = cs.measure(jax.random.key(5), start(m), n, n, count, layers=[n // 2, n])
    for i in range(2):
        assert ks(cs.log_trace(paths[:, i]), cs.log_trace(nets[:, i])) < 0.02
        assert ks(cs.correlation(paths[:, i]), cs.correlation(nets[:, i])) < 0.02
