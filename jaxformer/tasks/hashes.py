"""Hashes of examples, and orders of a set that need no table. All are pure and jit-safe."""

import jax
import jax.numpy as jnp


def fingerprints(inputs_BxT: jax.Array) -> jax.Array:
    """A 32-bit hash of each row. A collision only redraws a sample that need not be."""
    place_T = _scramble(jnp.arange(inputs_BxT.shape[1], dtype=jnp.uint32) + 1)
    tokens_BxT = _scramble(inputs_BxT.astype(jnp.uint32) + 1)
    return _scramble(tokens_BxT + place_T[None]).sum(-1, dtype=jnp.uint32)


def unit(fingerprint: jax.Array) -> jax.Array:
    """A number in [0, 1) from a fingerprint, whose bits are not those that compare sets."""
    return _scramble(fingerprint + jnp.uint32(0x9E3779B9)).astype(jnp.float32) / 2.0**32


def shuffled(key: jax.Array, place: jax.Array, size: int) -> jax.Array:
    """The place-th index of an endless visit to 0..size-1, each epoch in an order of its own.

    A four-round Feistel network permutes the next power of four; values beyond the set are sent
    through again until they fall inside, so an epoch visits every index once with no table.
    """
    half_bits = max(((size - 1).bit_length() + 1) // 2, 1)
    mask = jnp.uint32(2**half_bits - 1)
    epoch, offset = place // jnp.uint32(size), place % jnp.uint32(size)
    round_keys = jax.random.bits(jax.random.fold_in(key, epoch), (4,), jnp.uint32)

    def permute(x):
        left, right = x >> half_bits, x & mask
        for k in round_keys:
            left, right = right, left ^ (_scramble(right + k) & mask)
        return (left << half_bits) | right

    index = jax.lax.while_loop(lambda x: x >= size, permute, permute(offset))
    return index.astype(jnp.int32)


def _scramble(x: jax.Array) -> jax.Array:
    """A bijection of 32-bit words that spreads every bit (the finaliser of MurmurHash3)."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)
