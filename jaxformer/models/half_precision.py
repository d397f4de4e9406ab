"""Half precision whose sums stay in float32.

bfloat16 has eight significant bits, so 256 + 1 rounds to 256, and a sum of equal terms stops
growing after 256 of them. A batch of text has its most frequent token thousands of times:
activations may be rounded, but their sums must not. JAX adds the gradient of a parameter in the
precision in which the parameter was used, so the functions here use it in its own precision and
round afterwards. In float32 they are the plain operations, with the same bits.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from jaxformer.core import layouts


def wide(x: jax.Array) -> jax.Array:
    """x in float32, or as it is if it has at least that precision."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def take_rows(table_VxN: jax.Array, index: jax.Array, dtype: Any) -> jax.Array:
    """The rows of a table in `dtype`, whose gradients are added in the precision of the table."""
    if layouts.mesh_of(table_VxN) is None or table_VxN.dtype == dtype:
        return _rows(_gathered(table_VxN), index).astype(dtype)
    return _rows_of_rounded(dtype, table_VxN, index)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _rows_of_rounded(dtype: Any, table_VxN: jax.Array, index: jax.Array) -> jax.Array:
    """Rows of a table on a mesh, which communicates it after rounding: half of the bytes."""
    return _rows(_gathered(table_VxN.astype(dtype)), index)


def _rows_forward(dtype, table_VxN, index):
    return _rows_of_rounded(dtype, table_VxN, index), (table_VxN, index)


def _rows_backward(dtype, saved, d_rows):
    table_VxN, index = saved
    _, add_rows = jax.vjp(lambda table_VxN: _rows(_gathered(table_VxN), index), table_VxN)
    return *add_rows(d_rows.astype(table_VxN.dtype)), None


_rows_of_rounded.defvjp(_rows_forward, _rows_backward)


def _rows(table_VxN: jax.Array, index: jax.Array) -> jax.Array:
    if len(table_VxN) == 1:
        return jnp.broadcast_to(table_VxN, (*index.shape, table_VxN.shape[1]))
    return jnp.take(table_VxN, index, axis=0)


def _gathered(table_VxN: jax.Array) -> jax.Array:
    return layouts.gather_parameter(table_VxN, "tensor", None)
