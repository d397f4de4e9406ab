"""The signal of an encoder at initialisation: predicted, and measured in finite random networks."""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from jaxformer.core.errors import UserError
from jaxformer.models.encoder import STRENGTHS, EncoderBlock, EncoderSpec
from jaxformer.models.layers import rms_normalise
from theory import rem
from theory.numerics import check_count, check_range
from theory.signal.propagation import Block, overlap_pair, propagate


class Signal(NamedTuple):
    """By depth; `measure` adds a leading axis of seeds."""

    cosine: jax.Array  # (depth+1,) mean cosine of two tokens, entry 0 is the input
    self_overlap: jax.Array  # (depth,) mean of sum_s A_ts^2 in each block
    cross_overlap: jax.Array  # (depth,) mean of sum_s A_ts A_t's, t != t'
    entropy: jax.Array  # (depth,) mean entropy of a row in nats


def predict(
    block: Block, depth: int, T: float, rho0: float = 0.0, overlaps: str = "exact"
) -> Signal:
    """Scalar block fields. With overlaps="limit" the entropy is ln T (1 - beta^2/beta_c^2)^+."""
    cosine = propagate(rho0, block, depth, T, overlaps)
    rho, beta = cosine[:-1], block.beta
    y_q, y_p = overlap_pair(beta, rho, T, overlaps)
    if overlaps == "exact":
        entropy = rem.attention_entropy(beta, rho, T)
    else:
        entropy = np.log(T) * jnp.maximum(1 - beta**2 * (1 - rho) / 2, 0)
    return Signal(cosine, y_q, jnp.broadcast_to(y_p, rho.shape), entropy)


def measure(
    keys: jax.Array,
    block: Block,
    depth: int,
    T: int,
    width: int,
    heads: int = 1,
    rho0: float = 0.0,
    dtype: DTypeLike | None = None,
) -> Signal:
    """The same from one random network and one random input a key (seeds on the leading axis).

    Tokens are random directions in `width` dimensions with mean cosine rho0, so pairs differ by
    width^-1/2. Blocks are drawn one at a time inside a scan: 60 layers compile as fast as one.
    Default precision: that of jax.
    """
    for name, count in (("depth", depth), ("width", width), ("heads", heads)):
        check_count(name, count)
    check_count("T", T, 2)
    check_range("rho0", rho0, 0, 1)
    if block.sigma_u2 is not None or not isinstance(block.activation, str):
        raise UserError("measure builds both MLP matrices alike and takes activations by name.")
    dtype = jnp.dtype(dtype or jnp.result_type(float))
    strengths = {name: float(getattr(block, name)) for name in STRENGTHS}
    looks: dict[str, Any] = {"activation": block.activation, "dtype": dtype, "param_dtype": dtype}
    sizes = (0, T, width, depth, heads)
    EncoderSpec(*sizes, **strengths, **looks)  # raises if a number is impossible
    traced = {name: jnp.asarray(number, dtype) for name, number in strengths.items()}
    return _measure(keys, rho0, traced, EncoderSpec(*sizes, beta=0.0, **looks))


@partial(jax.jit, static_argnames="spec")
def _measure(keys, rho0, strengths, spec: EncoderSpec):
    """One compiled function for all strengths: a diagram has dozens of networks of one size."""
    spec = replace(spec, **strengths)
    layer, T, width = EncoderBlock(spec), spec.length, spec.width

    def one(key):
        key, *draws = jax.random.split(key, 3)
        shared = jax.random.normal(draws[0], (1, 1, width), spec.dtype)
        own = jax.random.normal(draws[1], (1, T, width), spec.dtype)
        mixed = jnp.sqrt(rho0) * shared + jnp.sqrt(1 - rho0) * own
        x_1xTxN = rms_normalise(mixed.astype(spec.dtype))

        def step(x_1xTxN, key):
            parameters = layer.init(key, x_1xTxN)["params"]
            out, state = layer.apply({"params": parameters}, x_1xTxN, mutable=["intermediates"])
            weights_HxTxT = state["intermediates"]["attn"]["weights"][0]
            return out, (_mean_cosine(out[0]), *_overlaps(weights_HxTxT))

        _, (cosine, *rest) = jax.lax.scan(step, x_1xTxN, jax.random.split(key, spec.layers))
        return Signal(jnp.append(_mean_cosine(x_1xTxN[0])[None], cosine), *rest)

    return jax.lax.map(one, keys)


def _mean_cosine(x_TxN):
    """Over the pairs t != t'; x is normalised to |x|^2 = N."""
    T, width = x_TxN.shape
    return (jnp.sum(jnp.sum(x_TxN, 0) ** 2) / width - T) / (T * (T - 1))


def _overlaps(weights_HxTxT):
    T = weights_HxTxT.shape[-1]
    same = jnp.mean(jnp.sum(weights_HxTxT**2, -1))
    columns = jnp.mean(jnp.sum(jnp.sum(weights_HxTxT, -2) ** 2, -1))
    entropy = jnp.mean(jnp.sum(jax.scipy.special.entr(weights_HxTxT), -1))
    return same, (columns - T * same) / (T * (T - 1)), entropy
