"""The signal of random transformers, forward and backward: the partner of the recursion.

The networks are built by jaxformer.models, with exactly the numbers of an `Architecture`.
"""

from dataclasses import fields
from functools import partial

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
    """One random network and one random input a key; seeds on the leading axis.

    Tokens are what the embedding gives: a part of their own and a part that all share, with the
    variances of `arch.start`. The gradient is that of a random direction at the last layer. Blocks
    are drawn inside a scan and drawn again on the way back, so depth costs no memory for weights.
    """
    check_length(length)
    dtype = jnp.dtype(dtype or jnp.result_type(float))
    given = {f.name: getattr(arch, f.name) for f in fields(BlockSpec) if hasattr(arch, f.name)}
    given["kv_heads"] = arch.kv_heads or arch.heads
    spec = BlockSpec(**given, dtype=dtype, param_dtype=dtype)
    start = arch.start(rho0, repeat)
    found = _measure(keys, *start, spec, arch.layers, length, arch.embed_norm)
    cosine, norm, overlap, entropy, gradient = (np.asarray(x, float) for x in found)
    return Layers(cosine, norm, overlap, entropy), Gradients(gradient)


@partial(jax.jit, static_argnames=("spec", "layers", "length", "embed_norm"))
def _measure(keys, q0, p0, spec: BlockSpec, layers: int, length: int, embed_norm: bool):
    layer = TransformerBlock(spec)

    @jax.checkpoint
    def step(x_1xTxN, turn):
        key, nudge_TxN = turn
        x_1xTxN = x_1xTxN + nudge_TxN[None]
        parameters = layer.init(key, x_1xTxN)["params"]
        out, state = layer.apply({"params": parameters}, x_1xTxN, mutable=["intermediates"])
        weights_HxTxT = state["intermediates"]["attn"]["weights"][0]
        return out, (*_state(out[0]), *_attention(weights_HxTxT))

    def one(key):
        draws = jax.random.split(key, layers + 3)
        shape = (1, length, spec.width)
        shared = jax.random.normal(draws[0], (1, 1, spec.width), spec.dtype)
        own = jax.random.normal(draws[1], shape, spec.dtype)
        x_1xTxN = (jnp.sqrt(p0) * shared + jnp.sqrt(q0 - p0) * own).astype(spec.dtype)
        if embed_norm:
            x_1xTxN = (jnp.sqrt(q0) * rms_normalise(x_1xTxN)).astype(spec.dtype)

        def network(nudges_LxTxN):
            return jax.lax.scan(step, x_1xTxN, (draws[3:], nudges_LxTxN))

        nudges = jnp.zeros((layers, *shape[1:]), spec.dtype)
        out, back, seen = jax.vjp(network, nudges, has_aux=True)
        (gradients_LxTxN,) = back(jax.random.normal(draws[2], out.shape, spec.dtype))
        cosine, norm, overlap, entropy = seen
        first = _state(x_1xTxN[0])
        size_L = jnp.sqrt(jnp.mean(jnp.square(gradients_LxTxN), (1, 2)))
        return (
            jnp.append(first[0][None], cosine),
            jnp.append(first[1][None], norm),
            overlap,
            entropy,
            jnp.append(size_L, jnp.ones(1, size_L.dtype)),
        )

    return jax.lax.map(one, keys)


def _state(x_TxN):
    """The mean cosine of the pairs t != t', and the mean of |x|^2 / N."""
    square_T = jnp.mean(jnp.square(x_TxN), -1)
    tiny = jnp.finfo(x_TxN.dtype).tiny
    unit_TxN = x_TxN * jax.lax.rsqrt(jnp.maximum(square_T, tiny))[:, None]
    T, width = x_TxN.shape
    cosine = (jnp.sum(jnp.sum(unit_TxN, 0) ** 2) / width - T) / (T * (T - 1))
    return cosine, jnp.mean(square_T)


def _attention(weights_HxTxT):
    overlap = jnp.mean(jnp.sum(weights_HxTxT**2, -1))
    return overlap, jnp.mean(jnp.sum(jax.scipy.special.entr(weights_HxTxT), -1))
