"""Hashes of examples, and permutations that need no table. All functions are pure and jit-safe."""

import jax
import jax.numpy as jnp


def fingerprints(inputs: jax.Array) -> jax.Array:
    """Returns a 32-bit hash of each example, (B,).

    Training examples with the hash of a held-out example are drawn again. A collision therefore
    causes a needless redraw, or an unseen example counts as seen.

    Args:
        inputs: tokens, (B, T), or vectors of floats, (B, T, D).
    """
    if jnp.issubdtype(inputs.dtype, jnp.floating):
        inputs = jax.lax.bitcast_convert_type(inputs.astype(jnp.float32), jnp.uint32)
    words_BxT = inputs.reshape(len(inputs), -1).astype(jnp.uint32)
    position_T = _scramble(jnp.arange(words_BxT.shape[1], dtype=jnp.uint32) + 1)
    return _scramble(_scramble(words_BxT + 1) + position_T[None]).sum(-1, dtype=jnp.uint32)


def unit(fingerprint: jax.Array) -> jax.Array:
    """Hashes a fingerprint once more, to a number that is uniform in [0, 1)."""
    u = _scramble(fingerprint + jnp.uint32(0x9E3779B9)).astype(jnp.float32) / 2.0**32
    return jnp.minimum(u, 1 - 2.0**-24)  # float32 rounds the largest hashes up to 1


def shuffled(key: jax.Array, position: jax.Array, size: int) -> jax.Array:
    """Returns the index at a position of an endless shuffled stream over 0..size-1.

    Every epoch visits each index once, in a new order, without a table. A four-round Feistel
    network permutes 0..4^b - 1, the smallest such range that contains all indices. A value that is
    not below `size` passes through the network again.

    Args:
        key: a random key; other keys have other orders.
        position: the position in the stream, an unsigned integer.
        size: the number of indices.
    """
    half_bits = max(((size - 1).bit_length() + 1) // 2, 1)
    mask = jnp.uint32(2**half_bits - 1)
    epoch, offset = position // jnp.uint32(size), position % jnp.uint32(size)
    round_keys = jax.random.bits(jax.random.fold_in(key, epoch), (4,), jnp.uint32)

    def permute(x):
        left, right = x >> half_bits, x & mask
        for k in round_keys:
            left, right = right, left ^ (_scramble(right + k) & mask)
        return (left << half_bits) | right

    index = jax.lax.while_loop(lambda x: x >= size, permute, permute(offset))
    return index.astype(jnp.int32)


def _scramble(x: jax.Array) -> jax.Array:
    """Mixes the bits of 32-bit words bijectively (the finaliser of MurmurHash3)."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)
