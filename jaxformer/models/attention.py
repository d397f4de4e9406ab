"""Token mixing as pure functions, shared by the models and the theory.

Shape letters: see `jaxformer.models`; k counts the rotated pairs of a head, D/2.
"""

from typing import Any

import jax
import jax.numpy as jnp

from jaxformer.core.errors import UserError, unknown
from jaxformer.models.half_precision import product

# Names of the standard deviations of MixiT's random matrix; see `mixing_std`.
MIXING_SCALES = ("theory", "head", "spread", "token")


def causal_mask(length: int) -> jax.Array:
    """Returns (T, T) booleans, true where token t may read key s, s <= t."""
    return jnp.tril(jnp.ones((length, length), bool))


def rotary(
    x_BxTxHxD: jax.Array,
    base: float = 10_000.0,
    start: jax.Array | int = 0,
    width: int | None = None,
) -> jax.Array:
    """Applies rotary positions: the pair (x_k, x_{k+D/2}) rotates by t * base^(-2k/D).

    Args:
      x_BxTxHxD: queries or keys.
      base: the base of the angles' frequencies.
      start: the position t of the first token.
      width: the number of leading dimensions of a head that rotate; by default all D.

    Returns:
      The rotated queries or keys, of the same shape.
    """
    length = x_BxTxHxD.shape[-3]
    width = width or x_BxTxHxD.shape[-1]
    if width % 2:
        raise UserError(f"rotary positions need an even head dimension, got {width}.")
    rates_k = base ** (-jnp.arange(0, width, 2) / width)
    return rotate(x_BxTxHxD, (start + jnp.arange(length))[:, None] * rates_k[None, :])


def rotate(x_BxTxHxD: jax.Array, angles_Txk: jax.Array, scale: float = 1.0) -> jax.Array:
    """Rotates the pairs (x_k, x_{k+D/2}) of token t by angles_tk.

    Args:
      x_BxTxHxD: queries or keys.
      angles_Txk: (T, D/2), or (B, T, D/2) with other positions in each example. Fewer than D/2
        angles rotate the first dimensions of a head and leave the rest.
      scale: multiplies cos and sin.
    """
    rotated = 2 * angles_Txk.shape[-1]
    if rotated < x_BxTxHxD.shape[-1]:
        first, rest = x_BxTxHxD[..., :rotated], x_BxTxHxD[..., rotated:]
        return jnp.concatenate([rotate(first, angles_Txk, scale), rest], axis=-1)
    cos_Tx1xk = jnp.cos(angles_Txk)[..., :, None, :]
    sin_Tx1xk = jnp.sin(angles_Txk)[..., :, None, :]
    if scale != 1:
        cos_Tx1xk, sin_Tx1xk = cos_Tx1xk * scale, sin_Tx1xk * scale
    batch_axes = tuple(range(x_BxTxHxD.ndim - cos_Tx1xk.ndim))
    cos = jnp.expand_dims(cos_Tx1xk.astype(x_BxTxHxD.dtype), batch_axes)
    sin = jnp.expand_dims(sin_Tx1xk.astype(x_BxTxHxD.dtype), batch_axes)
    first, second = jnp.split(x_BxTxHxD, 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def attention_scores(
    q_BxTxHxD: jax.Array, k_BxSxHxD: jax.Array, accumulate: Any = None, scale: float | None = None
) -> jax.Array:
    """Returns a_ts = scale q_t . k_s, (B, H, T, S).

    Args:
      q_BxTxHxD: the queries.
      k_BxSxHxD: the keys.
      accumulate: the dtype of the scores; by default that of the queries, but at least float32.
      scale: by default 1/sqrt(D).
    """
    factor = q_BxTxHxD.shape[-1] ** -0.5 if scale is None else scale
    accumulate = accumulate or jnp.promote_types(q_BxTxHxD.dtype, jnp.float32)
    return factor * jnp.einsum(
        "...thd,...shd->...hts", q_BxTxHxD, k_BxSxHxD, preferred_element_type=accumulate
    )


def apply_mask(scores_BxHxTxS: jax.Array, mask_TxS: jax.Array | None = None) -> jax.Array:
    """Returns the scores with -inf where the mask is false."""
    if mask_TxS is None:
        return scores_BxHxTxS
    mask = jnp.expand_dims(mask_TxS, tuple(range(scores_BxHxTxS.ndim - mask_TxS.ndim)))
    return jnp.where(mask, scores_BxHxTxS, -jnp.inf)


def attention_weights(
    scores_BxHxTxS: jax.Array,
    mask_TxS: jax.Array | None = None,
    sinks_H: jax.Array | None = None,
) -> jax.Array:
    """Returns A_ts, the softmax over the keys s where the mask is true.

    A sink is one more score of a head, without a key or a value. It takes a share of the softmax,
    so that the weights of a token sum to less than 1 and a head can attend to nothing.
    """
    scores_BxHxTxS = apply_mask(scores_BxHxTxS, mask_TxS)
    if sinks_H is None:
        return jax.nn.softmax(scores_BxHxTxS, axis=-1)
    sinks_Hx1x1 = sinks_H.astype(scores_BxHxTxS.dtype)[:, None, None]
    sinks_BxHxTx1 = jnp.broadcast_to(sinks_Hx1x1, (*scores_BxHxTxS.shape[:-1], 1))
    with_sinks = jnp.concatenate([scores_BxHxTxS, sinks_BxHxTx1], axis=-1)
    return jax.nn.softmax(with_sinks, axis=-1)[..., :-1]


def mix(weights_BxHxTxS: jax.Array, v_BxSxHxD: jax.Array) -> jax.Array:
    """Returns sum_s A_ts v_s of each head, (B, T, H, D); weights may lack the batch axis.

    The weights are rounded to the precision of v.
    """
    if weights_BxHxTxS.ndim == 3 and v_BxSxHxD.ndim == 4:
        if v_BxSxHxD.dtype.itemsize == 2:  # the gradient of fixed weights is a sum over the batch
            return product("bshd,hts->bthd", v_BxSxHxD, weights_BxHxTxS)
        return jnp.einsum("hts,bshd->bthd", weights_BxHxTxS.astype(v_BxSxHxD.dtype), v_BxSxHxD)
    weights_BxHxTxS = weights_BxHxTxS.astype(v_BxSxHxD.dtype)
    return jnp.einsum("...hts,...shd->...thd", weights_BxHxTxS, v_BxSxHxD)


def mixing_matrix(
    key: jax.Array,
    heads: int,
    length: int,
    std: float | jax.Array,
    causal: bool = True,
    identity: bool = True,
) -> jax.Array:
    """Draws MixiT's fixed mixing A = I + W - rowmean(W), W_ij ~ N(0, std^2).

    The output is out_t = sum_s A_ts v_s. The paper writes h (I + W - Wbar), the transpose, whose
    columns sum to 1. A causal W is lower triangular, and row t is centred by the mean of its t + 1
    visible entries. Row 0 is then (1, 0, .., 0), and a shorter sequence may use A[:, :T, :T].

    Args:
      key: the random key of W.
      heads: the number of heads H.
      length: the number of tokens T.
      std: the standard deviation of W, one number or one for each head.
      causal: whether W is lower triangular.
      identity: whether to add I. Rows sum to 1 with it and to 0 without it; then row 0 of a causal
        A is 0.

    Returns:
      (H, T, T).
    """
    w_HxTxT = jax.random.normal(key, (heads, length, length))
    w_HxTxT *= jnp.reshape(jnp.asarray(std, w_HxTxT.dtype), (-1, 1, 1))
    return centred_mixing(w_HxTxT, causal, identity)


def centred_mixing(w_HxTxT: jax.Array, causal: bool = True, identity: bool = True) -> jax.Array:
    """Returns I + W - rowmean(W), (H, T, T), with the mean over the visible entries of W.

    Args:
        w_HxTxT: the random weights of each head.
        causal: whether only entries s <= t are visible; the others are zero.
        identity: whether I is added.
    """
    length = w_HxTxT.shape[-1]
    visible_TxT = causal_mask(length) if causal else jnp.ones((length, length), bool)
    w_HxTxT = jnp.where(visible_TxT[None], w_HxTxT, 0)
    mean_HxTx1 = w_HxTxT.sum(-1, keepdims=True) / visible_TxT.sum(-1)[None, :, None]
    centred_HxTxT = jnp.where(visible_TxT[None], w_HxTxT - mean_HxTx1, 0)
    return jnp.eye(length, dtype=w_HxTxT.dtype)[None] + centred_HxTxT if identity else centred_HxTxT


def mixing_without_padding(
    mix_HxTxT: jax.Array, real_BxT: jax.Array, totals_HxTx1: jax.Array
) -> jax.Array:
    """Returns A with zeros at padding, (B, H, T, T), each row centred again.

    Args:
      mix_HxTxT: the matrix A of `mixing_matrix`.
      real_BxT: booleans, false at padding.
      totals_HxTx1: the sum of each row.
    """
    real = real_BxT[:, None, None, :].astype(mix_HxTxT.dtype)
    mix_BxHxTxT = mix_HxTxT[None] * real
    excess_BxHxTx1 = mix_BxHxTxT.sum(-1, keepdims=True) - totals_HxTx1[None]
    return mix_BxHxTxT - excess_BxHxTx1 / real.sum(-1, keepdims=True) * real


def mixing_std(
    key: jax.Array, scale: str | float, heads: int, length: int, width: int
) -> jax.Array:
    """Returns the standard deviation of W for each head, (H,).

    Args:
      key: the random key, used by "spread" only.
      scale: a number, or one of these, with width N, length T and head width D = N/H:
        "theory": 1/sqrt(N T). The covariance SDE has the variance 1/(N T), misprinted in the
          paper as 1/sqrt(N T).
        "head": 1/sqrt(D T).
        "spread": a draw for each head from U[1/sqrt(D T), 1/sqrt(T)], as in the authors' code.
        "token": 1/sqrt(T), as in the authors' code if it scales branches by the depth.
      heads, length, width: H, T and N.
    """
    low, high = (width // heads * length) ** -0.5, length**-0.5
    if scale == "spread":
        return jax.random.uniform(key, (heads,), minval=low, maxval=high)
    if isinstance(scale, str):
        deviations = {"theory": (width * length) ** -0.5, "head": low, "token": high}
        if scale not in deviations:
            raise unknown("mixing scale", scale, (*MIXING_SCALES, "a number"))
        return jnp.full((heads,), deviations[scale])
    if not scale >= 0:
        raise UserError(f"the mixing scale must be at least 0, got {scale}.")
    return jnp.full((heads,), scale)


def sink_mixing(length: int) -> jax.Array:
    """Returns the mixing matrix of head 0 in the MixiT authors' code, (T, T).

    It adds half of each token to half of token 0. Entry (0, 0) is 0.5, so row 0 sums to one half
    and the others to 1.
    """
    return (0.5 * jnp.eye(length)).at[:, 0].set(0.5)
