"""Numerical tools in jax that several theories use: Chebyshev series, loops, LAPACK threads.

Argument checks (`theory.checks`) and quadrature (`theory.quadrature`) are re-exported; those two
modules do not import jax.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from threadpoolctl import threadpool_limits

from theory.checks import check_count, check_range, is_concrete
from theory.quadrature import (
    chebyshev_basis,
    chebyshev_end_slopes,
    chebyshev_fit,
    chebyshev_nodes,
    normal_nodes,
    trapezoid,
)

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
    "in_float64",
    "is_concrete",
    "normal_nodes",
    "one_lapack_thread",
    "states_at",
    "trapezoid",
]

Array = jax.Array | np.ndarray
Numbers = Array | float
Function = TypeVar("Function", bound=Callable[..., Any])


def in_float64(function: Function) -> Function:
    """Lets a function of a theory compute in float64, whether x64 is on or not.

    Where x64 is off, it is switched on for the call, arrays of lower precision become float64
    first, and the results are float64. In a function that is being traced, such as the body of a
    `jax.jit`, nothing changes: a program has one precision, which its caller chooses.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        leaves = jax.tree.leaves((args, kwargs))
        if jnp.result_type(float) == jnp.float64 or not all(map(is_concrete, leaves)):
            return function(*args, **kwargs)
        with jax.enable_x64(True):
            given_args, given_kwargs = jax.tree.map(_wide, (args, kwargs))
            return function(*given_args, **given_kwargs)

    return call  # type: ignore[return-value]


def _wide(leaf: Any) -> Any:
    """An array of real numbers in float64; other values as they are."""
    is_array = isinstance(leaf, jax.Array | np.ndarray | np.generic)
    if is_array and jnp.issubdtype(leaf.dtype, jnp.floating):
        return leaf.astype(np.float64)
    return leaf


@contextlib.contextmanager
def one_lapack_thread() -> Iterator[None]:
    """Limits LAPACK to one thread, which is faster for sequential loops over small matrices.

    Several threads wait for each other at every step. With them, a gradient of a posterior given
    100 examples takes a third longer on two idle cores and 39 times as long on two busy ones
    (benchmarks/attention_paths_speed.py). JAX computes asynchronously: call `block_until_ready`
    inside the context.
    """
    # JAX loads this library late, and only libraries that are already loaded can be limited.
    import scipy.linalg.cython_lapack  # noqa: F401

    with threadpool_limits(1, user_api="blas"):
        yield


def states_at(stops: jax.Array, advance: Callable, start: Any, read: Callable) -> Any:
    """Runs state <- advance(step, state) and reads the state after given numbers of steps.

    Args:
      stops: (S,) increasing numbers of steps.
      advance: function (step, state) -> state.
      start: initial state, a pytree.
      read: function state -> pytree of arrays.

    Returns:
      The pytree read(state) with a leading axis of S stops.
    """

    def run_segment(state, segment):
        state = jax.lax.fori_loop(segment[0], segment[1], advance, state)
        return state, read(state)

    bounds = jnp.stack([jnp.concatenate([jnp.zeros(1, int), stops[:-1]]), stops], axis=-1)
    return jax.lax.scan(run_segment, start, bounds)[1]


def chebyshev_sum(x: jax.Array, coefficients: np.ndarray) -> jax.Array:
    """Returns sum_k c_k T_k(2x - 1) in the shape of x, for constant coefficients c (n,)."""
    basis = chebyshev_basis(x, len(coefficients), jnp)
    return sum((float(c) * term for c, term in zip(coefficients, basis)), jnp.zeros_like(x))


def chebyshev_sum_2d(x: jax.Array, y: jax.Array, coefficients_MxN: np.ndarray) -> jax.Array:
    """Returns sum_mn c_mn T_m(2x - 1) T_n(2y - 1).

    Args:
      x: array of non-negative numbers. Beyond x = 1 the sum continues linearly.
      y: array of numbers in [0, 1]; x and y broadcast.
      coefficients_MxN: constant coefficients c.
    """
    m, n = coefficients_MxN.shape
    slopes_N = chebyshev_end_slopes(m) @ coefficients_MxN
    rows = np.concatenate([coefficients_MxN, slopes_N[None]])
    # Sums over n at each y: the m coefficients in x, then the slope beyond x = 1.
    row_sums = jnp.tensordot(
        jnp.asarray(rows, y.dtype), jnp.stack(chebyshev_basis(y, n, jnp)), axes=1
    )
    basis = chebyshev_basis(jnp.minimum(x, 1), m, jnp)
    continuation = jnp.maximum(x - 1, 0) * row_sums[m]
    return sum((row_sums[k] * term for k, term in enumerate(basis)), continuation)
