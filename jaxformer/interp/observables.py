"""Numbers that summarise hidden states and attention maps.

The functions are pure and take captured arrays (B, ...). Most return (B,), means over heads and
tokens. Shape letters: see `jaxformer.interp`; X = B T tokens of all examples.
"""

import jax
import jax.numpy as jnp


def causal_attention_entropy(weights_BxHxTxT: jax.Array) -> jax.Array:
    """Returns the mean of entropy / ln(number of visible tokens) of causal attention rows, (B,).

    1 is uniform attention, 0 is attention to one token. Row 0 sees one token and is left out. Fixed
    mixing has negative entries and no entropy. For attention without a mask use
    `training.probes.full_attention_entropy`.
    """
    length = weights_BxHxTxT.shape[-1]
    p = weights_BxHxTxT
    nats_BxHxT = -jnp.where(p > 0, p * jnp.log(jnp.where(p > 0, p, 1)), 0).sum(-1)
    max_nats_T = jnp.log(jnp.arange(2, length + 1))
    return (nats_BxHxT[..., 1:] / max_nats_T[None, None]).mean((1, 2))


def token_cosine(states_BxTxN: jax.Array) -> jax.Array:
    """Returns the mean cosine between states of different tokens, (B,); 1 is rank collapse."""
    norms_BxTx1 = jnp.linalg.norm(states_BxTxN, axis=-1, keepdims=True)
    return _mean_pair(states_BxTxN / jnp.maximum(norms_BxTx1, 1e-30))


def token_covariance(states_BxTxN: jax.Array) -> jax.Array:
    """Returns the mean covariance over features between different tokens, (B,).

    It is the mean off-diagonal entry of the covariance of rows, as in Table 6 of "Is random
    attention sufficient for sequence modeling?". It depends on scale and similarity; `token_cosine`
    depends on similarity only.
    """
    centred = states_BxTxN - states_BxTxN.mean(-1, keepdims=True)
    return _mean_pair(centred) / (states_BxTxN.shape[-1] - 1)


def dimensions(states_BxTxN: jax.Array) -> jax.Array:
    """Returns the participation ratio (tr C)^2 / tr C^2 of the covariance C over all tokens.

    It is k if k orthogonal directions have equal variance, 1 if all states lie on a line, 0 if all
    are equal. The result is one number for the batch.
    """
    states_XxN = states_BxTxN.reshape(-1, states_BxTxN.shape[-1])
    centred_XxN = states_XxN - states_XxN.mean(0, keepdims=True)
    covariance_NxN = centred_XxN.T @ centred_XxN
    shares_NxN = covariance_NxN / jnp.maximum(jnp.trace(covariance_NxN), 1e-30)
    return jnp.trace(shares_NxN) ** 2 / jnp.maximum((shares_NxN**2).sum(), 1e-30)


def _mean_pair(x_BxTxN: jax.Array) -> jax.Array:
    """Returns the mean of x_s . x_t over s != t, (B,)."""
    length = x_BxTxN.shape[1]
    total_B = (x_BxTxN.sum(1) ** 2).sum(-1) - (x_BxTxN**2).sum((1, 2))
    return total_B / (length * (length - 1))


def after_previous(tokens_BxT: jax.Array) -> jax.Array:
    """Returns the position after the last earlier occurrence of the same token, (B, T), or -1.

    An induction head attends from t to this position.
    """
    length = tokens_BxT.shape[1]
    position_T = jnp.arange(length, dtype=jnp.int32)
    earlier_TxT = position_T[None] < position_T[:, None]
    same_BxTxT = (tokens_BxT[:, :, None] == tokens_BxT[:, None]) & earlier_TxT[None]
    last_BxT = jnp.where(same_BxTxT, position_T[None, None], -1).max(-1)
    return jnp.where(last_BxT < 0, -1, last_BxT + 1)


def attention_to(
    weights_BxHxTxT: jax.Array, sources_BxT: jax.Array, counted_BxT: jax.Array
) -> jax.Array:
    """Returns the mean attention of each head to given source positions, (H,).

    With sources t - 1 it is the previous-token score, with `after_previous` the induction score.

    Args:
        weights_BxHxTxT: attention weights.
        sources_BxT: the source of each query position; negative ones do not count.
        counted_BxT: which query positions count. The result is nan if none does.
    """
    counted_BxT = counted_BxT & (sources_BxT >= 0)
    index_Bx1xTx1 = jnp.maximum(sources_BxT, 0)[:, None, :, None]
    attention_BxHxT = jnp.take_along_axis(weights_BxHxTxT, index_Bx1xTx1, axis=-1)[..., 0]
    total_H = jnp.where(counted_BxT[:, None], attention_BxHxT, 0).sum((0, 2))
    return total_H / counted_BxT.sum()
