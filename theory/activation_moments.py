"""Second moments of an activation phi at two correlated Gaussians: E phi(u)^2 and E phi(u) phi(v).

u ~ N(0, q) and v ~ N(0, q') have correlation c >= 0. ReLU has a closed form, the arc-cosine kernel.
Other activations are expanded in the orthonormal Hermite polynomials h_k of z ~ N(0, 1), with the
coefficients a_k(q) = E phi(sqrt(q) z) h_k(z):

    E phi(u) phi(v) = sum_k a_k(q) a_k(q') c^k

A polynomial in c has finite gradients at c = 1, where two-dimensional quadrature has none. The
remainder of the truncated series is added to its last term, so that c = 1 gives E phi^2.

`second_moments` takes one variance, in NumPy or jax. `moments` and `slopes` take the variances of
K tokens, in NumPy. Importing this module does not import jax.
"""

import math
from collections.abc import Callable
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np

from jaxformer.core.errors import UserError
from theory.quadrature import arc_cosine, hermite, normal_nodes

N_TERMS = 160  # of the Hermite series
_Z, _WEIGHTS = normal_nodes(641)
# `moments` evaluates thousands of variances: a coarser rule is accurate to 1e-8.
N_COARSE_TERMS = 48
COARSE_STEP = 0.004  # of the grid in ln sqrt(q)
_COARSE_Z, _COARSE_WEIGHTS = normal_nodes(181, reach=9.0)
_erf = np.frompyfunc(math.erf, 1, 1)


def _sigmoid(x):
    return 0.5 * (1 + np.tanh(x / 2))


# NumPy versions of jaxformer.models.activations.ACTIVATIONS, except ReLU.
PHI: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "gelu": lambda x: x * 0.5 * (1 + np.asarray(_erf(x / 2**0.5), float)),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3))),
    "quick_gelu": lambda x: x * _sigmoid(1.702 * x),
    "silu": lambda x: x * _sigmoid(x),
    "tanh": np.tanh,
    "linear": lambda x: x,
}
ACTIVATIONS = ("relu", *PHI)


def second_moments(
    activation: str | Callable, q: Any, xp: ModuleType = np
) -> tuple[Any, Callable[[Any], Any]]:
    """Returns E phi(u)^2, and the function c -> E phi(u) phi(v), of Gaussians of variance q.

    Args:
      activation: a name in `ACTIVATIONS`, or with jax an elementwise function.
      q: variance, a number or an array.
      xp: array namespace, numpy or jax.numpy.

    Returns:
      E phi(u)^2 in the shape of q, and the function. The function takes correlations in [0, 1] and
      returns an array whose shape is that of q and c broadcast together.
    """
    q = xp.asarray(q, float)
    if activation == "relu":
        return q / 2, lambda c: q / 2 * _relu_cosine(c, xp)
    phi = _activation_function(activation, xp)
    deviation = xp.sqrt(xp.maximum(q, xp.finfo(q.dtype).tiny))
    values = phi(deviation[..., None] * xp.reshape(_Z, (1,) * q.ndim + (-1,)))
    if values.shape != (*q.shape, len(_Z)):
        raise UserError(f"the activation must act elementwise, got shape {values.shape} back.")
    square = values**2 @ xp.asarray(_WEIGHTS, values.dtype)
    a = values @ xp.asarray(_WEIGHTS[:, None] * hermite(_Z, N_TERMS), values.dtype)
    remainder = square - xp.sum(a**2, -1)
    series = xp.concatenate([a**2, remainder[..., None]], -1)
    highest_first = xp.moveaxis(series, -1, 0)[::-1]
    if xp is np:  # leading terms without effect cost time; a traced series cannot be shortened
        is_large = highest_first > 1e-14 * max(np.max(square), 1e-300)
        first_large = int(np.argmax(is_large.reshape(len(highest_first), -1).any(-1)))
        highest_first = highest_first[first_large:]
    return square, lambda c: xp.polyval(highest_first, c)


def _relu_cosine(c, xp):
    if xp is np:
        return arc_cosine(c)
    from theory.activations import relu_cosine

    return relu_cosine(c)


def _activation_function(activation, xp):
    if xp is np:
        return PHI[activation]
    from theory.activations import activation_function

    return activation_function(activation)


# Several variances -------------------------------------------------------------------------------


def moments(activation: str, q_K: np.ndarray, p_KxK: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns E phi(u_k)^2, (K,), and E phi(u_k) phi(u_l), (K, K).

    Args:
      activation: a name in `ACTIVATIONS`.
      q_K: variances of the Gaussians u_k.
      p_KxK: their covariances.
    """
    scale_KxK, c_KxK = _correlations(q_K, p_KxK)
    if activation == "relu":
        return q_K / 2, scale_KxK / 2 * arc_cosine(c_KxK)
    return _moments_by_series(activation, q_K, c_KxK, is_slope=False)


def slopes(activation: str, q_K: np.ndarray, p_KxK: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns E phi'(u_k)^2, (K,), and E phi'(u_k) phi'(u_l), (K, K); arguments as in `moments`.

    The backward pass through the activation multiplies squared gradients by these moments.
    """
    _, c_KxK = _correlations(q_K, p_KxK)
    if activation == "relu":
        return np.full_like(q_K, 0.5), (np.pi - np.arccos(c_KxK)) / (2 * np.pi)
    return _moments_by_series(activation, q_K, c_KxK, is_slope=True)


def _correlations(q_K, p_KxK):
    scale_KxK = np.sqrt(q_K[:, None] * q_K[None])
    return scale_KxK, np.clip(p_KxK / np.where(scale_KxK > 0, scale_KxK, 1), 0, 1)


def _moments_by_series(activation, q_K, c_KxK, is_slope):
    # The columns are the Hermite coefficients a_k and, last, E phi^2.
    table_KxM = np.stack([_interpolated(activation, x, is_slope) for x in np.sqrt(q_K).tolist()])
    a_KxM, square_K = table_KxM[:, :-1], table_KxM[:, -1]
    large = np.flatnonzero(np.abs(a_KxM).max(0) > 1e-9 * np.sqrt(square_K.max()))
    a_KxM = a_KxM[:, : large[-1] + 1 if len(large) else 1]
    remainder_K = np.sqrt(np.maximum(square_K - np.sum(a_KxM**2, -1), 0))
    total_KxK = remainder_K[:, None] * remainder_K[None]
    for k in range(a_KxM.shape[1] - 1, -1, -1):  # Horner's scheme in c
        total_KxK = total_KxK * c_KxK + a_KxM[:, k, None] * a_KxM[None, :, k]
    return square_K, total_KxK


def _interpolated(activation: str, deviation: float, is_slope: bool) -> np.ndarray:
    """Returns a_0 .. a_{M-1} and E phi^2 by quadratic interpolation in the logarithm of sqrt(q).

    The error is 1e-8. The layers of a network share the points of the grid, which are cached.
    """
    if deviation < 1e-9:
        return _coefficients(activation, 0.0, is_slope)
    position = math.log(deviation) / COARSE_STEP
    j = round(position)
    t = position - j
    left, middle, right = (
        _coefficients(activation, math.exp((j + i) * COARSE_STEP), is_slope) for i in (-1, 0, 1)
    )
    return left * (t * (t - 1) / 2) + middle * (1 - t * t) + right * (t * (t + 1) / 2)


@lru_cache(maxsize=4096)
def _coefficients(activation: str, deviation: float, is_slope: bool) -> np.ndarray:
    """Returns a_0 .. a_{M-1} and E phi^2 at sqrt(q) = `deviation`, of phi' instead for slopes."""
    phi, x = PHI[activation], deviation * _COARSE_Z
    # A central difference of a smooth activation has an error of 1e-9.
    values = (phi(x + 1e-5) - phi(x - 1e-5)) / 2e-5 if is_slope else phi(x)
    return np.append((values * _COARSE_WEIGHTS) @ _coarse_hermite(), values**2 @ _COARSE_WEIGHTS)


@lru_cache(maxsize=1)
def _coarse_hermite() -> np.ndarray:
    return hermite(_COARSE_Z, N_COARSE_TERMS)
