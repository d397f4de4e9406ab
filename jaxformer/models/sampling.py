"""Draws the next token of each prompt from its logits."""

import jax
import jax.numpy as jnp

NOT_FINITE = -1  # replaces a token whose logits are NaN or infinite


def draw(
    logits_BxV: jax.Array,
    key: jax.Array,
    temperature: float | jax.Array,
    top_p: float | jax.Array,
    is_greedy: bool,
) -> jax.Array:
    """Returns one token for each row, (B,); NOT_FINITE where a logit is NaN or infinite.

    Args:
      logits_BxV: the logits of the next token.
      key: the random key.
      temperature: the divisor of the logits.
      top_p: the total probability of the tokens to draw from, as in `nucleus`.
      is_greedy: takes the most probable token; key, temperature and top_p then have no effect.
    """
    if is_greedy:
        tokens_B = logits_BxV.argmax(-1)
    else:
        logits = logits_BxV.astype(jnp.float32)
        # Differences to the maximum and a positive divisor keep all finite logits finite.
        shifted_BxV = logits - logits.max(-1, keepdims=True)
        divisor = jnp.maximum(temperature, jnp.finfo(jnp.float32).tiny)
        tokens_B = jax.random.categorical(key, nucleus(shifted_BxV / divisor, top_p))
    return jnp.where(jnp.isfinite(logits_BxV).all(-1), tokens_B, NOT_FINITE)


def nucleus(logits_BxV: jax.Array, top_p: float | jax.Array) -> jax.Array:
    """Returns the logits with -inf outside the nucleus.

    The nucleus are the fewest tokens whose total probability is at least `top_p`.
    """
    order_BxV = jnp.argsort(-logits_BxV, -1)
    p_BxV = jax.nn.softmax(jnp.take_along_axis(logits_BxV, order_BxV, -1), -1)
    before_BxV = jnp.cumsum(p_BxV, -1) - p_BxV  # the total probability of more probable tokens
    kept_BxV = (before_BxV < top_p).at[:, 0].set(True)  # top_p = 0 keeps one token
    rank_BxV = jnp.argsort(order_BxV, -1)
    return jnp.where(jnp.take_along_axis(kept_BxV, rank_BxV, -1), logits_BxV, -jnp.inf)
