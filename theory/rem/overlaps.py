"""Attention at initialisation as a Random Energy Model (arXiv 2505.24333).

Scores have variance beta^2 ln T; tokens have one overlap rho with each other. T=None gives the
paper's limit T -> infinity. A number T gives the exact average at that T in the wide limit
(d -> infinity first), from tables that are built once for each T (theory.rem.integrals). beta and
rho broadcast, may be traced and differentiated, also at beta = 0 and rho in {0, 1}; T is a plain
number. Any beta is allowed: the tables reach s = infinity (the pair table is continued as a
straight line in 1/s beyond beta = 6: off by 3e-4 at beta = 8, 2 % at beta = 50).

Two corrections to the paper. Its finite-size overlap e^{-S} = T^{-1+(beta/beta_c)^2} (eq. 15) has
the wrong exponent: E sum A^2 ~ T^{-1+2b^2} for b = beta/beta_c < 1/sqrt(3) and
~ (ln T)^{-1/2} T^{-(1-b^2)^2/(4b^2)} up to b = 1 (e^{-S} is another Renyi order); and the
cross-overlap is not negligible: Y_p / Y_q is 0.37 at T = 1024, beta = 1, rho = 0.6.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError
from theory.numerics import (
    Numbers,
    chebyshev_sum,
    chebyshev_sum_2d,
    check_count,
    check_range,
    is_concrete,
)
from theory.rem.integrals import pair_overlap, row_tables, tables
from theory.rem.interpolated_tables import END, SCALE, SOFTEN

LONGEST = 1e15  # tokens: the integrals are exact to here, and beyond it 1 - 1/T is 1


def critical_beta(rho: Numbers) -> jax.Array:
    """beta_c = sqrt(2 / (1 - rho)): condensation of a row of attention, T -> infinity."""
    check_range("rho", rho, 0, 1)
    return jnp.sqrt(2 / (1 - jnp.asarray(rho, float)))


def self_overlap(
    beta: Numbers, rho: Numbers, T: float | None = None, d_head: int | None = None
) -> jax.Array:
    """Y_q = E sum_s A_ts^2, the inverse participation ratio of a row.

    Limit (eq. 13): 0 below beta_c, 1 - beta_c / beta above. `d_head` adds the spread of |q_t|^2
    at a finite head dimension exactly: Y_q averaged over s^2 chi^2_{d_head} / d_head.
    """
    beta, rho, T = _checked(beta, rho, T, d_head)
    if T is None:
        return _condensed(_reduced_square(beta, rho))
    if d_head is None:
        return _self_overlap(beta, rho, T)
    factors, weights = _chi_square(d_head, d_head, 5)
    terms = [_self_overlap(beta * c**0.5, rho, T) for c in factors]
    return jnp.tensordot(jnp.asarray(weights, beta.dtype), jnp.stack(terms), axes=1)


def cross_overlap(
    beta: Numbers, rho: Numbers, T: float | None = None, d_head: int | None = None
) -> jax.Array:
    """Y_p = E sum_s A_ts A_t's, t != t'. Limit: 0. At rho = 0 it is 1/T.

    `d_head` averages over the Wishart matrix of two queries (27 integrals a point, about 0.1 s; by
    callback, so it has no gradient).
    """
    beta, rho, T = _checked(beta, rho, T, d_head)
    if T is None:
        return jnp.zeros(jnp.broadcast_shapes(beta.shape, rho.shape), beta.dtype)
    if d_head is None:
        return _cross_overlap(beta, rho, T)
    beta, rho = jnp.broadcast_arrays(beta, rho)
    out = jax.ShapeDtypeStruct(beta.shape, beta.dtype)
    average = partial(_wishart_average, T=T, d_head=d_head)
    return jax.pure_callback(average, out, beta, rho, vmap_method="broadcast_all")


def second_moment(beta: Numbers, rho: Numbers, T: float | None = None) -> jax.Array:
    """E (sum_s A_ts^2)^2. Limit: (Y + 2 Y^2) / 3, the overlaps of a REM (Ghirlanda-Guerra)."""
    beta, rho, T = _checked(beta, rho, T)
    if T is None:
        y = _condensed(_reduced_square(beta, rho))
        return (y + 2 * y**2) / 3
    return _second_moment(beta, rho, T)


def attention_entropy(beta: Numbers, rho: Numbers, T: float) -> jax.Array:
    """Mean Shannon entropy of a row in nats, E ln Z - s^2 (1 - Y_q); ln T at beta = 0.

    T -> infinity: ln T (1 - beta^2 / beta_c^2) below beta_c (the paper's B.18, misprint mended).
    """
    tokens = _needed(T, "attention_entropy")
    beta, rho, _ = _checked(beta, rho, tokens)
    return _entropy(beta, rho, tokens)


def self_overlap_heuristic(beta: Numbers, rho: Numbers, T: float) -> jax.Array:
    """The paper's finite-size rule: T^{-1 + (beta/beta_c)^2} below beta_c (eq. 15), eq. 13 above.

    For comparison only; the module's docstring says what is wrong with the exponent.
    """
    tokens = _needed(T, "self_overlap_heuristic")
    beta, rho, _ = _checked(beta, rho, tokens)
    square = _reduced_square(beta, rho)
    below = jnp.exp((jnp.minimum(square, 1) - 1) * np.log(tokens))
    return jnp.where(square < 1, below, _condensed(square))


def spectrum_radius(beta: Numbers, rho: Numbers, T: float | None = None) -> jax.Array:
    """Radius of the bulk of the eigenvalues of A, sqrt(Y_q - Y_p) for rows that are independent
    otherwise (d >> T; at T = d and small beta it is larger by sqrt(1 + T/d)). The outlier is 1."""
    gap = self_overlap(beta, rho, T) - cross_overlap(beta, rho, T)
    return jnp.where(gap > 0, jnp.sqrt(jnp.where(gap > 0, gap, 1)), 0)


# Checks ------------------------------------------------------------------------------------------


def _checked(beta, rho, T, d_head=None) -> tuple[jax.Array, jax.Array, float | None]:
    check_range("beta", beta, 0)
    check_range("rho", rho, 0, 1)
    if d_head is not None:
        check_count("d_head", d_head, 2)
        _needed(T, "d_head")
    T = None if T is None else number_of_tokens(T)
    beta, rho = jnp.asarray(beta, float), jnp.asarray(rho, float)
    rank = max(beta.ndim, rho.ndim)
    beta, rho = (jnp.reshape(x, (1,) * (rank - x.ndim) + x.shape) for x in (beta, rho))
    return beta, rho, T


def _needed(T: float | None, what: str) -> float:
    if T is None:
        raise UserError(f"{what} needs the number of tokens T, a number of at least 2; got None.")
    return number_of_tokens(T)


def number_of_tokens(T: Any) -> float:
    """T as a float, if it is one number of at least 2 that is known before tracing."""
    if not is_concrete(T) or np.ndim(T):
        raise UserError("T must be one number known before tracing: its tables are built once.")
    check_range("T", T, 2)
    check_range("T", T, 2, LONGEST)
    return float(T)


# The limit ---------------------------------------------------------------------------------------


def _reduced_square(beta, rho):
    """(beta / beta_c)^2: no square root, so its gradient is finite at rho = 1."""
    return beta**2 * (1 - rho) / 2


def _condensed(square):
    return jnp.where(square > 1, 1 - jax.lax.rsqrt(jnp.where(square > 1, square, 1.0)), 0.0)


# Tables ------------------------------------------------------------------------------------------


def coordinate_s(beta: Numbers, rho: Numbers) -> jax.Array:
    """1 - 1/sqrt(1 + s^2/c^2) in [0, 1), c = SCALE sqrt(ln T)."""
    return 1 - jax.lax.rsqrt(1 + beta**2 * (1 - rho) / SCALE**2)


def coordinate_rho(rho: Numbers) -> jax.Array:
    """sqrt(1 - rho + SOFTEN), moved to [0, 1]."""
    low, high = SOFTEN**0.5, (1 + SOFTEN) ** 0.5
    return (jnp.sqrt(1 - rho + SOFTEN) - low) / (high - low)


@partial(jax.jit, static_argnames="T")
def _self_overlap(beta, rho, T):
    return jnp.exp(chebyshev_sum(coordinate_s(beta, rho), row_tables(T).overlap)) / T


@partial(jax.jit, static_argnames="T")
def _cross_overlap(beta, rho, T):
    x, y = coordinate_s(beta, rho) / END, coordinate_rho(rho)
    return jnp.exp(chebyshev_sum_2d(x, y, tables(T).pair)) / T


@partial(jax.jit, static_argnames="T")
def _second_moment(beta, rho, T):
    return jnp.exp(chebyshev_sum(coordinate_s(beta, rho), row_tables(T).moment)) / T**2


@partial(jax.jit, static_argnames="T")
def _entropy(beta, rho, T):
    x = coordinate_s(beta, rho)
    return chebyshev_sum(x, row_tables(T).entropy) * (1 - x)


# Finite head dimension ---------------------------------------------------------------------------


def _chi_square(degrees: float, divisor: float, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Gauss nodes and weights of chi^2_degrees / divisor (generalised Laguerre)."""
    from scipy.special import roots_genlaguerre

    x, w = roots_genlaguerre(n, degrees / 2 - 1)
    return 2 * x / divisor, w / w.sum()


def _wishart_average(beta, rho, *, T, d_head):
    """Y_p over (c11, c22, c12) ~ Wishart_2(d_head, [[1, rho], [rho, 1]]) / d_head, by Bartlett."""
    from scipy.special import roots_hermitenorm

    x, w_x = _chi_square(d_head, d_head, 3)
    y, w_y = _chi_square(d_head - 1, d_head, 3)
    z, w_z = roots_hermitenorm(3)
    z, w_z = z / np.sqrt(d_head), w_z / w_z.sum()
    out = np.zeros(np.shape(beta))
    for index in np.ndindex(out.shape):
        b, r = float(np.asarray(beta)[index]), float(np.asarray(rho)[index])
        s = b * np.sqrt((1 - r) * np.log(T))
        for i, j, k in np.ndindex(3, 3, 3):
            # L = [[sqrt x, 0], [z, sqrt y]]; the rows of chol([[1, r], [r, 1]]) L.
            one = np.array([np.sqrt(x[i]), 0.0])
            two = r * one + np.sqrt(1 - r**2) * np.array([z[k], np.sqrt(y[j])])
            norms = np.linalg.norm(one), np.linalg.norm(two)
            cosine = float(np.clip(one @ two / (norms[0] * norms[1]), -1, 1))
            weight = w_x[i] * w_y[j] * w_z[k]
            out[index] += weight * pair_overlap(s * norms[0], s * norms[1], cosine, T)
    return out.astype(np.asarray(beta).dtype)
