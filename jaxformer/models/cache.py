"""The key-value cache of a causal model: each further token costs one row of attention.

    logits, state = model.apply({"params": p}, tokens_BxT, mutable=["cache"])
    logits, state = model.apply({"params": p, "cache": state["cache"]}, next_Bx1, mutable=["cache"])

`jaxformer.generate` uses the cache of such a model. The model checks `is_caching`, stores keys and
values with `append`, and counts positions with `advance`.
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

CACHE = "cache"


def is_caching(module: nn.Module) -> bool:
    """Returns whether the model was called with mutable=["cache"]."""
    return module.is_mutable_collection(CACHE) and not module.is_initializing()


def advance(module: nn.Module, tokens: int, name: str = "seen") -> jax.Array:
    """Adds `tokens` to the token counter `name` of the cache and returns its previous value."""
    seen = module.variable(CACHE, name, lambda: jnp.zeros((), jnp.int32))
    start = seen.value
    seen.value = start + tokens
    return start


def append(module: nn.Module, name: str, new_BxTx: jax.Array, length: int) -> tuple[Any, Any]:
    """Appends the new tokens' keys or values to the cache.

    Args:
      module: the module whose collection "cache" has the array.
      name: the name of the cached array.
      new_BxTx: keys or values of the new tokens, (B, T, ..).
      length: the number of tokens that the cache has room for.

    Returns:
      (the number of tokens before these, the cached array (B, length, ..)).
    """
    B, T, *rest = new_BxTx.shape
    cached = module.variable(CACHE, name, lambda: jnp.zeros((B, length, *rest), new_BxTx.dtype))
    start = advance(module, T, f"{name}_seen")
    cached.value = jax.lax.dynamic_update_slice_in_dim(cached.value, new_BxTx, start, 1)
    return start, cached.value
