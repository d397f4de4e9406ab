"""Measures the signal of random transformers, forward and backward.

The predictions are `recursion.forward` and `backward.backward`. The networks are blocks of
`jaxformer.models.transformer` with the sizes and variances of an `Architecture`.
"""

from dataclasses import fields
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from jaxformer.models.layers import rms_normalise
from jaxformer.models.transformer import BlockSpec, TransformerBlock
from theory.signal.architecture import Architecture
from theory.signal.backward import Gradients
from theory.signal.recursion import Layers, check_length


def measure(
    keys: jax.Array,
    arch: Architecture,
    length: int,
    rho0: float | None = None,
    repeat: float = 0.0,
    dtype: DTypeLike | None = None,
) -> tuple[Layers, Gradients]:
    """For each key, measures one random network on one random input.

    Input tokens are the sum of an independent vector and a vector that all tokens share, with the
    variances of `arch.input_moments`. The loss is the inner product of the last layer with a random
    vector. Blocks are initialised inside a scan, and again in the backward pass, so that memory for
    weights does not grow with depth.

    Args:
      keys: (S,) random keys.
      arch: the network.
      length: number of tokens.
      rho0: cosine of two input tokens; None computes it from the embedding's variances.
      repeat: probability that two input tokens are the same symbol.
      dtype: precision; None is jax's default.

    Returns:
      `Layers` and `Gradients` whose arrays have a leading axis of S seeds.
    """
    check_length(length)
    dtype = jnp.dtype(dtype or jnp.result_type(float))
    # BlockSpec and Architecture share the names of most fields.
    settings = {f.name: getattr(arch, f.name) for f in fields(BlockSpec) if hasattr(arch, f.name)}
    settings["kv_heads"] = arch.kv_heads or arch.heads
    settings["std_bias"] = arch.std_bias or None
    spec = BlockSpec(**settings, dtype=dtype, param_dtype=dtype)
    # q0 is the mean squared entry of an input token, p0 the covariance of two tokens' entries.
    q0, p0 = arch.input_moments(rho0, repeat)
    measured = _measure(keys, q0, p0, spec, arch.layers, length, arch.embed_norm)
    cosine, norm, overlap, entropy, gradient = (np.asarray(x, float) for x in measured)
    return Layers(cosine, norm, overlap, entropy), Gradients(gradient)


@partial(jax.jit, static_argnames=("spec", "layers", "length", "embed_norm"))
def _measure(keys, q0, p0, spec: BlockSpec, layers: int, length: int, embed_norm: bool):
    layer = TransformerBlock(spec)

    @jax.checkpoint
    def step(x_1xTxN, inputs):
        # Each layer adds a zero shift to the residual stream, and both have the same gradient.
        key, shift_TxN = inputs
        x_1xTxN = x_1xTxN + shift_TxN[None]
        parameters = layer.init(key, x_1xTxN)["params"]
        out, state = layer.apply({"params": parameters}, x_1xTxN, mutable=["intermediates"])
        weights_HxTxT = state["intermediates"]["attn"]["weights"][0]
        overlap, _, entropy = attention_averages(weights_HxTxT)
        return out, (*_stream_averages(out[0]), overlap, entropy)

    def measure_network(key):
        # Keys of the shared and the independent vectors, the loss, and the layers.
        subkeys = jax.random.split(key, layers + 3)
        shape = (1, length, spec.width)
        shared = jax.random.normal(subkeys[0], (1, 1, spec.width), spec.dtype)
        independent = jax.random.normal(subkeys[1], shape, spec.dtype)
        x_1xTxN = (jnp.sqrt(p0) * shared + jnp.sqrt(q0 - p0) * independent).astype(spec.dtype)
        if embed_norm:
            x_1xTxN = (jnp.sqrt(q0) * rms_normalise(x_1xTxN)).astype(spec.dtype)

        def network(shifts_LxTxN):
            return jax.lax.scan(step, x_1xTxN, (subkeys[3:], shifts_LxTxN))

        shifts = jnp.zeros((layers, *shape[1:]), spec.dtype)
        out, pull_back, averages = jax.vjp(network, shifts, has_aux=True)
        (gradients_LxTxN,) = pull_back(jax.random.normal(subkeys[2], out.shape, spec.dtype))
        cosine, norm, overlap, entropy = averages
        cosine_0, norm_0 = _stream_averages(x_1xTxN[0])
        rms_L = jnp.sqrt(jnp.mean(jnp.square(gradients_LxTxN), (1, 2)))
        return (
            jnp.append(cosine_0[None], cosine),
            jnp.append(norm_0[None], norm),
            overlap,
            entropy,
            jnp.append(rms_L, jnp.ones(1, rms_L.dtype)),  # the output gradient is N(0, 1)
        )

    return jax.lax.map(measure_network, keys)


def _stream_averages(x_TxN):
    """Returns the mean cosine of two tokens, and the mean of |x|^2 / N."""
    square_T = jnp.mean(jnp.square(x_TxN), -1)
    tiny = jnp.finfo(x_TxN.dtype).tiny
    unit_TxN = x_TxN * jax.lax.rsqrt(jnp.maximum(square_T, tiny))[:, None]
    return mean_cosine(unit_TxN), jnp.mean(square_T)


def mean_cosine(x_TxN: jax.Array) -> jax.Array:
    """Returns the mean cosine of the pairs t != t' of tokens with |x_t|^2 = N."""
    T, width = x_TxN.shape
    return (jnp.sum(jnp.sum(x_TxN, 0) ** 2) / width - T) / (T * (T - 1))


def attention_averages(weights_HxTxT: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns the self-overlap, the cross-overlap and the entropy of attention rows A_t.

    The self-overlap is sum_s A_ts^2, and the cross-overlap is sum_s A_ts A_t's of two rows t != t'.
    The entropy is in nats. All three are means over heads and rows, or pairs of rows.
    """
    T = weights_HxTxT.shape[-1]
    same = jnp.mean(jnp.sum(weights_HxTxT**2, -1))
    columns = jnp.mean(jnp.sum(jnp.sum(weights_HxTxT, -2) ** 2, -1))
    entropy = jnp.mean(jnp.sum(jax.scipy.special.entr(weights_HxTxT), -1))
    return same, (columns - T * same) / (T * (T - 1)), entropy
