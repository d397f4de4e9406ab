"""Computes the logits of a new token, with or without a cache of keys and values.

Shape letters: B prompts, T tokens of the prompts, S tokens of prompts and continuations.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxformer.models.activation_points import Request
from jaxformer.models.pretrained.network import Pretrained

# Maps (i, all tokens so far, memory) to the logits after new token i, and the new memory. i = -1 is
# the last token of the prompts.
Extend = Callable[[Any, jax.Array, Any], tuple[jax.Array, Any]]


class Prompts(NamedTuple):
    """Prompts as one array, padded on the left (`real` is false there) or on the right."""

    tokens_BxT: jax.Array
    real_BxT: jax.Array | None
    ends_B: Any  # the index after the last token of each prompt


def reader(
    model: Any, params: Any, prompts: Prompts, S: int, edits: Mapping[str, Any], is_even: bool
) -> tuple[jax.Array, Any, Extend]:
    """Returns the logits after the prompts, a memory, and the function that reads a new token.

    Args:
        params: its parameters.
        prompts: the prompts, padded to one length.
        S: the length of the prompts with all new tokens.
        edits: new values of activations by pattern; {} for none.
        is_even: whether all prompts have the same length.
    """

    def call(first_token: Any, variables: Mapping[str, Any], *inputs: Any, mutable: Any = False):
        arguments = {"params": params, **variables}, *inputs
        if not edits:
            return model.apply(*arguments, mutable=mutable)
        with Request((), edits, first_token).active() as request:
            outputs = model.apply(*arguments, mutable=mutable)
        request.check_edits()
        return outputs

    if isinstance(model, Pretrained):
        return _published(model, call, prompts, S)
    if is_even and not edits and _has_cache(model, params, prompts.tokens_BxT):
        return _cached(call, prompts)
    return _uncached(call, prompts, S)


def _uncached(call: Any, prompts: Prompts, S: int) -> tuple[jax.Array, Any, Extend]:
    """Computes the whole text for each new token."""

    # The second input of a model is the positions at which it returns logits.
    def extend(i, tokens_BxS, memory):
        return call(0, {}, tokens_BxS, (prompts.ends_B + i)[:, None])[:, 0], memory

    padding = S - prompts.tokens_BxT.shape[1]
    logits_BxV, memory = extend(-1, jnp.pad(prompts.tokens_BxT, ((0, 0), (0, padding))), ())
    return logits_BxV, memory, extend


def _has_cache(model: Any, params: Any, tokens_BxT: jax.Array) -> bool:
    """Returns whether a model called with mutable=["cache"] keeps one."""

    def cache(params, tokens):
        return model.apply({"params": params}, tokens, mutable=["cache"])[1]

    return bool(jax.eval_shape(cache, params, tokens_BxT).get("cache"))


def _cached(call: Any, prompts: Prompts) -> tuple[jax.Array, Any, Extend]:
    """Keeps keys and values in flax's collection "cache" (models/cache.py)."""
    T = prompts.tokens_BxT.shape[1]

    def read(tokens, cache):
        logits, cache = call(0, cache, tokens, mutable=["cache"])
        return logits[:, -1], cache

    def extend(i, tokens_BxS, cache):
        return read(jax.lax.dynamic_slice_in_dim(tokens_BxS, T + i, 1, 1), cache)

    logits_BxV, cache = read(prompts.tokens_BxT, {})
    return logits_BxV, cache, extend


def _published(
    model: Pretrained, call: Any, prompts: Prompts, S: int
) -> tuple[jax.Array, Any, Extend]:
    """Keeps keys and values of S tokens in the cache of a published model.

    When a longrope model passes its pretraining length, all keys and values are computed again with
    the long factors, as in transformers.
    """
    (B, T), rotary = prompts.tokens_BxT.shape, model.spec.rotary
    switch_length = 0
    if rotary is not None and rotary.kind == "longrope":
        switch_length = rotary.pretraining_length

    def read(first_token, tokens, slot, real, cache):
        """Returns the logits at this slot of `tokens`, and the cache."""
        slot_Bx1 = jnp.full((B, 1), slot)
        logits_Bx1xV, cache = call(first_token, {}, tokens, slot_Bx1, real, cache)
        return logits_Bx1xV[:, 0], cache

    def append(slot, tokens_BxS, cache):
        newest_Bx1 = jax.lax.dynamic_slice_in_dim(tokens_BxS, slot, 1, 1)
        return read(slot, newest_Bx1, 0, None, cache)

    def recompute(slot, tokens_BxS, cache):
        slots_S = jnp.arange(S)
        real_BxS = (cache["seen"] | (slots_S == slot)[None]) & (slots_S <= slot)[None]
        logits, cache = read(0, tokens_BxS, slot, real_BxS, model.empty_cache(B, S))
        return logits, cache | {"length": jnp.asarray(slot + 1, cache["length"].dtype)}

    def extend(i, tokens_BxS, cache):
        if not 0 < switch_length < S:
            return append(T + i, tokens_BxS, cache)
        is_switch = cache["seen"].sum(1).max() == switch_length
        return jax.lax.cond(is_switch, recompute, append, T + i, tokens_BxS, cache)

    empty = model.empty_cache(B, S)
    logits_BxV, cache = read(0, prompts.tokens_BxT, T - 1, prompts.real_BxT, empty)
    return logits_BxV, cache, extend
