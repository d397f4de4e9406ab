"""The mathematics of token mixing as pure functions: modules and theory share these lines.

Shape letters: B batch, T (or S) tokens, H heads, K width of a head, N width of the model.
"""

import jax
import jax.numpy as jnp

from jaxformer.core.errors import UserError, unknown

MIXING_SCALES = ("theory", "head", "spread", "token")


def causal_mask(length: int) -> jax.Array:
    """(T, T) booleans: token t sees the sources s <= t."""
    return jnp.tril(jnp.ones((length, length), bool))


def rotary(x_BxTxHxK: jax.Array, base: float = 10_000.0, start: jax.Array | int = 0) -> jax.Array:
    """Rotary positions, rotate-half layout: the pair (x_k, x_{k+K/2}) turns by t * base^(-2k/K).

    `start` is the position t of the first token.
    """
    length, width = x_BxTxHxK.shape[-3], x_BxTxHxK.shape[-1]
    if width % 2:
        raise UserError(f"rotary positions need an even head dimension, got {width}.")
    rates_k = base ** (-jnp.arange(0, width, 2) / width)
    return turned(x_BxTxHxK, (start + jnp.arange(length))[:, None] * rates_k[None, :])


def turned(x_BxTxHxK: jax.Array, angles_Txk: jax.Array, scale: float = 1.0) -> jax.Array:
    """The pairs (x_k, x_{k+K/2}) of token t turned by angles_tk, (T, K/2) or (B, T, K/2)."""
    cos_Tx1xk = jnp.cos(angles_Txk)[..., :, None, :]
    sin_Tx1xk = jnp.sin(angles_Txk)[..., :, None, :]
    if scale != 1:
        cos_Tx1xk, sin_Tx1xk = cos_Tx1xk * scale, sin_Tx1xk * scale
    batch_axes = tuple(range(x_BxTxHxK.ndim - cos_Tx1xk.ndim))
    cos = jnp.expand_dims(cos_Tx1xk.astype(x_BxTxHxK.dtype), batch_axes)
    sin = jnp.expand_dims(sin_Tx1xk.astype(x_BxTxHxK.dtype), batch_axes)
    first, second = jnp.split(x_BxTxHxK, 2, axis=-1)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def attention_scores(q_BxTxHxK: jax.Array, k_BxSxHxK: jax.Array, accumulate=None) -> jax.Array:
    """a_ts = q_t . k_s / sqrt(K), in the dtype `accumulate` (default: that of q)."""
    scale = q_BxTxHxK.shape[-1] ** -0.5
    return scale * jnp.einsum(
        "...thk,...shk->...hts", q_BxTxHxK, k_BxSxHxK, preferred_element_type=accumulate
    )


def masked(scores_BxHxTxS: jax.Array, mask_TxS: jax.Array | None = None) -> jax.Array:
    """The scores, -inf where the mask lets nothing through."""
    if mask_TxS is None:
        return scores_BxHxTxS
    mask = jnp.expand_dims(mask_TxS, tuple(range(scores_BxHxTxS.ndim - mask_TxS.ndim)))
    return jnp.where(mask, scores_BxHxTxS, -jnp.inf)


def attention_weights(scores_BxHxTxS: jax.Array, mask_TxS: jax.Array | None = None) -> jax.Array:
    """A_ts = softmax over the sources s that the mask lets through."""
    return jax.nn.softmax(masked(scores_BxHxTxS, mask_TxS), axis=-1)


def mix(weights_BxHxTxS: jax.Array, v_BxSxHxK: jax.Array) -> jax.Array:
    """out_t = sum_s A_ts v_s, per head; the weights may be one for all of the batch (HxTxS)."""
    if weights_BxHxTxS.ndim == 3 and v_BxSxHxK.ndim == 4:
        return jnp.einsum("hts,bshk->bthk", weights_BxHxTxS, v_BxSxHxK)
    return jnp.einsum("...hts,...shk->...thk", weights_BxHxTxS, v_BxSxHxK)


def fused(
    q_BxTxHxK: jax.Array,
    k_BxSxHxK: jax.Array,
    v_BxSxHxK: jax.Array,
    mask_BxHxTxS: jax.Array | None = None,
    causal: bool = False,
) -> jax.Array:
    """softmax(q k^T / sqrt(K)) v, of which the backward pass keeps no weights.

    On an NVIDIA GPU in half precision it is cuDNN's kernel, which never has them in memory.
    Elsewhere they are computed again, which costs a product and saves B H T S numbers a layer.
    """
    width, size = q_BxTxHxK.shape[-1], q_BxTxHxK.dtype.itemsize
    if jax.default_backend() == "gpu" and size == 2 and width % 8 == 0 and width <= 128:
        return jax.nn.dot_product_attention(
            *(q_BxTxHxK, k_BxSxHxK, v_BxSxHxK),
            mask=mask_BxHxTxS,
            is_causal=causal,
            implementation="cudnn",
        )

    @jax.checkpoint
    def attend(q, k, v):
        return jax.nn.dot_product_attention(q, k, v, mask=mask_BxHxTxS, is_causal=causal)

    return attend(q_BxTxHxK, k_BxSxHxK, v_BxSxHxK)


def mixing_matrix(
    key: jax.Array,
    heads: int,
    length: int,
    std: float | jax.Array,
    causal: bool = True,
    identity: bool = True,
) -> jax.Array:
    """MixiT's fixed mixing A = I + W - rowmean(W), W_ij ~ N(0, std^2), (H, T, T); rows sum to 1.

    out_t = sum_s A_ts v_s. In the paper's orientation h (I + W - Wbar) this is the transpose, whose
    columns sum to 1. Causal: W is lower triangular and row t is centred by the mean over its t + 1
    visible entries, so row 0 is (1, 0, .., 0) and a shorter sequence may take A[:, :T, :T].
    `std` is a number, or one number a head. Without the identity rows sum to 0, and row 0 is 0.
    """
    w_HxTxT = jax.random.normal(key, (heads, length, length))
    w_HxTxT *= jnp.reshape(jnp.asarray(std, w_HxTxT.dtype), (-1, 1, 1))
    return centred(w_HxTxT, causal, identity)


def centred(w_HxTxT: jax.Array, causal: bool = True, identity: bool = True) -> jax.Array:
    """I + W - rowmean(W) of the visible entries of W."""
    length = w_HxTxT.shape[-1]
    visible_TxT = causal_mask(length) if causal else jnp.ones((length, length), bool)
    w_HxTxT = jnp.where(visible_TxT[None], w_HxTxT, 0)
    mean_HxTx1 = w_HxTxT.sum(-1, keepdims=True) / visible_TxT.sum(-1)[None, :, None]
    centred_HxTxT = jnp.where(visible_TxT[None], w_HxTxT - mean_HxTx1, 0)
    return jnp.eye(length, dtype=w_HxTxT.dtype)[None] + centred_HxTxT if identity else centred_HxTxT


def mixing_of_seen(mix_HxTxT: jax.Array, seen_BxT: jax.Array, total: float = 1) -> jax.Array:
    """(B, H, T, T): A of the tokens that are seen, each row centred again so that it sums to total.

    The total is 1 with the identity, and 0 without it.
    """
    seen = seen_BxT[:, None, None, :].astype(mix_HxTxT.dtype)
    mix_BxHxTxT = mix_HxTxT[None] * seen
    excess_BxHxTx1 = mix_BxHxTxT.sum(-1, keepdims=True) - total
    return mix_BxHxTxT - excess_BxHxTx1 / seen.sum(-1, keepdims=True) * seen


def mixing_std(
    key: jax.Array, scale: str | float, heads: int, length: int, width: int
) -> jax.Array:
    """The standard deviation of W, one a head.

    "theory": 1/sqrt(n m): the variance 1/(n m) of the covariance SDE (misprinted as 1/sqrt(n m)).
    "head":   1/sqrt(n_h m), with the width n_h = n/H of a head.
    "spread": one draw a head from U[1/sqrt(n_h m), 1/sqrt(m)], as the authors' code does.
    "token":  1/sqrt(m), as their code does where branches are scaled by the depth.
    """
    low, high = (width // heads * length) ** -0.5, length**-0.5
    if scale == "theory":
        return jnp.full((heads,), (width * length) ** -0.5)
    if scale == "head":
        return jnp.full((heads,), low)
    if scale == "spread":
        return jax.random.uniform(key, (heads,), minval=low, maxval=high)
    if scale == "token":
        return jnp.full((heads,), high)
    if isinstance(scale, str):
        raise unknown("mixing scale", scale, (*MIXING_SCALES, "a number"))
    if not scale >= 0:
        raise UserError(f"the mixing scale must be at least 0, got {scale}.")
    return jnp.full((heads,), scale)


def sink(length: int) -> jax.Array:
    """The authors' head 0: half on the token itself, half on token 0.

    As in their code 0.5 stands at (0, 0), so that row 0 sums to one half and the others to 1.
    """
    return (0.5 * jnp.eye(length)).at[:, 0].set(0.5)
