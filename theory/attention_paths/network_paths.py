"""The paths through the attention heads of a trained network: decoder, encoder, loaded model.

    attentioned, heads = attentioned_of(model, params, tokens, layers=(0, 1), readout="last")
    found = attention_paths.order_parameter(attentioned, labels, 10, 0.01, heads)

Of the network only the attention maps and the vectors that enter its first block are taken, as the
theory has it: one head of each layer after the other, linear in the values. What lies between
(MLPs, norms, other layers) is left out; `skip=True` adds to each layer a head that looks at its own
token, so that paths may pass a layer by, as the residual stream lets them.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxformer import capture
from jaxformer.core.errors import UserError
from jaxformer.models.path_features import attentioned_input, readout_queries
from theory.numerics import Array


def attentioned_of(
    model: Any,
    params: Any,
    tokens: Array,
    *,
    layers: Sequence[int] = (),
    readout: str = "last",
    skip: bool = False,
) -> tuple[jax.Array, tuple[int, ...]]:
    """(attentioned, heads): (P, H_1 .. H_L, n) of the chosen layers, from 0; all by default."""
    known = [name for name in capture.names(model) if name.endswith("/attn/weights")]
    chosen = [f"block_{i}/attn/weights" for i in layers] or known
    for name in chosen:
        if name not in known:
            raise UserError(
                f"the model has no {name}: it has {len(known)} layers of attention maps, from 0."
            )
    if not known:
        raise UserError("the model forms no attention maps, so it has no paths through heads.")
    found = capture.capture(model, params, tokens, names=["embedded", *chosen])
    maps = [found[name] for name in chosen]
    if skip:
        maps = [_with_skip(map_BxHxTxS) for map_BxHxTxS in maps]
    return from_maps(found["embedded"], maps, readout), tuple(m.shape[1] for m in maps)


def from_maps(tokens_BxTxn: Array, maps: Sequence[Array], readout: str = "last") -> jax.Array:
    """xi^pi, (B, D, n), from token vectors and the attention weights of each layer, (B, H, T, S):
    a row for each query, its weights over the keys."""
    tokens = jnp.asarray(tokens_BxTxn)
    if tokens.ndim != 3:
        raise UserError(f"tokens must be (examples, length, n) vectors, got shape {tokens.shape}.")
    P, T, _ = tokens.shape
    turned = []
    for l, map_BxHxTxS in enumerate(map(jnp.asarray, maps), 1):
        if map_BxHxTxS.ndim != 4 or map_BxHxTxS.shape[::2] != (P, T) or map_BxHxTxS.shape[3] != T:
            raise UserError(
                f"the attention maps of layer {l} must be ({P}, heads, {T}, {T}), got shape "
                f"{map_BxHxTxS.shape}."
            )
        turned.append(map_BxHxTxS.swapaxes(2, 3))
    if turned:
        queries_first = readout_queries(jnp.moveaxis(turned[-1], 3, 1), readout)
        turned[-1] = jnp.moveaxis(queries_first, 1, 3)
    return attentioned_input(tokens, turned)


def _with_skip(map_BxHxTxS: jax.Array) -> jax.Array:
    """One more head, which looks at the query's own token."""
    B, _, T, S = map_BxHxTxS.shape
    own_BxTxS = jnp.broadcast_to(jnp.eye(T, S, dtype=map_BxHxTxS.dtype), (B, 1, T, S))
    return jnp.concatenate([map_BxHxTxS, own_BxTxS], 1)
