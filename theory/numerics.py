"""What every theory needs once: checks of arguments, quadrature, Chebyshev interpolation."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxformer.errors import UserError

Array = jax.Array | np.ndarray
Numbers = Array | float  # one number, or an array of them


def is_concrete(value: Any) -> bool:
    """False for an array that jit, vmap or grad is tracing: its numbers cannot be looked at."""
    return not isinstance(value, Tracer)


def check_range(name: str, value: Any, low: float = -np.inf, high: float = np.inf) -> None:
    """Raises unless every entry of `value` is finite and low <= entry <= high; tracers pass."""
    if not is_concrete(value):
        return
    array = np.asarray(value, float)
    ok = np.isfinite(array) & (array >= low) & (array <= high)
    if not ok.all():
        bounds = f"in [{low:g}, {high:g}]" if np.isfinite(high) else f"finite and at least {low:g}"
        raise UserError(f"{name} must be {bounds}, got {array[~ok].flat[0]:g}.")


def check_count(name: str, value: int, low: int = 1, high: float = np.inf) -> None:
    """Raises unless `value` is a whole number of at least `low`, and of at most `high`."""
    if isinstance(value, bool) or not abs(value) < np.inf or int(value) != value or value < low:
        raise UserError(f"{name} must be a whole number of at least {low}, got {value!r}.")
    if value > high:
        raise UserError(f"{name} must be at most {high:,}, got {value:,}.")


def states_at(stops: jax.Array, advance: Callable, start: Any, read: Callable) -> Any:
    """read(state) after each of the increasing numbers of steps; state <- advance(step, state)."""

    def until(state, segment):
        state = jax.lax.fori_loop(segment[0], segment[1], advance, state)
        return state, read(state)

    bounds = jnp.stack([jnp.concatenate([jnp.zeros(1, int), stops[:-1]]), stops], axis=-1)
    return jax.lax.scan(until, start, bounds)[1]


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


def chebyshev_basis(x: jax.Array, n: int) -> list[jax.Array]:
    """T_0 .. T_{n-1} of 2x - 1, for x in [0, 1].

    By products, T_{2k} = 2 T_k^2 - 1 and T_{2k+1} = 2 T_k T_{k+1} - T_1: chains of length log n,
    because XLA repeats the links of a long chain (Clenshaw's sum can exhaust its memory), and
    exact gradients (cos(k arccos x) has none at the ends).
    """
    first = 2 * x - 1
    terms = [jnp.ones_like(first), first]
    for k in range(2, n):
        terms.append(2 * terms[k // 2] * terms[(k + 1) // 2] - (first if k % 2 else 1))
    return terms[:n]


def chebyshev_sum(x: jax.Array, coefficients: np.ndarray) -> jax.Array:
    """sum_k c_k T_k(2x - 1) for numbers c_k."""
    basis = chebyshev_basis(x, len(coefficients))
    return sum((float(c) * term for c, term in zip(coefficients, basis)), jnp.zeros_like(x))


def chebyshev_sum_2d(x: jax.Array, y: jax.Array, coefficients_MxN: np.ndarray) -> jax.Array:
    """sum_mn c_mn T_m(2x - 1) T_n(2y - 1), y in [0, 1]; beyond x = 1 along the tangent in x."""
    m, n = coefficients_MxN.shape
    slopes_N = 2 * np.arange(m, dtype=float) ** 2 @ coefficients_MxN
    rows = np.concatenate([coefficients_MxN, slopes_N[None]])
    in_y = jnp.tensordot(jnp.asarray(rows, y.dtype), jnp.stack(chebyshev_basis(y, n)), axes=1)
    inside = chebyshev_basis(jnp.minimum(x, 1), m)
    return sum((in_y[k] * term for k, term in enumerate(inside)), jnp.maximum(x - 1, 0) * in_y[m])
