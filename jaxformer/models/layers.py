"""Small modules and initialisers that several models share."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from jaxformer.core.errors import check_range, unknown
from jaxformer.models.activation_points import point

FAN_IN = "fan_in"
DENSE = "dense"  # what dense layers give, for what a block keeps (decoder_spec.py, KEEP)
ONE_AXIS = (((1,), (0,)), ((), ()))  # of matrices: columns of the first, rows of the second


def normal(std: float | jax.Array | str) -> Callable:
    """N(0, std^2); "fan_in" is the standard deviation 1/sqrt(number of inputs)."""
    if std == FAN_IN:
        # variance_scaling would truncate the normal; the papers do not.
        return lambda key, shape, dtype: jax.random.normal(key, shape, dtype) * shape[0] ** -0.5
    if isinstance(std, str):
        raise unknown("initialisation", std, (FAN_IN, "a standard deviation"))
    if not isinstance(std, jax.Array):  # a traced number is checked by who traces it
        check_range("a standard deviation", std, 0, 1e18)
    return lambda key, shape, dtype: jax.random.normal(key, shape, dtype) * jnp.asarray(std, dtype)


def rms_normalise(x_BxTxN: jax.Array) -> jax.Array:
    """x sqrt(N) / |x|, and 0 where x is 0.

    RMSNorm has its own line: the derivatives of square(x) and x * x differ in their last bits.
    """
    square_BxTx1 = jnp.mean(jnp.square(x_BxTxN), -1, keepdims=True)
    return x_BxTxN * jax.lax.rsqrt(jnp.maximum(square_BxTx1, jnp.finfo(x_BxTxN.dtype).tiny))


def flat(
    x_BxTxN: jax.Array,
    w_NxM: jax.Array,
    dimensions: Any = None,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> jax.Array:
    """x w as one product of (B T, N) by (N, M): the `dot_general` of dense layers.

    The weight gradient is then a product of two matrices as they lie. Of (B, T, N) the CPU backend
    of XLA first copies the whole incoming gradient into another order. The bits are the same.
    """
    x_RxN = x_BxTxN.reshape(-1, x_BxTxN.shape[-1])
    if x_RxN.dtype.itemsize == 2 and jax.default_backend() == "cpu":
        y_RxM = _half(x_RxN, w_NxM)
    else:
        y_RxM = jax.lax.dot_general(x_RxN, w_NxM, ONE_AXIS, precision, preferred_element_type)
    y_RxM = checkpoint_name(y_RxM, DENSE)
    return y_RxM.reshape(*x_BxTxN.shape[:-1], w_NxM.shape[1])


@jax.custom_vjp
def _half(x_RxN: jax.Array, w_NxM: jax.Array) -> jax.Array:
    """x w in half precision, summed in float32: accelerators do so anyway.

    A CPU's instructions for it are reached only by asking for float32, which is rounded at the end.
    """
    return _rounded(x_RxN, w_NxM, ONE_AXIS, x_RxN.dtype)


def _rounded(x: jax.Array, y: jax.Array, dimensions: Any, dtype: Any) -> jax.Array:
    return jax.lax.dot_general(x, y, dimensions, preferred_element_type=jnp.float32).astype(dtype)


def _half_forward(x_RxN, w_NxM):
    return _half(x_RxN, w_NxM), (x_RxN, w_NxM)


def _half_backward(kept, given_RxM):
    x_RxN, w_NxM = kept
    dx_RxN = _rounded(given_RxM, w_NxM, (((1,), (1,)), ((), ())), x_RxN.dtype)
    return dx_RxN, _rounded(x_RxN, given_RxM, (((0,), (0,)), ((), ())), w_NxM.dtype)


_half.defvjp(_half_forward, _half_backward)


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) times a learned gain. Statistics in the dtype of the parameters."""

    eps: float = 1e-6
    dtype: jnp.dtype | None = None
    param_dtype: jnp.dtype | None = None

    @nn.compact
    def __call__(self, x_BxTxN: jax.Array) -> jax.Array:
        gain_N = self.param("scale", nn.initializers.ones, (x_BxTxN.shape[-1],), self.param_dtype)
        x = x_BxTxN.astype(gain_N.dtype)
        factor = jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + self.eps)
        x = x * point(self, "factor", factor)
        gain = jnp.expand_dims(gain_N, tuple(range(x.ndim - 1)))
        return point(self, "output", (x * gain).astype(self.dtype))
