"""What a causal model remembers of the tokens it has seen, so that the next one costs one row.

    logits, kept = model.apply({"params": p}, tokens_BxT, mutable=["cache"])
    logits, kept = model.apply({"params": p, "cache": kept["cache"]}, next_Bx1, mutable=["cache"])

A model that meets this can be sampled from (models/generate.py): it asks `is_caching`, keeps what
its later tokens look at with `remember`, and positions with `count`.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

CACHE = "cache"


def is_caching(module: nn.Module) -> bool:
    """Was the model called with mutable=["cache"]?"""
    return module.is_mutable_collection(CACHE) and not module.is_initializing()


def count(module: nn.Module, tokens: int) -> jax.Array:
    """How many tokens there were before these."""
    seen = module.variable(CACHE, "seen", lambda: jnp.zeros((), jnp.int32))
    before = seen.value
    seen.value = before + tokens
    return before


def remember(module: nn.Module, name: str, new_BxTx: jax.Array, length: int) -> tuple[Any, Any]:
    """(how many tokens there were before, what is remembered of all: (B, length, ..))."""
    B, T, *rest = new_BxTx.shape
    held = module.variable(CACHE, name, lambda: jnp.zeros((B, length, *rest), new_BxTx.dtype))
    seen = module.variable(CACHE, f"{name}_seen", lambda: jnp.zeros((), jnp.int32))
    before = seen.value
    held.value = jax.lax.dynamic_update_slice_in_dim(held.value, new_BxTx, before, 1)
    seen.value = before + T
    return before, held.value
