"""Nodes, weights and series in numpy: trapezoid rules, Chebyshev and Hermite polynomials."""

import numpy as np


def trapezoid(low: float, high: float, n: int) -> tuple[np.ndarray, np.ndarray]:
    """n equidistant nodes on [low, high] and their weights: spectrally exact for a smooth
    integrand that has died out at both ends."""
    nodes = np.linspace(low, high, n)
    weights = np.full(n, (high - low) / (n - 1))
    weights[[0, -1]] /= 2
    return nodes, weights


def normal_nodes(n: int, reach: float = 12.0) -> tuple[np.ndarray, np.ndarray]:
    """Trapezoid nodes and weights of a standard normal average, |z| <= reach."""
    z, weights = trapezoid(-reach, reach, n)
    weights = weights * np.exp(-(z**2) / 2)
    return z, weights / weights.sum()


def chebyshev_nodes(n: int) -> np.ndarray:
    """The n zeros of T_n, moved to (0, 1)."""
    return (1 + np.cos(np.pi * (np.arange(n) + 0.5) / n)) / 2


def chebyshev_fit(values: np.ndarray) -> np.ndarray:
    """Coefficients along axis 0 of the interpolant through `values` at chebyshev_nodes(n)."""
    n = len(values)
    transform = np.cos(np.pi * np.arange(n)[:, None] * (np.arange(n) + 0.5)[None] / n) * (2 / n)
    transform[0] /= 2
    return np.tensordot(transform, values, axes=1)


def hermite(z: np.ndarray, n: int) -> np.ndarray:
    """(nodes, n): h_0 .. h_{n-1} at z, orthonormal under the standard normal."""
    h = [np.ones_like(z), z]
    for k in range(2, n):
        h.append((z * h[-1] - np.sqrt(k - 1) * h[-2]) / np.sqrt(k))
    return np.stack(h[:n], -1)
