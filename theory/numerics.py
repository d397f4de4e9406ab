"""What every theory needs once: Chebyshev series and loops in jax.

Checks of arguments and quadrature need no jax and have files of their own; they are shown here too.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from threadpoolctl import threadpool_limits

from theory.checks import check_count, check_range, is_concrete
from theory.quadrature import chebyshev_fit, chebyshev_nodes, normal_nodes, trapezoid

__all__ = [
    "Array",
    "Numbers",
    "chebyshev_basis",
    "chebyshev_fit",
    "chebyshev_nodes",
    "chebyshev_sum",
    "chebyshev_sum_2d",
    "check_count",
    "check_range",
    "is_concrete",
    "normal_nodes",
    "one_lapack_thread",
    "states_at",
    "trapezoid",
]

Array = jax.Array | np.ndarray
Numbers = Array | float  # one number, or an array of them


@contextlib.contextmanager
def one_lapack_thread() -> Iterator[None]:
    """LAPACK works on one thread inside: for loops over small matrices, one step after the other.

    With more threads, which wait for each other at every step, a gradient of a posterior given 100
    examples takes a third longer on two idle cores, and took 39 times as long on two busy ones
    (benchmarks/attention_paths_speed.py). Results must be read inside.
    """
    import scipy.linalg.cython_lapack  # noqa: F401 (JAX loads it late; what is not there has no limit)

    with threadpool_limits(1, user_api="blas"):
        yield


def states_at(stops: jax.Array, advance: Callable, start: Any, read: Callable) -> Any:
    """read(state) after each of the increasing numbers of steps; state <- advance(step, state)."""

    def until(state, segment):
        state = jax.lax.fori_loop(segment[0], segment[1], advance, state)
        return state, read(state)

    bounds = jnp.stack([jnp.concatenate([jnp.zeros(1, int), stops[:-1]]), stops], axis=-1)
    return jax.lax.scan(until, start, bounds)[1]


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
