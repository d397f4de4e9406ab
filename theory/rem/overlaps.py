"""Overlaps and entropy of attention at initialisation, a Random Energy Model (arXiv 2505.24333).

Scores have variance beta^2 ln T. Any two tokens have cosine rho. T=None gives the paper's limit
T -> infinity. A number T gives the exact average at T tokens in the wide limit (d -> infinity
first), from tables that are built once for each T (`theory.rem.integrals`).

beta and rho broadcast. They may be traced and differentiated, also at beta = 0 and rho in {0, 1}.
Every beta >= 0 is allowed. Beyond beta = 6 the pair table continues as a straight line in 1/s: the
error is 3e-4 at beta = 8 and 2 % at beta = 50.

Two corrections to the paper, with b = beta / beta_c:

    eq. 15   Y_q = T^{-1+b^2} has the wrong exponent. Exact: T^{-1+2b^2} for b < 1/sqrt(3), then
             (ln T)^{-1/2} T^{-(1-b^2)^2/(4b^2)} up to b = 1. (T^{-1+b^2} is exp(-entropy), which
             has another Renyi order.)
    Y_p = 0  The cross-overlap is not negligible: Y_p / Y_q = 0.37 at T = 1024, beta = 1, rho = 0.6.
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
    in_float64,
    is_concrete,
)
from theory.rem.coordinates import PAIR_END, cosine_coordinate, spread_coordinate
from theory.rem.integrals import pair_overlap, row_tables, tables_of_length
from theory.rem.limit import heuristic_overlap, limit_overlap

MAX_LENGTH = 1e15  # tokens; for more, 1 - 1/T rounds to 1


@in_float64
def critical_beta(rho: Numbers) -> jax.Array:
    """Returns beta_c = sqrt(2 / (1 - rho)), above which an attention row condenses (T -> infinity).

    Args:
      rho: cosine of two tokens, in [0, 1].

    Returns:
      beta_c in the shape of rho; infinity at rho = 1.
    """
    check_range("rho", rho, 0, 1)
    return jnp.sqrt(2 / (1 - jnp.asarray(rho, float)))


@in_float64
def self_overlap(
    beta: Numbers, rho: Numbers, T: float | None = None, d_head: int | None = None
) -> jax.Array:
    """Returns Y_q = E sum_s A_ts^2, the inverse participation ratio of a row of attention.

    Args:
      beta: score scale; scores have variance beta^2 ln T.
      rho: cosine of two tokens, in [0, 1].
      T: number of tokens. None gives the limit (eq. 13): 0 below beta_c, 1 - beta_c/beta above.
      d_head: head dimension. None is the wide limit; a number averages over the squared norm of
        a query, |q_t|^2 ~ chi^2_{d_head} / d_head.

    Returns:
      Y_q in the broadcast shape of beta and rho.

    Example:
      >>> round(float(theory.rem.self_overlap(1.0, 0.0, T=512)), 5)
      0.10148
    """
    beta, rho, T = _checked(beta, rho, T, d_head)
    if T is None:
        return limit_overlap(beta, rho, jnp)
    if d_head is None:
        return _self_overlap(beta, rho, T)
    factors, weights = _chi_square(d_head, d_head, 5)
    terms = [_self_overlap(beta * c**0.5, rho, T) for c in factors]
    return jnp.tensordot(jnp.asarray(weights, beta.dtype), jnp.stack(terms), axes=1)


@in_float64
def cross_overlap(
    beta: Numbers, rho: Numbers, T: float | None = None, d_head: int | None = None
) -> jax.Array:
    """Returns Y_p = E sum_s A_ts A_t's for t != t', the overlap of the rows of two tokens.

    Args:
      beta: score scale; scores have variance beta^2 ln T.
      rho: cosine of two tokens, in [0, 1]. At rho = 0 the result is 1/T.
      T: number of tokens. None gives the limit, 0.
      d_head: head dimension. None is the wide limit; a number averages over the Wishart matrix of
        two queries. This takes 27 integrals (about 0.1 s) for each point, in a callback without a
        gradient.

    Returns:
      Y_p in the broadcast shape of beta and rho.
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


@in_float64
def second_moment(beta: Numbers, rho: Numbers, T: float | None = None) -> jax.Array:
    """Returns E (sum_s A_ts^2)^2 in the broadcast shape of beta and rho.

    The limit T -> infinity is (Y_q + 2 Y_q^2) / 3 (Ghirlanda-Guerra identities).

    Args:
        beta: the score scale.
        rho: the cosine of two tokens.
        T: the number of tokens; None for the limit T -> infinity.
    """
    beta, rho, T = _checked(beta, rho, T)
    if T is None:
        y = limit_overlap(beta, rho, jnp)
        return (y + 2 * y**2) / 3
    return _second_moment(beta, rho, T)


@in_float64
def attention_entropy(beta: Numbers, rho: Numbers, T: float) -> jax.Array:
    """Returns the mean Shannon entropy of a row in nats, E ln Z - s^2 (1 - Y_q).

    For T -> infinity it is ln T (1 - beta^2 / beta_c^2) below beta_c; B.18 misprints beta_c.

    Args:
      beta: score scale; scores have variance beta^2 ln T.
      rho: cosine of two tokens, in [0, 1].
      T: number of tokens.

    Returns:
      Entropy in the broadcast shape of beta and rho; ln T at beta = 0.
    """
    tokens = _required_length(T, "attention_entropy")
    beta, rho, _ = _checked(beta, rho, tokens)
    return _entropy(beta, rho, tokens)


@in_float64
def self_overlap_heuristic(beta: Numbers, rho: Numbers, T: float) -> jax.Array:
    """Returns Y_q by the paper's finite-size rule: eq. 15 below beta_c, eq. 13 above.

    It is for comparison only: the exponent of eq. 15 is wrong (see the module's docstring).
    """
    tokens = _required_length(T, "self_overlap_heuristic")
    beta, rho, _ = _checked(beta, rho, tokens)
    return heuristic_overlap(beta, rho, tokens, jnp)


@in_float64
def spectrum_radius(beta: Numbers, rho: Numbers, T: float | None = None) -> jax.Array:
    """Returns sqrt(Y_q - Y_p), the radius of the disc of eigenvalues of A without its outlier 1.

    The formula needs d >> T. At T = d and small beta the radius is larger by sqrt(1 + T/d).

    Args:
        beta, rho, T: as in `second_moment`.
    """
    gap = self_overlap(beta, rho, T) - cross_overlap(beta, rho, T)
    return jnp.where(gap > 0, jnp.sqrt(jnp.where(gap > 0, gap, 1)), 0)


# Checks ------------------------------------------------------------------------------------------


def _checked(beta, rho, T, d_head=None) -> tuple[jax.Array, jax.Array, float | None]:
    check_range("beta", beta, 0)
    check_range("rho", rho, 0, 1)
    if d_head is not None:
        check_count("d_head", d_head, 2)
        _required_length(T, "d_head")
    T = None if T is None else number_of_tokens(T)
    beta, rho = jnp.asarray(beta, float), jnp.asarray(rho, float)
    rank = max(beta.ndim, rho.ndim)  # equal ranks, for jax_numpy_rank_promotion="raise"
    beta, rho = (jnp.reshape(x, (1,) * (rank - x.ndim) + x.shape) for x in (beta, rho))
    return beta, rho, T


def _required_length(T: float | None, what: str) -> float:
    if T is None:
        raise UserError(f"{what} needs the number of tokens T, a number of at least 2; got None.")
    return number_of_tokens(T)


def number_of_tokens(T: Any) -> float:
    """Returns T as a float; raises UserError unless it is one concrete number of at least 2."""
    if not is_concrete(T) or np.ndim(T):
        raise UserError("T must be one number known before tracing: its tables are built once.")
    # The first check has the clearer message for T < 2.
    check_range("T", T, 2)
    check_range("T", T, 2, MAX_LENGTH)
    return float(T)


# Tables ------------------------------------------------------------------------------------------


def _spread(beta, rho):
    return spread_coordinate(beta**2 * (1 - rho), jnp)


@partial(jax.jit, static_argnames="T")
def _self_overlap(beta, rho, T):
    return jnp.exp(chebyshev_sum(_spread(beta, rho), row_tables(T).overlap)) / T


@partial(jax.jit, static_argnames="T")
def _cross_overlap(beta, rho, T):
    x, y = _spread(beta, rho) / PAIR_END, cosine_coordinate(rho, jnp)
    return jnp.exp(chebyshev_sum_2d(x, y, tables_of_length(T).pair)) / T


@partial(jax.jit, static_argnames="T")
def _second_moment(beta, rho, T):
    return jnp.exp(chebyshev_sum(_spread(beta, rho), row_tables(T).moment)) / T**2


@partial(jax.jit, static_argnames="T")
def _entropy(beta, rho, T):
    x = _spread(beta, rho)
    return chebyshev_sum(x, row_tables(T).entropy) * (1 - x)


# Finite head dimension ---------------------------------------------------------------------------


def _chi_square(degrees: float, divisor: float, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns Gauss nodes and weights (n,) of chi^2_degrees / divisor (generalised Laguerre)."""
    from scipy.special import roots_genlaguerre

    x, w = roots_genlaguerre(n, degrees / 2 - 1)
    return 2 * x / divisor, w / w.sum()


def _wishart_average(beta, rho, *, T, d_head):
    """Averages Y_p over Wishart_2(d_head, [[1, rho], [rho, 1]]) / d_head (Bartlett)."""
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
            # The two queries are the rows of chol([[1, r], [r, 1]]) [[sqrt x, 0], [z, sqrt y]].
            first = np.array([np.sqrt(x[i]), 0.0])
            second = r * first + np.sqrt(1 - r**2) * np.array([z[k], np.sqrt(y[j])])
            norms = np.linalg.norm(first), np.linalg.norm(second)
            cosine = float(np.clip(first @ second / (norms[0] * norms[1]), -1, 1))
            weight = w_x[i] * w_y[j] * w_z[k]
            out[index] += weight * pair_overlap(s * norms[0], s * norms[1], cosine, T)
    return out.astype(np.asarray(beta).dtype)
