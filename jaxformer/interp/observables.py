"""What a hidden state or an attention map looks like, in one number an example.

Pure functions of captured arrays; (B, ...) -> (B,) averaged over layers' heads and tokens.
"""

import jax
import jax.numpy as jnp


def causal_attention_entropy(weights_BxHxTxT: jax.Array) -> jax.Array:
    """Mean Shannon entropy of a causal attention row over ln(number of visible tokens), (B,).

    1 is uniform attention, 0 looks at one token. Row 0, which sees one token, is left out. Fixed
    mixing has negative entries and no entropy. For models without a mask: training.probes.
    """
    length = weights_BxHxTxT.shape[-1]
    p = weights_BxHxTxT
    nats_BxHxT = -jnp.where(p > 0, p * jnp.log(jnp.where(p > 0, p, 1)), 0).sum(-1)
    most_T = jnp.log(jnp.arange(2, length + 1))
    return (nats_BxHxT[..., 1:] / most_T[None, None]).mean((1, 2))


def token_cosine(states_BxTxN: jax.Array) -> jax.Array:
    """Mean cosine between the states of different tokens, (B,): 1 is rank collapse."""
    norms_BxTx1 = jnp.linalg.norm(states_BxTxN, axis=-1, keepdims=True)
    return _mean_pair(states_BxTxN / jnp.maximum(norms_BxTx1, 1e-30))


def token_covariance(states_BxTxN: jax.Array) -> jax.Array:
    """Mean covariance over features between different tokens, (B,): version B's Table 6.

    C = cov of the rows of H (m x n); its mean off-diagonal entry mixes scale with similarity, so
    report it beside `token_cosine`.
    """
    centred = states_BxTxN - states_BxTxN.mean(-1, keepdims=True)
    return _mean_pair(centred) / (states_BxTxN.shape[-1] - 1)


def dimensions(states_BxTxN: jax.Array) -> jax.Array:
    """How many directions the states of all tokens fill, the participation ratio of their variance.

    (tr C)^2 / tr C^2 of the covariance C over tokens: k if the variance lies equally in k
    orthogonal directions, 1 if all states lie on a line, 0 if all are one. A number for the batch,
    not for each example.
    """
    states_XxN = states_BxTxN.reshape(-1, states_BxTxN.shape[-1])
    centred_XxN = states_XxN - states_XxN.mean(0, keepdims=True)
    covariance_NxN = centred_XxN.T @ centred_XxN
    shares_NxN = covariance_NxN / jnp.maximum(jnp.trace(covariance_NxN), 1e-30)
    return jnp.trace(shares_NxN) ** 2 / jnp.maximum((shares_NxN**2).sum(), 1e-30)


def _mean_pair(x_BxTxN: jax.Array) -> jax.Array:
    """The mean of x_s . x_t over s != t."""
    length = x_BxTxN.shape[1]
    total_B = (x_BxTxN.sum(1) ** 2).sum(-1) - (x_BxTxN**2).sum((1, 2))
    return total_B / (length * (length - 1))


def after_previous(tokens_BxT: jax.Array) -> jax.Array:
    """The position after the last earlier occurrence of the same token, (B, T); -1: there is none.

    An induction head attends from t to it: what followed this token the last time.
    """
    length = tokens_BxT.shape[1]
    place_T = jnp.arange(length, dtype=jnp.int32)
    earlier_TxT = place_T[None] < place_T[:, None]
    same_BxTxT = (tokens_BxT[:, :, None] == tokens_BxT[:, None]) & earlier_TxT[None]
    last_BxT = jnp.where(same_BxTxT, place_T[None, None], -1).max(-1)
    return jnp.where(last_BxT < 0, -1, last_BxT + 1)


def attention_to(
    weights_BxHxTxT: jax.Array, sources_BxT: jax.Array, counted_BxT: jax.Array
) -> jax.Array:
    """Mean attention of each head from the counted positions to their sources, (H,).

    With sources t - 1 it is the previous-token score, with `after_previous` the induction score.
    Positions whose source is negative do not count; nan if none does.
    """
    counted_BxT = counted_BxT & (sources_BxT >= 0)
    index_Bx1xTx1 = jnp.maximum(sources_BxT, 0)[:, None, :, None]
    found_BxHxT = jnp.take_along_axis(weights_BxHxTxT, index_Bx1xTx1, axis=-1)[..., 0]
    total_H = jnp.where(counted_BxT[:, None], found_BxHxT, 0).sum((0, 2))
    return total_H / counted_BxT.sum()
