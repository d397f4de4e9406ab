"""Greedy continuation with a key-value cache, one compiled program for all steps."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxformer.core.errors import check_range
from jaxformer.models.pretrained.network import Pretrained

NOT_FINITE = -1  # in place of a token whose logits are nan or infinity


def greedy(
    model: Pretrained, params: Any, tokens_BxT: jax.Array, new: int, real_BxT: Any = None
) -> jax.Array:
    """The `new` likeliest next tokens, one after the other, (B, new).

    Where the logits are not finite, the token and all later ones of the row are NOT_FINITE.

    Prompts of several lengths are padded on the left, where `real_BxT` is false. Where a longrope
    model passes the length of its first training, all tokens are seen anew with the long factors:
    what the cache holds of them was made with the short ones. (transformers does the same.)
    """
    check_range("the number of new tokens", new, 1)
    n_batch, T = tokens_BxT.shape
    S, first = T + new, _turning_point(model)

    def call(tokens, slot, real, cache):
        """Logits of the token in this slot, the last one of `tokens` or one before padding."""
        last_Bx1 = jnp.full((n_batch, 1), slot)
        found: Any = model.apply({"params": params}, tokens, last_Bx1, real, cache)
        logits_Bx1xV, cache = found
        return logits_Bx1xV[:, 0], cache

    def one_more(slot, said_BxS, cache):
        newest_Bx1 = jax.lax.dynamic_slice_in_dim(said_BxS, slot, 1, 1)
        return call(newest_Bx1, 0, None, cache)

    def anew(slot, said_BxS, cache):
        real_BxS = (cache["seen"] | (jnp.arange(S) == slot)[None]) & (jnp.arange(S) <= slot)[None]
        logits, cache = call(said_BxS, slot, real_BxS, model.empty_cache(n_batch, S))
        return logits, cache | {"length": jnp.asarray(slot + 1, cache["length"].dtype)}

    def step(slot, carried):
        said_BxS, cache = carried
        if 0 < first < S:
            turns = cache["seen"].sum(1).max() == first
            logits, cache = jax.lax.cond(turns, anew, one_more, slot, said_BxS, cache)
        else:
            logits, cache = one_more(slot, said_BxS, cache)
        return said(said_BxS, slot + 1, logits), cache

    def said(said_BxS, slot, logits_BxV):
        is_defined_B = jnp.isfinite(logits_BxV).all(-1) & (said_BxS[:, slot - 1] != NOT_FINITE)
        token_B = jnp.where(is_defined_B, jnp.argmax(logits_BxV, -1), NOT_FINITE)
        return said_BxS.at[:, slot].set(token_B.astype(said_BxS.dtype))

    said_BxS = jnp.pad(tokens_BxT, ((0, 0), (0, new)))
    logits, cache = call(tokens_BxT, T - 1, real_BxT, model.empty_cache(n_batch, S))
    start = said(said_BxS, T, logits), cache
    return jax.lax.fori_loop(T, S - 1, step, start)[0][:, T:]


def _turning_point(model: Pretrained) -> int:
    """The number of tokens after which rotary positions turn otherwise, 0 if there is none."""
    rotary = model.spec.rotary
    return rotary.first_length if rotary is not None and rotary.kind == "longrope" else 0
