"""Attention paths of a trained network: a decoder, an encoder or a loaded model.

    xi, heads = attentioned_of(model, params, tokens, layers=(0, 1), readout="last")
    solution = attention_paths.order_parameter(xi, labels, 10, 0.01, heads)

A path passes through one head of each chosen layer. Its attentioned input is the sum of the vectors
that enter the first block, weighted by the attention maps along the path. MLPs, norms and other
layers are left out. With skip=True each layer has one more head, in which each token attends to
itself. A path through this head bypasses the layer like the residual stream.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxformer import capture
from jaxformer.core.errors import UserError
from jaxformer.models.path_features import attentioned_input, readout_queries
from theory.numerics import Array, in_float64


def attentioned_of(
    model: Any,
    params: Any,
    tokens: Array,
    *,
    layers: Sequence[int] = (),
    readout: str = "last",
    skip: bool = False,
) -> tuple[jax.Array, tuple[int, ...]]:
    """Returns the attentioned inputs of a network's paths and the heads of its layers.

    Args:
        model: a decoder, an encoder or a loaded model.
        params: its parameters.
        tokens: input tokens, (P, T).
        layers: layers of the paths, from 0; all layers with attention maps by default.
        readout: the token that is read, "first", "last" or "mean".
        skip: whether each layer has one more head, in which each token attends to itself.

    Returns:
        xi, (P, D, n), and (H_1 .. H_L).
    """
    available = [name for name in capture.names(model) if name.endswith("/attn/weights")]
    if not available:
        raise UserError("the model forms no attention maps, so it has no paths through heads.")
    chosen = [f"block_{i}/attn/weights" for i in layers] or available
    for name in chosen:
        if name not in available:
            raise UserError(
                f"the model has no {name}: it has {len(available)} layers of attention maps, "
                "from 0."
            )
    activations = capture.capture(model, params, tokens, names=["embedded", *chosen])
    maps = [activations[name] for name in chosen]
    if skip:
        maps = [_with_skip_head(map_BxHxTxS) for map_BxHxTxS in maps]
    heads = tuple(map_BxHxTxS.shape[1] for map_BxHxTxS in maps)
    return from_maps(activations["embedded"], maps, readout), heads


@in_float64
def from_maps(tokens_BxTxn: Array, maps: Sequence[Array], readout: str = "last") -> jax.Array:
    """Returns the attentioned inputs xi, (B, D, n), of token vectors and attention maps.

    Args:
        tokens_BxTxn: token vectors.
        maps: attention weights of each layer, (B, H, T, S): a row over the keys for each query.
        readout: the token that is read, "first", "last" or "mean".
    """
    tokens = jnp.asarray(tokens_BxTxn)
    if tokens.ndim != 3:
        raise UserError(f"tokens must be (examples, length, n) vectors, got shape {tokens.shape}.")
    B, T, _ = tokens.shape
    keys_first = []  # the maps as `attentioned_input` takes them, (B, H, key, query)
    for l, map_BxHxTxS in enumerate(map(jnp.asarray, maps), 1):
        shape = map_BxHxTxS.shape
        if len(shape) != 4 or shape != (B, shape[1], T, T):
            raise UserError(
                f"the attention maps of layer {l} must be ({B}, heads, {T}, {T}), got shape "
                f"{shape}."
            )
        keys_first.append(map_BxHxTxS.swapaxes(2, 3))
    if keys_first:  # the last layer needs only the queries of the tokens that are read
        queries_first = readout_queries(jnp.moveaxis(keys_first[-1], 3, 1), readout)
        keys_first[-1] = jnp.moveaxis(queries_first, 1, 3)
    return attentioned_input(tokens, keys_first)


def _with_skip_head(map_BxHxTxS: jax.Array) -> jax.Array:
    B, _, T, S = map_BxHxTxS.shape
    identity_Bx1xTxS = jnp.broadcast_to(jnp.eye(T, S, dtype=map_BxHxTxS.dtype), (B, 1, T, S))
    return jnp.concatenate([map_BxHxTxS, identity_Bx1xTxS], 1)
