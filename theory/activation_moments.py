"""E phi(u)^2 and E phi(u) phi(v) of two Gaussians of different variances, in numpy.

ReLU in closed form; any other activation by its Hermite series, E phi(u) phi(v) = sum_k a_k(q)
a_k(q') c^k. The same as theory.activations, which is for jax and one variance.
"""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from theory.formulas import arc_cosine
from theory.quadrature import hermite

_TERMS = 48
_STEP = 0.004
_Z = np.linspace(-9.0, 9.0, 181)
_W = np.exp(-(_Z**2) / 2)
_W /= _W.sum()
_erf = np.frompyfunc(math.erf, 1, 1)


def _sigmoid(x):
    return 0.5 * (1 + np.tanh(x / 2))


PHI: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "gelu": lambda x: x * 0.5 * (1 + np.asarray(_erf(x / 2**0.5), float)),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3))),
    "quick_gelu": lambda x: x * _sigmoid(1.702 * x),
    "silu": lambda x: x * _sigmoid(x),
    "tanh": np.tanh,
    "linear": lambda x: x,
}


def moments(activation: str, q_K: np.ndarray, p_KxK: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """E phi(u_k)^2, (K,), and E phi(u_k) phi(u_l), (K, K), for variances q and covariances p."""
    scale_KxK, c_KxK = _cosines(q_K, p_KxK)
    if activation == "relu":
        return q_K / 2, scale_KxK / 2 * arc_cosine(c_KxK)
    return _by_series(activation, q_K, c_KxK, slope=False)


def slopes(activation: str, q_K: np.ndarray, p_KxK: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """E phi'(u_k)^2 and E phi'(u_k) phi'(u_l): what a gradient is multiplied by on its way back."""
    _, c_KxK = _cosines(q_K, p_KxK)
    if activation == "relu":
        return np.full_like(q_K, 0.5), (np.pi - np.arccos(c_KxK)) / (2 * np.pi)
    return _by_series(activation, q_K, c_KxK, slope=True)


def _cosines(q_K, p_KxK):
    scale_KxK = np.sqrt(q_K[:, None] * q_K[None])
    return scale_KxK, np.clip(p_KxK / np.where(scale_KxK > 0, scale_KxK, 1), 0, 1)


def _by_series(activation, q_K, c_KxK, slope):
    found_KxM = np.stack([_at(activation, x, slope) for x in np.sqrt(q_K).tolist()])
    a_KxM, square_K = found_KxM[:, :-1], found_KxM[:, -1]
    large = np.flatnonzero(np.abs(a_KxM).max(0) > 1e-9 * np.sqrt(square_K.max()))
    a_KxM = a_KxM[:, : large[-1] + 1 if len(large) else 1]
    # What the series leaves out goes into its last term, so that c = 1 gives E phi^2.
    rest_K = np.sqrt(np.maximum(square_K - np.sum(a_KxM**2, -1), 0))
    total_KxK = rest_K[:, None] * rest_K[None]
    for k in range(a_KxM.shape[1] - 1, -1, -1):
        total_KxK = total_KxK * c_KxK + a_KxM[:, k, None] * a_KxM[None, :, k]
    return square_K, total_KxK


def _at(activation: str, deviation: float, slope: bool) -> np.ndarray:
    """a_k = E phi(sqrt(q) z) h_k(z), and E phi^2 at last, between three points of a grid in ln q:
    an error of 1e-8, and the layers of a network share the points."""
    if deviation < 1e-9:
        return _coefficients(activation, 0.0, slope)
    place = math.log(deviation) / _STEP
    j = round(place)
    t = place - j
    left, here, right = (
        _coefficients(activation, math.exp((j + i) * _STEP), slope) for i in (-1, 0, 1)
    )
    return left * (t * (t - 1) / 2) + here * (1 - t * t) + right * (t * (t + 1) / 2)


@lru_cache(maxsize=4096)
def _coefficients(activation: str, deviation: float, slope: bool) -> np.ndarray:
    phi, x = PHI[activation], deviation * _Z
    # A central difference: activations are smooth here, and 1e-9 is far below what is asked.
    values = (phi(x + 1e-5) - phi(x - 1e-5)) / 2e-5 if slope else phi(x)
    return np.append((values * _W) @ _hermite(), values**2 @ _W)


@lru_cache(maxsize=1)
def _hermite() -> np.ndarray:
    return hermite(_Z, _TERMS)
