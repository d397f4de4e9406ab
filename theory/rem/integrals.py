"""Exact integrals of the Random Energy Model of softmax attention at finite T, and their tables.

At initialisation a row of scores y_1 .. y_T is T independent N(0, s^2), up to terms that a softmax
cancels. Here s = beta sqrt((1-rho) ln T); as an index s counts columns. Two rows have correlation
rho in each column (Kronecker covariance of the wide limit, d -> infinity at fixed T). With
Z = sum_s e^{y_s}, write 1/Z^k = int du e^{ku} exp(-e^u Z) / Gamma(k). The average over columns then
factorises:

    psi_k(u) = E g_k(u + y),   g_k(y) = e^{ky} exp(-e^y),   y ~ N(0, s^2)
    psi_kl(u, v) = E g_k(u + y) g_l(v + y'),   y and y' with correlation rho
    E sum_s A_s^2     = T int du psi_2 psi_0^{T-1}
    E (sum_s A_s^2)^2 = 1/6 int du [T psi_4 psi_0^{T-1} + T (T-1) psi_2^2 psi_0^{T-2}]
    E sum_s A_s^3     = 1/2 int du T psi_3 psi_0^{T-1}
    E ln Z            = -gamma - u_lo - int_{u_lo} du psi_0^T
    mean entropy      = E ln Z - s^2 (1 - E sum_s A_s^2)      (Stein's lemma)
    E sum_s A_s A'_s  = T int int du dv psi_11 psi_00^{T-1}

psi_0^T is 1 below the lower limit u_lo of the integrals.

arXiv 2505.24333 defines the model; it has no integrals at finite T. Everything is NumPy
and float64: it runs once for each T, also while jit is tracing.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from theory.quadrature import chebyshev_fit, chebyshev_nodes, normal_nodes, trapezoid
from theory.rem.coordinates import PAIR_END, cosine_at, spread_at
from theory.rem.interpolated_tables import load_tables

MIN_SPREAD = 1e-9  # stands for s = 0, where the integrals are 0/0
_Y, _DY = trapezoid(-42.0, 4.2, 190)  # for k >= 1, g_k(y) vanishes outside this interval
_MAX_Y = 6.5  # exp(-e^y) rounds to 0 above


class RowStatistics(NamedTuple):
    """Averages over one row of attention weights A_s, s = 1 .. T."""

    self_overlap: float  # E sum_s A_s^2
    second_moment: float  # E (sum_s A_s^2)^2
    log_partition: float  # E ln Z
    entropy: float  # nats
    cube: float  # E sum_s A_s^3


class Tables(NamedTuple):
    """Chebyshev coefficients for one T, in the coordinates of `theory.rem.coordinates`.

    With Y = sum_s A_s^2: Y_q = E Y, Y_p = E sum_s A_s A'_s for two rows, and H is the mean entropy.
    """

    overlap: np.ndarray  # ln(T Y_q) against the spread
    moment: np.ndarray  # ln(T^2 E Y^2) against the spread
    entropy: np.ndarray  # H sqrt(1 + s^2/c^2) against the spread
    pair: np.ndarray  # ln(T Y_p) against the spread (axis 0) and the cosine (axis 1)


@lru_cache(maxsize=16)
def row_tables(T: float) -> Tables:
    """Returns the tables of averages over one row. The field `pair` is empty.

    The first call for a T takes a few hundredths of a second.
    """

    def fit(n, value_of):
        x = chebyshev_nodes(n)
        rows = [row_statistics(s, T) for s in spread_at(x) * np.sqrt(np.log(T))]
        return chebyshev_fit(np.array([value_of(row, x_i) for row, x_i in zip(rows, x)]))

    # The series of longer rows need more terms.
    n = 32 if T <= 1024 else 48 if T <= 1e5 else 72
    return Tables(
        fit(n, lambda row, _: np.log(T * row.self_overlap)),
        fit(2 * n, lambda row, _: np.log(T**2 * row.second_moment)),
        fit(n, lambda row, x: row.entropy * (1 / (1 - x))),
        np.zeros((0, 0)),
    )


@lru_cache(maxsize=16)
def tables_of_length(T: float) -> Tables:
    """Returns all tables of one T.

    The relative error of Y_q is 3e-8. For beta <= 4 the relative error of Y_p is at most 5e-7 up to
    T = 1024, and 2e-6 at T = 1e8. The pair table takes 0.7 s unless overlaps.npz has it.
    """
    pair = load_tables().get(f"pair_{T:g}")
    n_spread, n_rho = (24, 16) if T <= 1024 else (32, 20) if T <= 1e5 else (48, 24)
    if pair is None:
        pair = pair_table(T, n_spread, n_rho)
    return row_tables(T)._replace(pair=pair)


def pair_table(T: float, n_spread: int, n_rho: int) -> np.ndarray:
    """Returns the Chebyshev coefficients (n_spread, n_rho) of ln(T Y_p)."""
    spreads = spread_at(PAIR_END * chebyshev_nodes(n_spread)) * np.sqrt(np.log(T))
    rhos = cosine_at(chebyshev_nodes(n_rho))
    values = np.log([[T * pair_overlap(s, s, rho, T) for rho in rhos] for s in spreads])
    return chebyshev_fit(np.ascontiguousarray(chebyshev_fit(values).T)).T


def row_statistics(s: float, T: float) -> RowStatistics:
    """Returns the averages over a row of T scores N(0, s^2), s >= 0, exact to about 1e-11.

    At s > 100 the entropy loses accuracy by cancellation, about 1e-16 s^2.
    """
    s = max(float(s), MIN_SPREAD)
    u_lo, u_hi = _integration_range(s, T)
    u, du = trapezoid(u_lo, u_hi, 224)
    gap, psi_2, psi_3, psi_4 = _column_averages(u, s, (2, 3, 4))
    # psi_0 ** (T-1) would round to 1 where 1 - psi_0 is small: use log1p(-E[1 - exp(-e^y)]).
    log_psi_0 = np.log1p(-np.minimum(gap, 1 - 1e-16))
    overlap = T * np.sum(du * psi_2 * np.exp((T - 1) * log_psi_0))
    one_column = T * psi_4 * np.exp((T - 1) * log_psi_0)
    two_columns = T * (T - 1) * psi_2**2 * np.exp((T - 2) * log_psi_0)
    second_moment = np.sum(du * (one_column + two_columns)) / 6
    log_partition = -np.euler_gamma - u_lo - np.sum(du * np.exp(T * log_psi_0))
    entropy = log_partition - s**2 * (1 - overlap)
    cube = T * np.sum(du * psi_3 * np.exp((T - 1) * log_psi_0)) / 2
    return RowStatistics(overlap, second_moment, log_partition, entropy, cube)


def pair_overlap(s_1: float, s_2: float, r: float, T: float) -> float:
    """Returns E sum_s A_s A'_s of two rows of scores.

    In each column the scores of both rows share a component z, which is integrated last. Given z
    the rows are independent: Phi_k(u, z) = E[g_k(u + y) | z], and Phi'_k for the second row. With
    gap = 1 - Phi_0 and m(u) = E_z gap(u, z), two matrix products remain:
    psi_11 = E_z Phi_1 Phi'_1 and 1 - psi_00 = m(u) + m'(v) - E_z gap gap'.

    Args:
      s_1: standard deviation of the first row's scores.
      s_2: standard deviation of the second row's scores.
      r: correlation of the two rows in each column, |r| <= 1.
      T: number of columns.
    """
    s_1, s_2 = max(float(s_1), MIN_SPREAD), max(float(s_2), MIN_SPREAD)
    private = np.sqrt(1 - min(abs(r), 1.0))
    shared = np.sqrt(abs(r))
    # The largest steps in u that resolve Phi_1: g_1 has width 1, the private component widens it.
    max_steps = [0.5 * max(1.0, 1.6 * s * private) for s in (s_1, s_2)]
    # A step dz moves u by s shared dz.
    dz_1, dz_2 = (step / max(s * shared, MIN_SPREAD) for step, s in zip(max_steps, (s_1, s_2)))
    dz = min(0.5, dz_1, dz_2)
    reach = int(np.ceil(8.5 / dz)) if shared else 0  # the density of z is below 1e-16 beyond 8.5
    z = dz * np.arange(-reach, reach + 1)
    w = np.exp(-(z**2) / 2)
    w /= w.sum()
    sign = 1 if r >= 0 else -1
    du, gap_1, phi_1 = _smeared_row(s_1, private, shared, z, max_steps[0], T)
    dv, gap_2, phi_2 = du, gap_1, phi_1
    if s_1 != s_2 or sign == -1:
        dv, gap_2, phi_2 = _smeared_row(s_2, private, shared, sign * z, max_steps[1], T)
    gap = (gap_1 @ w)[:, None] + (gap_2 @ w)[None] - (gap_1 * w) @ gap_2.T  # 1 - psi_00
    log_psi_00 = np.log1p(-np.clip(gap, 0, 1 - 1e-16))
    psi_11 = (phi_1 * w) @ phi_2.T
    return T * (du @ (psi_11 * np.exp((T - 1) * log_psi_00)) @ dv)


def _smeared_row(s, private, shared, z, max_step, T):
    """Returns du, 1 - Phi_0 and Phi_1 of one row, the last two with axes u and z.

    Phi_k(u, z) = E g_k(u + s shared z + s private z') over z' ~ N(0, 1).
    """
    u_lo, u_hi = _integration_range(s, T)
    u_lo -= 5  # with two rows the neglected tail below u_lo is e^{-24}
    n = max(160, 2 + int((u_hi - u_lo) / max_step))
    step = (u_hi - u_lo) / (n - 1)
    jump = s * shared * abs(z[1] - z[0]) if len(z) > 1 else 0.0  # change of u by a step in z
    if jump < step / 2:
        u, du = trapezoid(u_lo, u_hi, n)
        gap, phi_1 = _column_averages(u[:, None] + s * shared * z[None], s * private, (1,))
        return du, gap, phi_1
    # If a step in z is a whole number m of steps in u, all u + s shared z lie on one short grid.
    m = int(np.ceil(jump / step))
    step, reach = jump / m, len(z) // 2
    n = 1 + int(np.ceil((u_hi - u_lo) / step))
    line = u_lo + step * np.arange(-m * reach, n + m * reach)
    gap, phi_1 = _column_averages(line, s * private, (1,))
    order = np.arange(len(z)) if z[0] < z[-1] else np.arange(len(z))[::-1]
    index = np.arange(n)[:, None] + m * order[None]
    du = np.full(n, step)
    du[[0, -1]] /= 2
    return du, gap[index], phi_1[index]


def _column_averages(u: np.ndarray, s: float, powers: tuple[int, ...]) -> list[np.ndarray]:
    """Returns 1 - psi_0(u), then psi_k(u) for k in powers, each in the shape of u.

    The integration variable is z for small s and y = u + s z for large s.
    """
    if s < 1.75:
        z, w = normal_nodes(97)  # e^{ky} moves the weight to z = k s, far from 0
        y = np.minimum(u[..., None] + s * z, _MAX_Y)
        energy = np.exp(y)
        weight = np.exp(-energy)
        return [-np.expm1(-energy) @ w] + [(energy**k * weight) @ w for k in powers]
    deviation = (_Y - u[..., None]) / s
    density = np.exp(-(deviation**2) / 2) / (s * np.sqrt(2 * np.pi))
    g = [np.exp(k * _Y - np.exp(_Y)) * _DY for k in (1, *powers)]
    # Integration by parts: g_1 is the derivative of 1 - exp(-e^y).
    return [ndtr(-deviation) @ g[0]] + [density @ g_k for g_k in g[1:]]


def _integration_range(s: float, T: float) -> tuple[float, float]:
    """Returns the interval of u in which psi_0^T falls from about 1 - e^{-19} to 1e-16."""
    log_T = np.log(T)
    if s < np.sqrt(2 * log_T):
        low = -(log_T + s**2 / 2 + 19)
    else:
        low = -max(s * np.sqrt(2 * log_T) + 19, s * np.sqrt(2 * (log_T + 37)) + 4.5)
    return low, min(-s * ndtri(10 ** (-16 / T)) + 4.5, 9 * s + 4.5)
