"""Half precision whose sums stay in float32.

bfloat16 has eight significant bits, so 256 + 1 rounds to 256, and a sum of equal terms stops
growing after 256 of them. A batch of text has its most frequent token thousands of times:
activations may be rounded, but their sums must not. JAX adds the gradient of a parameter in the
precision in which the parameter was used, so the functions here use it in its own precision and
round afterwards. In float32 they are the plain operations, with the same bits.
"""

import functools
import re
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from jaxformer.core import layouts

DENSE = "dense"  # the checkpoint name of linear maps' outputs (decoder_spec.py, REMAT_POLICIES)
MATRIX_PRODUCT = (((1,), (0,)), ((), ()))  # dimension numbers of lax.dot_general
WEIGHT_GRADIENT = "rn,rm->nm"  # the product that `matrix_product` has for the gradient of w


def wide(x: jax.Array) -> jax.Array:
    """x in float32, or as it is if it has at least that precision."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def matrix_product(x_BxTxN: jax.Array, w_NxM: jax.Array) -> jax.Array:
    """x w, (B, T, M), as one product of matrices (R, N) and (N, M) with R = B T rows.

    With one axis of rows the weight gradient is a product of two matrices in their memory order.
    With the two axes B and T, XLA's CPU backend would first transpose the incoming gradient. The
    bits are the same.
    """
    x_RxN = x_BxTxN.reshape(-1, x_BxTxN.shape[-1])
    if x_RxN.dtype.itemsize == 2:
        y_RxM = _rounded_product("rn,nm->rm", x_RxN, w_NxM)
    else:
        y_RxM = jax.lax.dot_general(x_RxN, w_NxM.astype(x_RxN.dtype), MATRIX_PRODUCT)
    y_RxM = checkpoint_name(y_RxM, DENSE)
    return y_RxM.reshape(*x_BxTxN.shape[:-1], w_NxM.shape[1])


def product(formula: str, x: jax.Array, w: jax.Array) -> jax.Array:
    """einsum(formula, x, w) of activations x and a parameter w, in the precision of x.

    Args:
        formula: such as "btn,vn->btv". Each letter stands in two of its three terms or in all, so
            that the gradients are products of the same kind.
        x: the activations.
        w: the parameter, in its own precision: so is its gradient, also between devices.
    """
    if x.dtype.itemsize == 2:
        return _rounded_product(formula, x, w)
    return jnp.einsum(formula, x, w.astype(x.dtype))


def _rounded_product(formula: str, x: jax.Array, w: jax.Array) -> jax.Array:
    # The backward pass takes the rounded w, because a mesh would gather w twice otherwise.
    return _product_with_rounded(formula, w.dtype, x, w)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _product_with_rounded(formula: str, dtype: Any, x: jax.Array, w: jax.Array) -> jax.Array:
    return _product_forward(formula, dtype, x, w)[0]


def _product_forward(formula, dtype, x, w):
    w = w.astype(x.dtype)
    return _summed_in_float32(formula, x, w, x.dtype), (x, w)


def _product_backward(formula, dtype, saved, dy):
    x, w = saved
    x_axes, w_axes, y_axes = re.split(",|->", formula)
    dx = _summed_in_float32(f"{y_axes},{w_axes}->{x_axes}", dy, w, x.dtype)
    dw = _summed_in_float32(f"{x_axes},{y_axes}->{w_axes}", x, dy, dtype)
    return dx, dw


_product_with_rounded.defvjp(_product_forward, _product_backward)


def _summed_in_float32(formula: str, x: jax.Array, y: jax.Array, dtype: Any) -> jax.Array:
    """Multiplies in half precision with the instructions of the platform that runs the program.

    Accelerators sum in float32 by themselves. XLA uses a CPU's instructions for half precision only
    if the result is float32, which `on_cpu` rounds afterwards.
    """

    def on_cpu(x, y):
        used = formula
        if max(x.ndim, y.ndim) > 2:  # XLA has not all of these products for a CPU
            x, y = wide(x), wide(y)
        elif used == WEIGHT_GRADIENT and layouts.mesh_of(x) is None:
            # XLA uses the instructions only if the summed axis of x is its last one in memory, and
            # would give a transposed x the memory order of x. The flat copy has its own, but on a
            # mesh it would gather x.
            x_NR = jax.lax.optimization_barrier(x.T.reshape(-1))
            x, used = x_NR.reshape(x.shape[::-1]), "nr,rm->nm"
        return jnp.einsum(used, x, y, preferred_element_type=jnp.float32).astype(dtype)

    def elsewhere(x, y):
        return jnp.einsum(formula, x, y, preferred_element_type=dtype)

    return jax.lax.platform_dependent(x, y, cpu=on_cpu, default=elsewhere)


def add_to_all(x_BxTxN: jax.Array, p_N: jax.Array) -> jax.Array:
    """x + p for a parameter p without batch axis, or with one of size 1.

    JAX adds the gradients of all examples in the precision that p has when every example gets its
    copy. So give p in its own precision: it is rounded afterwards.
    """
    return x_BxTxN + jnp.broadcast_to(wide(p_N), x_BxTxN.shape).astype(x_BxTxN.dtype)


def take_rows(table_VxN: jax.Array, index: jax.Array, dtype: Any) -> jax.Array:
    """The rows of a table in `dtype`, whose gradients are added in the precision of the table."""
    if layouts.mesh_of(table_VxN) is None:
        return _rows(table_VxN, index).astype(dtype)
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
    (d_table_VxN,) = add_rows(d_rows.astype(table_VxN.dtype))
    # Each device keeps a part of the sum over devices, instead of all of it.
    return layouts.split_last_axis(d_table_VxN, "fsdp"), None


_rows_of_rounded.defvjp(_rows_forward, _rows_backward)


def _rows(table_VxN: jax.Array, index: jax.Array) -> jax.Array:
    if len(table_VxN) == 1:
        return jnp.broadcast_to(table_VxN, (*index.shape, table_VxN.shape[1]))
    return jnp.take(table_VxN, index, axis=0)


def _gathered(table_VxN: jax.Array) -> jax.Array:
    return layouts.gather_parameter(table_VxN, "tensor", None)
