"""The signal of a post-norm encoder at initialisation, predicted and measured in random networks.

`jaxformer.models.encoder` implements the encoder, which is defined in arXiv 2505.24333.
"""

from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from jaxformer.core.errors import UserError
from jaxformer.models.encoder import STRENGTHS, EncoderSpec
from jaxformer.models.layers import rms_normalise
from jaxformer.models.transformer import TransformerBlock
from theory import rem
from theory.numerics import check_count, check_range, in_float64
from theory.signal.measurement import attention_averages, mean_cosine
from theory.signal.propagation import Block, overlap_pair, propagate


class Signal(NamedTuple):
    """The signal by depth. `measure` adds a leading axis of seeds."""

    cosine: jax.Array  # (depth+1,) mean cosine of two tokens; entry 0 is the input
    self_overlap: jax.Array  # (depth,) mean of sum_s A_ts^2 in each block
    cross_overlap: jax.Array  # (depth,) mean of sum_s A_ts A_t's over t != t'
    entropy: jax.Array  # (depth,) mean entropy of an attention row in nats


@in_float64
def predict(
    block: Block, depth: int, T: float, rho0: float = 0.0, overlaps: str = "exact"
) -> Signal:
    """Predicts the signal of an encoder.

    Args:
      block: the block, with scalar fields.
      depth: number of blocks.
      T: number of tokens.
      rho0: cosine of two input tokens.
      overlaps: one of `OVERLAPS`. Except with "exact" the entropy is ln T (1 - beta^2/beta_c^2)^+.

    Example:
      >>> block = Block(1.2, 0.7, 1.0, sigma_v2=0.2, sigma_w2=0.2, sigma_b2=4e-4)
      >>> predicted = predict(block, depth=6, T=16)
      >>> measured = measure(jax.random.split(jax.random.key(0), 8), block, 6, T=16, width=128)
      >>> measured.cosine.mean(0) - predicted.cosine  # of order 1/width
    """
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
    """For each key, measures one random encoder on one random input.

    Input tokens are random directions in `width` dimensions with mean cosine rho0; the cosines of
    pairs scatter by width^-1/2. Blocks are initialised one after another inside a scan, so that 60
    layers compile as fast as one.

    Args:
      keys: (S,) random keys.
      block: the block, with scalar fields; sigma_u2 must be None.
      depth: number of blocks.
      T: number of tokens.
      width: width N of the encoder.
      heads: number of heads, a divisor of width.
      rho0: mean cosine of two input tokens.
      dtype: precision; None is jax's default.

    Returns:
      A `Signal` whose arrays have a leading axis of S seeds.
    """
    for name, count in (("depth", depth), ("width", width), ("heads", heads)):
        check_count(name, count)
    check_count("T", T, 2)
    check_range("rho0", rho0, 0, 1)
    if block.sigma_u2 is not None or not isinstance(block.activation, str):
        raise UserError("measure needs sigma_u2=None and the name of an activation.")
    dtype = jnp.dtype(dtype or jnp.result_type(float))
    strengths = {name: float(getattr(block, name)) for name in STRENGTHS}
    settings: dict[str, Any] = {"activation": block.activation}
    settings |= {"dtype": dtype, "param_dtype": dtype}
    sizes = (0, T, width, depth, heads)  # the vocabulary is not used
    EncoderSpec(*sizes, **strengths, **settings)  # raises UserError for invalid values
    traced = {name: jnp.asarray(number, dtype) for name, number in strengths.items()}
    return _measure(keys, rho0, traced, EncoderSpec(*sizes, beta=0.0, **settings))


@partial(jax.jit, static_argnames="spec")
def _measure(keys, rho0, strengths, spec: EncoderSpec):
    # beta, residual weights and variances are traced: one program serves all networks of a diagram.
    spec = replace(spec, **strengths)
    layer, T, width = TransformerBlock(spec.block), spec.length, spec.width

    def measure_network(key):
        key, shared_key, independent_key = jax.random.split(key, 3)
        shared = jax.random.normal(shared_key, (1, 1, width), spec.dtype)
        independent = jax.random.normal(independent_key, (1, T, width), spec.dtype)
        mixed = jnp.sqrt(rho0) * shared + jnp.sqrt(1 - rho0) * independent
        x_1xTxN = rms_normalise(mixed.astype(spec.dtype))

        def step(x_1xTxN, key):
            parameters = layer.init(key, x_1xTxN)["params"]
            out, state = layer.apply({"params": parameters}, x_1xTxN, mutable=["intermediates"])
            weights_HxTxT = state["intermediates"]["attn"]["weights"][0]
            return out, (mean_cosine(out[0]), *attention_averages(weights_HxTxT))

        _, (cosine, *rest) = jax.lax.scan(step, x_1xTxN, jax.random.split(key, spec.layers))
        return Signal(jnp.append(mean_cosine(x_1xTxN[0])[None], cosine), *rest)

    return jax.lax.map(measure_network, keys)
