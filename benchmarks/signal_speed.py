"""Compares the speed of the exact finite-T theory with SciPy quadrature of the same integral.

    python benchmarks/signal_speed.py          about 20 seconds on one core

Times are CPU seconds after compilation, in float64, with T = 512 tokens. Y_q is the mean overlap of
an attention row with itself, Y_p that of the rows of two tokens (theory/rem/integrals.py).

SciPy computes only Y_q, and only at a few points; the time of 40,000 points is extrapolated. Y_q
depends on one number, the standard deviation s of the scores. A table of 32 values of s therefore
gives most of the gain, and SciPy would fill that table in seconds, too. Y_p is a two-dimensional
integral, for which SciPy is too slow.
"""

import time

import jax
import numpy as np
from scipy.integrate import quad

from theory import rem
from theory.rem import integrals
from theory.signal import Block, critical_alpha, propagate

T = 512
BETA, ALPHA, RHO = np.linspace(0, 3, 200), np.linspace(0, 3, 200), np.linspace(0, 1, 200)
BLOCK = Block(0.0, 1.0, 1.0, 0.2, 0.2, 4e-4)


@jax.jit
def phase_map(beta, rho):
    """Returns SA(rho): the cosine of two tokens after attention if it was rho before."""
    y_q, y_p = rem.self_overlap(beta, rho, T), rem.cross_overlap(beta, rho, T)
    return ((1 - rho) * y_p + rho) / ((1 - rho) * y_q + rho)


def seconds(call, repeat: int) -> float:
    """Returns the mean CPU seconds of `repeat` calls, after one that compiles."""
    jax.block_until_ready(call())
    start = time.process_time()
    for _ in range(repeat):
        jax.block_until_ready(call())
    return (time.process_time() - start) / repeat


def scipy_self_overlap(s: float) -> float:
    """Returns Y_q = T int du psi_2 psi_0^{T-1}; quadrature also computes both averages psi."""
    normal = lambda z: np.exp(-z * z / 2) / np.sqrt(2 * np.pi)  # noqa: E731

    def integrand(u):
        energy = lambda z: np.exp(min(u + s * z, 50.0))  # noqa: E731
        # 1 - psi_0
        missing = quad(lambda z: normal(z) * -np.expm1(-energy(z)), -9, 9)[0]
        psi_2 = quad(lambda z: normal(z) * energy(z) ** 2 * np.exp(-energy(z)), -9, 9)[0]
        return psi_2 * np.exp((T - 1) * np.log1p(-min(missing, 1 - 1e-16)))

    low, high = integrals._integration_range(s, T)
    return T * quad(integrand, low, high, limit=200)[0]


def build_tables() -> float:
    """Returns the CPU seconds that the tables of one T take."""
    integrals.tables_of_length.cache_clear()
    integrals.row_tables.cache_clear()
    start = time.process_time()
    integrals.tables_of_length(float(T))
    return time.process_time() - start


def main() -> None:
    # (name, measured CPU seconds, target)
    rows = [("tables of one T (no compilation)", build_tables(), 3.0)]
    beta_column, rho_row = BETA[:, None], RHO[None]
    cost = seconds(lambda: phase_map(beta_column, rho_row), 50)
    rows.append(("200 x 200 phase map SA(rho), exact", cost, 0.01))
    block = BLOCK.replace(beta=beta_column, alpha_sa=ALPHA[None])
    for name, target in (("exact", 0.4), ("limit", None)):
        cost = seconds(lambda: propagate(0.0, block, 60, T, name), 5)  # noqa: B023
        rows.append((f"200 x 200 diagram, 60 layers, {name}", cost, target))
    cost = seconds(lambda: critical_alpha(BETA, BLOCK, 60, T), 5)
    rows.append(("200 critical alphas, 60 layers, exact", cost, 0.1))
    start, points = time.process_time(), ((0.5, 0.2), (1.4, 0.2), (2.5, 0.5))
    worst = 0.0
    for beta, rho in points:
        value = scipy_self_overlap(beta * np.sqrt(np.log(T) * (1 - rho)))
        worst = max(worst, abs(value / float(rem.self_overlap(beta, rho, T)) - 1))
    each = (time.process_time() - start) / len(points)
    rows.append(("SciPy quadrature, Y_q alone, one point", each, None))
    rows.append(("SciPy quadrature, Y_q alone, 40,000 points (x 40,000)", 40_000 * each, None))
    print(f"T = {T}, CPU seconds{'':37}measured    target")
    for name, cost, target in rows:
        print(f"{name:54}{cost:12.4f}{'' if target is None else f'{target:10.2f}'}")
    print(f"largest relative difference of Y_q from SciPy (its default tolerances): {worst:.1e}")


if __name__ == "__main__":
    with jax.enable_x64(True):
        main()
