"""Sampling from a causal model with a key-value cache: each token costs one row of attention.

    tokens_BxS = generate(model, params, prompt_BxT, n, key, temperature=0.8, top_p=0.95)

The logits of a step equal those of a full pass over all tokens so far, to 1e-5.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from jaxformer.core.errors import UserError, check_range


def generate(
    model: Any,
    params: Any,
    prompt_BxT: jax.Array,
    n: int,
    key: jax.Array,
    *,
    temperature: float = 1.0,
    top_p: float = 1.0,
) -> jax.Array:
    """Samples n more tokens for each prompt.

    Args:
      model: a causal model with a cache (models/cache.py), such as `decoder` or a published one.
      prompt_BxT: token ids, all prompts of the same length.
      key: the random key of the draws.
      temperature: the divisor of the logits; 0 takes the most probable token.
      top_p: samples from the fewest tokens whose probabilities sum to at least this.

    Returns:
      Prompts and samples, (B, T + n).
    """
    spec, (_, T) = model.spec, prompt_BxT.shape
    check_range("temperature", temperature, 0, 1e6)
    check_range("top_p", top_p, 0, 1)
    check_range("the number of tokens to draw", n, 0)
    if not spec.causal:
        raise UserError("generation needs a causal model; this one attends to later tokens.")
    if not T:
        raise UserError("the prompt is empty; give at least one token, such as the end of a text.")
    if T + n > spec.length:
        raise UserError(
            f"the model takes at most {spec.length} tokens, got a prompt of {T} and {n} to draw, "
            f"{T + n} in all: give a shorter prompt or draw fewer."
        )
    if not n:
        return prompt_BxT
    drawn_Bxn = _generate(model, n, temperature == 0, params, prompt_BxT, key, temperature, top_p)
    return jnp.concatenate([prompt_BxT, drawn_Bxn], 1)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _generate(model, n: int, greedy: bool, params, prompt_BxT, key, temperature, top_p):
    def call(cache: Any, tokens):
        logits, state = model.apply({"params": params, **cache}, tokens, mutable=["cache"])
        return logits[:, -1], state

    def draw(logits_BxV, key):
        if greedy:
            return logits_BxV.argmax(-1).astype(prompt_BxT.dtype)
        logits_BxV = logits_BxV.astype(jnp.float32)
        # Differences to the maximum and a positive divisor keep all finite logits finite.
        shifted_BxV = logits_BxV - logits_BxV.max(-1, keepdims=True)
        smallest = jnp.finfo(jnp.float32).tiny
        logits_BxV = nucleus(shifted_BxV / jnp.maximum(temperature, smallest), top_p)
        return jax.random.categorical(key, logits_BxV).astype(prompt_BxT.dtype)

    def step(carry, key):
        cache, token_B = carry
        logits_BxV, cache = call(cache, token_B[:, None])
        return (cache, draw(logits_BxV, key)), token_B

    keys = jax.random.split(key, n)
    logits_BxV, cache = call({}, prompt_BxT)
    start = cache, draw(logits_BxV, keys[0])
    (_, last_B), drawn_nxB = jax.lax.scan(step, start, keys[1:])
    return jnp.concatenate([drawn_nxB, last_B[None]]).T


def nucleus(logits_BxV: jax.Array, top_p: float | jax.Array) -> jax.Array:
    """Returns the logits of the fewest tokens with total probability `top_p`, -inf for others."""
    order_BxV = jnp.argsort(-logits_BxV, -1)
    p_BxV = jax.nn.softmax(jnp.take_along_axis(logits_BxV, order_BxV, -1), -1)
    kept_BxV = jnp.cumsum(p_BxV, -1) - p_BxV < top_p
    kept_BxV = kept_BxV.at[:, 0].set(True)
    rank_BxV = jnp.argsort(order_BxV, -1)
    return jnp.where(jnp.take_along_axis(kept_BxV, rank_BxV, -1), logits_BxV, -jnp.inf)
