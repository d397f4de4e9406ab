"""Quadrature rules, Chebyshev and Hermite polynomials, and the arc-cosine kernel.

Importing this module does not import jax.
"""

from types import ModuleType
from typing import Any

import numpy as np


def trapezoid(low: float, high: float, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the nodes and weights of the trapezoid rule on [low, high], two arrays (n,).

    The rule is spectrally accurate for a smooth integrand that vanishes at both ends.
    """
    nodes = np.linspace(low, high, n)
    weights = np.full(n, (high - low) / (n - 1))
    weights[[0, -1]] /= 2
    return nodes, weights


def normal_nodes(n: int, reach: float = 12.0) -> tuple[np.ndarray, np.ndarray]:
    """Returns trapezoid nodes in [-reach, reach] and weights (n,) of a standard normal average."""
    z, weights = trapezoid(-reach, reach, n)
    weights = weights * np.exp(-(z**2) / 2)
    return z, weights / weights.sum()


def chebyshev_nodes(n: int) -> np.ndarray:
    """Returns the n zeros of the Chebyshev polynomial T_n, moved from (-1, 1) to (0, 1)."""
    return (1 + np.cos(np.pi * (np.arange(n) + 0.5) / n)) / 2


def chebyshev_fit(values: np.ndarray) -> np.ndarray:
    """Returns the Chebyshev coefficients of an interpolating polynomial, along axis 0.

    Args:
      values: (n, ...) values at `chebyshev_nodes(n)`.
    """
    n = len(values)
    transform = np.cos(np.pi * np.arange(n)[:, None] * (np.arange(n) + 0.5)[None] / n) * (2 / n)
    transform[0] /= 2
    return np.tensordot(transform, values, axes=1)


def chebyshev_basis(x: Any, n: int, xp: ModuleType = np) -> list[Any]:
    """Returns T_0 .. T_{n-1} of 2x - 1, each in the shape of x, for x in [0, 1].

    The products T_{2k} = 2 T_k^2 - 1 and T_{2k+1} = 2 T_k T_{k+1} - T_1 depend on each other in
    chains of length log n, and their gradients are exact. Clenshaw's sum is a chain of length n,
    whose links XLA computes several times until memory is exhausted. cos(k arccos x) has no
    gradient at the ends.

    Args:
      x: array of numbers in [0, 1].
      n: number of polynomials.
      xp: array namespace, numpy or jax.numpy.
    """
    first = 2 * x - 1
    terms = [xp.ones_like(first), first]
    for k in range(2, n):
        terms.append(2 * terms[k // 2] * terms[(k + 1) // 2] - (first if k % 2 else 1))
    return terms[:n]


def chebyshev_end_slopes(n: int) -> np.ndarray:
    """Returns the derivatives (n,) of T_0 .. T_{n-1} of 2x - 1 at x = 1."""
    return 2 * np.arange(n, dtype=float) ** 2


def hermite(z: np.ndarray, n: int) -> np.ndarray:
    """Returns the Hermite polynomials h_0 .. h_{n-1} at z, (nodes, n).

    They are orthonormal under the standard normal distribution.
    """
    h = [np.ones_like(z), z]
    for k in range(2, n):
        h.append((z * h[-1] - np.sqrt(k - 1) * h[-2]) / np.sqrt(k))
    return np.stack(h[:n], -1)


def arc_cosine(c: Any, xp: ModuleType = np) -> Any:
    """Returns f(c) = (sqrt(1-c^2) + c (pi - arccos c)) / pi; f(0) = 1/pi and f(1) = 1.

    Two Gaussians of variance q and correlation c have E relu(u) relu(v) = f(c) q / 2.
    """
    c = xp.clip(c, -1, 1)
    return (xp.sqrt(1 - c**2) + c * (xp.pi - xp.arccos(c))) / xp.pi
