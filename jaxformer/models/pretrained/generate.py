"""Greedy continuation with a key-value cache, one compiled program for all steps."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxformer.core.errors import check_range
from jaxformer.models.pretrained.network import Pretrained

NOT_FINITE = -1  # replaces a token whose logits are NaN or infinite


def greedy(
    model: Pretrained, params: Any, tokens_BxT: jax.Array, new: int, real_BxT: Any = None
) -> jax.Array:
    """Continues prompts with the most probable tokens.

    When a longrope model passes its pretraining length, all keys and values are computed again with
    the long factors, as in transformers.

    Args:
      tokens_BxT: token ids; shorter prompts are padded on the left.
      new: the number of further tokens.
      real_BxT: booleans, false at padding.

    Returns:
      The further tokens, (B, new). After logits that are not finite, a row has NOT_FINITE.
    """
    check_range("the number of new tokens", new, 1)
    n_batch, T = tokens_BxT.shape
    S, switch = T + new, _longrope_switch(model)

    def call(tokens, slot, real, cache):
        """Returns the logits at this slot of `tokens`, and the cache."""
        last_Bx1 = jnp.full((n_batch, 1), slot)
        outputs: Any = model.apply({"params": params}, tokens, last_Bx1, real, cache)
        logits_Bx1xV, cache = outputs
        return logits_Bx1xV[:, 0], cache

    def extend(slot, tokens_BxS, cache):
        newest_Bx1 = jax.lax.dynamic_slice_in_dim(tokens_BxS, slot, 1, 1)
        return call(newest_Bx1, 0, None, cache)

    def recompute(slot, tokens_BxS, cache):
        real_BxS = (cache["seen"] | (jnp.arange(S) == slot)[None]) & (jnp.arange(S) <= slot)[None]
        logits, cache = call(tokens_BxS, slot, real_BxS, model.empty_cache(n_batch, S))
        return logits, cache | {"length": jnp.asarray(slot + 1, cache["length"].dtype)}

    def step(slot, carried):
        tokens_BxS, cache = carried
        if 0 < switch < S:
            is_switch = cache["seen"].sum(1).max() == switch
            logits, cache = jax.lax.cond(is_switch, recompute, extend, slot, tokens_BxS, cache)
        else:
            logits, cache = extend(slot, tokens_BxS, cache)
        return put(tokens_BxS, slot + 1, logits), cache

    def put(tokens_BxS, slot, logits_BxV):
        is_defined_B = jnp.isfinite(logits_BxV).all(-1) & (tokens_BxS[:, slot - 1] != NOT_FINITE)
        token_B = jnp.where(is_defined_B, jnp.argmax(logits_BxV, -1), NOT_FINITE)
        return tokens_BxS.at[:, slot].set(token_B.astype(tokens_BxS.dtype))

    tokens_BxS = jnp.pad(tokens_BxT, ((0, 0), (0, new)))
    logits, cache = call(tokens_BxT, T - 1, real_BxT, model.empty_cache(n_batch, S))
    start = put(tokens_BxS, T, logits), cache
    return jax.lax.fori_loop(T, S - 1, step, start)[0][:, T:]


def _longrope_switch(model: Pretrained) -> int:
    """Returns the number of tokens after which the long factors of longrope apply; 0: none."""
    rotary = model.spec.rotary
    return rotary.first_length if rotary is not None and rotary.kind == "longrope" else 0
