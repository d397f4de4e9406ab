"""Initialisers, linear maps, norms and the parts of attention and MLP that models share."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxformer.core import adapters, layouts
from jaxformer.core.errors import check_range, unknown
from jaxformer.models import attention
from jaxformer.models.activation_points import tap
from jaxformer.models.half_precision import add_to_all, matrix_product, product, take_rows, wide

FAN_IN = "fan_in"
# {name of a projection: name of its activation}
PLURALS = {"query": "queries", "key": "keys", "value": "values"}


def normal(std: float | jax.Array | str) -> Callable:
    """Returns the initialiser N(0, std^2); the std "fan_in" is 1/sqrt(number of inputs)."""
    if std == FAN_IN:
        # variance_scaling would truncate the normal; the papers do not.
        return lambda key, shape, dtype: jax.random.normal(key, shape, dtype) * shape[0] ** -0.5
    if isinstance(std, str):
        raise unknown("initialisation", std, (FAN_IN, "a standard deviation"))
    if not isinstance(std, jax.Array):  # the caller checks numbers before it traces them
        check_range("a standard deviation", std, 0, 1e18)
    return lambda key, shape, dtype: jax.random.normal(key, shape, dtype) * jnp.asarray(std, dtype)


def rms_normalise(x_BxTxN: jax.Array, eps: float = 0.0) -> jax.Array:
    """Returns x / sqrt(mean(x^2) + eps), and 0 where x is 0.

    `Norm` writes x * x instead of square(x). Their derivatives differ in the last bits, so a common
    form would change recorded results.
    """
    dtype, x_BxTxN = x_BxTxN.dtype, wide(x_BxTxN)
    square_BxTx1 = jnp.mean(jnp.square(x_BxTxN), -1, keepdims=True) + eps
    normed_BxTxN = x_BxTxN * jax.lax.rsqrt(jnp.maximum(square_BxTx1, jnp.finfo(x_BxTxN.dtype).tiny))
    return normed_BxTxN.astype(dtype)


class Dense(nn.Dense):
    """A linear map, whose kernel and bias are rounded to `dtype` where they are used.

    If its parameters have an adapter (`core.adapters`), the adapter's update is added.
    """

    @nn.compact
    def __call__(self, inputs: jax.Array) -> jax.Array:
        shape = (inputs.shape[-1], self.features)
        kernel_NxM = self.param("kernel", self.kernel_init, shape, self.param_dtype)
        inputs = inputs.astype(self.dtype)
        y = matrix_product(inputs, jnp.asarray(kernel_NxM))
        if self.has_variable("params", adapters.LORA_A):
            leaves = self.variables["params"]
            update = adapters.low_rank_update(inputs, leaves, matrix_product)
            y = y + tap(self, "lora", update)
        if self.use_bias:
            bias_M = self.param("bias", self.bias_init, shape[1:], self.param_dtype)
            y = add_to_all(y, jnp.asarray(bias_M))
        return y


class Embedding(nn.Embed):
    """A table of embeddings, which is rounded to `dtype` after its rows are taken."""

    def __call__(self, inputs: jax.Array) -> jax.Array:
        table_VxN = jnp.asarray(self.embedding)
        return take_rows(table_VxN, inputs, jnp.result_type(self.dtype or table_VxN.dtype))

    def attend(self, query: jax.Array) -> jax.Array:
        """The products with all rows of the table, (B, T, V)."""
        table_VxN = layouts.gather_parameter(jnp.asarray(self.embedding), "tensor", None)
        return product("btn,vn->btv", query, table_VxN)


def dense(
    features: int, name: str, std: Any, use_bias: bool = False, bias_std: Any = None, **dtypes: Any
) -> Dense:
    """Returns a linear map with normal initial entries; biases begin at 0 without `bias_std`."""
    inits = {"kernel_init": normal(std)}
    if bias_std is not None:
        inits["bias_init"] = normal(bias_std)
    return Dense(features, use_bias, name=name, **inits, **dtypes)


def embedding(rows: int, features: int, name: str, std: Any, **dtypes: Any) -> Embedding:
    """Returns a table of embeddings with normal initial entries."""
    init = normal(std)
    return Embedding(rows, features, embedding_init=init, name=name, **dtypes)


def split_heads(module: nn.Module, name: str, flat_BxTx: jax.Array, heads: int) -> jax.Array:
    """Returns queries, keys or values by head, (B, T, H, D), at their address.

    Args:
        module: the attention module, whose path begins the address.
        name: "query", "key" or "value".
        flat_BxTx: the projected tokens, (B, T, H D).
        heads: H.
    """
    split_BxTxHxD = flat_BxTx.reshape(*flat_BxTx.shape[:2], heads, -1)
    return tap(module, PLURALS[name], split_BxTxHxD)


def softmax_attention(
    module: nn.Module,
    q_BxTxHxD: jax.Array,
    k_BxSxGxD: jax.Array,
    v_BxSxGxD: jax.Array,
    mask: jax.Array | None,
    accumulate: Any = None,
    scale: float | None = None,
    adjust: Callable[[jax.Array], jax.Array] | None = None,
    sinks_H: jax.Array | None = None,
) -> jax.Array:
    """Returns sum_s A_ts v_s by head, (B, T, H, D), with its activation points.

    Args:
      module: the attention module, whose path begins the addresses.
      q_BxTxHxD: the queries.
      k_BxSxGxD, v_BxSxGxD: the keys and values; H/G heads share each.
      mask: booleans that broadcast against (B, H, T, S), true where a query sees a key.
      accumulate: the dtype of the scores; by default that of the queries, but at least float32.
      scale: the factor of q.k; by default 1/sqrt(D).
      adjust: a function of the scores before the mask, such as a soft cap.
      sinks_H: a score of each head that takes a share of the softmax (`attention_weights`).
    """
    group = q_BxTxHxD.shape[2] // k_BxSxGxD.shape[2]
    if group > 1:
        k_BxSxGxD, v_BxSxGxD = (jnp.repeat(x, group, axis=2) for x in (k_BxSxGxD, v_BxSxGxD))
    with jax.named_scope("attention_weights"):  # the name by which a plan finds these operations
        scores = attention.attention_scores(q_BxTxHxD, k_BxSxGxD, accumulate, scale)
        scores = scores if adjust is None else adjust(scores)
        scores = attention.apply_mask(tap(module, "scores", scores), mask)
        scores = tap(module, "masked_scores", scores)
        weights_BxHxTxS = attention.attention_weights(scores, sinks_H=sinks_H)
        return mix_values(module, weights_BxHxTxS, v_BxSxGxD)


def mix_values(module: nn.Module, weights_HxTxS: jax.Array, v_BxSxHxD: jax.Array) -> jax.Array:
    """Returns sum_s A_ts v_s for each head.

    Args:
        module: the attention module, whose path begins the address.
        weights_HxTxS: attention weights, (B, H, T, S) or (H, T, S).
        v_BxSxHxD: the values.

    Returns:
        (B, T, H, D).
    """
    weights_HxTxS = tap(module, "weights", weights_HxTxS, plotted=True)
    return attention.mix(weights_HxTxS, v_BxSxHxD)


def merge_heads(
    module: nn.Module, heads_BxTxHxD: jax.Array, project: Callable[[jax.Array], jax.Array]
) -> jax.Array:
    """Returns the output of attention: the heads side by side, projected.

    Args:
        module: the attention module, whose path begins the addresses.
        heads_BxTxHxD: the mixed values of each head.
        project: the output projection, a function of (B, T, H D).
    """
    heads_BxTxHxD = tap(module, "heads", heads_BxTxHxD)
    return tap(module, "output", project(heads_BxTxHxD.reshape(*heads_BxTxHxD.shape[:2], -1)))


def mlp(
    module: nn.Module,
    x_BxTxN: jax.Array,
    dense: Callable[[jax.Array, int, str], jax.Array],
    hidden: int,
    phi: Callable[[jax.Array], jax.Array],
    gated: bool,
) -> jax.Array:
    """Returns W_out phi(W_in x), or W_out (phi(W_gate x) * W_in x), with its activation points.

    Args:
      module: the MLP module, whose path begins the addresses.
      x_BxTxN: the states.
      dense: applies the linear map (x, features, name); the names are gate, in and out.
      hidden: the hidden width M.
      phi: the activation.
      gated: whether phi(W_gate x) multiplies W_in x.
    """
    if gated:
        gate_BxTxM = tap(module, "preactivation", dense(x_BxTxN, hidden, "gate"))
        gate_BxTxM = tap(module, "gates", phi(gate_BxTxM))
        h_BxTxM = gate_BxTxM * tap(module, "linear", dense(x_BxTxN, hidden, "in"))
    else:
        h_BxTxM = phi(tap(module, "preactivation", dense(x_BxTxN, hidden, "in")))
    h_BxTxM = tap(module, "hidden", h_BxTxM)
    return tap(module, "output", dense(h_BxTxM, x_BxTxN.shape[-1], "out"))


class Norm(nn.Module):
    """RMSNorm, or LayerNorm if `centred`: y = x / sqrt(mean(x^2) + eps) gain + bias.

    Args:
      eps: added to the mean square.
      centred: whether the mean of x is subtracted first.
      has_gain: whether y is multiplied by `gain_offset` plus the parameter `scale`.
      has_bias: whether the parameter `bias` is added.
      gain_offset: added to `scale`; 1 if `scale` is stored as a difference from 1.
      dtype: the dtype of y; None is the default float type of JAX.
      param_dtype: the dtype of the parameters; None is the default float type of JAX.
      statistics_dtype: the dtype of all sums and products; by default the dtype of `scale`, or of x
        without gain, but at least float32.
    """

    eps: float = 1e-6
    centred: bool = False
    has_gain: bool = True
    has_bias: bool = False
    gain_offset: float = 0.0
    dtype: Any = None
    param_dtype: Any = None
    statistics_dtype: Any = None

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        gain_N = None
        shape = x.shape[-1:]
        if self.has_gain:
            ones = nn.initializers.constant(1 - self.gain_offset)
            gain_N = jnp.asarray(self.param("scale", ones, shape, self.param_dtype))
        least = jnp.promote_types(getattr(gain_N, "dtype", x.dtype), jnp.float32)
        x = x.astype(self.statistics_dtype or least)
        if self.centred:
            x = x - x.mean(-1, keepdims=True)
        factor = jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + self.eps)
        x = x * tap(self, "factor", factor)
        if gain_N is not None:
            gain_N = gain_N.astype(x.dtype)
            gain_N = gain_N + self.gain_offset if self.gain_offset else gain_N
            x = x * jnp.expand_dims(gain_N, range(x.ndim - 1))
        if self.has_bias:
            bias_N = self.param("bias", nn.initializers.zeros, shape, self.param_dtype)
            x = x + jnp.expand_dims(jnp.asarray(bias_N), range(x.ndim - 1))
        return tap(self, "output", x.astype(self.dtype))
