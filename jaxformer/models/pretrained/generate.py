"""Greedy continuation with a key-value cache, one compiled program for all steps."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxformer.errors import check_range
from jaxformer.models.pretrained.network import Pretrained


def greedy(
    model: Pretrained, params: Any, tokens_BxT: jax.Array, new: int, real_BxT: Any = None
) -> jax.Array:
    """The `new` likeliest next tokens, one after the other, (B, new).

    Prompts of several lengths are padded on the left, where `real_BxT` is false.
    """
    check_range("the number of new tokens", new, 1)
    n_batch, T = tokens_BxT.shape

    def next_of(logits_BxTxV):
        return jnp.argmax(logits_BxTxV[:, -1], -1).astype(tokens_BxT.dtype)

    def step(carried, _):
        cache, token_B = carried
        logits, cache = model.apply({"params": params}, token_B[:, None], None, None, cache)
        return (cache, next_of(logits)), token_B

    cache = model.empty_cache(n_batch, T + new)
    last_Bx1 = jnp.full((n_batch, 1), T - 1)
    logits, cache = model.apply({"params": params}, tokens_BxT, last_Bx1, real_BxT, cache)
    (_, last_B), before = jax.lax.scan(step, (cache, next_of(logits)), None, length=new - 1)
    return jnp.concatenate([before.T, last_B[:, None]], 1)
