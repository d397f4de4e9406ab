"""The two-layer model of noisy in-context recall: no norms, no biases, one head, fixed embeddings.

    x_t = E[z_t] + p_t
    x_t <- x_t + sum_{s<=t} a_ts Wo Wv x_s,   a = softmax_s(x_t^T Wk x_s / sqrt(d))      (W_Q = 1)
    x_t <- x_t + F(x_t),                      F = W2 relu(W1 x), W1 x, relu(W1 x) or 0
    logits_t = U x_t

Two points follow the authors' code instead of the paper: W_V is the product Wo Wv, and the scores
are divided by sqrt(d) (`factored_values`, `scale_scores`). The width is d in formulas and N in
suffixes of arrays. E, p and U are parameters; the partition `(embed|unembed|positions)/.* frozen`
keeps them fixed. The paths of all parameters are

    embed/embedding, positions/embedding, unembed/kernel
    block_i/attn/{key,value}/kernel
    block_i/attn/query/kernel        if `factored_keys`
    block_i/attn/out/kernel          if `factored_values`
    block_i/mlp/in/kernel            if F is not 0
    block_i/mlp/out/kernel           if F = W2 relu(W1 x)

`activation_points` lists the activations. Wk is applied to the queries, so that "queries" is q^T Wk
(q = Wq x, or x) and "keys" is x. With rotary positions they are the rotated q and the rotated Wk x.
"""

from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxformer.core.errors import UserError, check_range, unknown
from jaxformer.models import attention
from jaxformer.models.activation_points import tap
from jaxformer.models.half_precision import add_to_all, matrix_product, product
from jaxformer.models.layers import embedding
from jaxformer.models.model import MAX_SCALE, check_sizes, make_spec, take_positions
from jaxformer.models.source import Loadable

FEED_FORWARD = ("mlp", "linear", "linear_relu", "none")
POSITIONS = ("random", "sin_cos", "rotary", "none")


@dataclass(frozen=True)
class RecallSpec:
    """The hyperparameters of a recall model."""

    vocab_size: int  # V, the number of tokens
    length: int  # T, the longest sequence
    width: int  # d, the width of the residual stream
    # F of each of the L layers: mlp | linear | linear_relu | none
    feed_forward: tuple[str, ...] = ("mlp", "mlp")
    mlp_multiplier: int = 4  # hidden units of an MLP, divided by d
    factored_values: bool = True  # W_V = Wo Wv, else a single matrix
    factored_keys: bool = False  # W_QK = Wq^T Wk, else W_Q = 1
    scale_scores: bool = True  # divide scores by sqrt(d)
    positions: str = "random"  # p_t: random | sin_cos | rotary (turns queries and keys) | none
    embed_std: float = 1.0  # std of E's entries; 1/sqrt(d) is the authors' `sqrtd_embeddings`
    tie_output: bool = False  # logits E x / d, in place of U x
    parallel: bool = False  # F reads x instead of x + attention
    causal: bool = True  # a token attends to itself and earlier tokens only, s <= t
    dtype: Any = float  # of the computation; float is float32, or float64 under x64
    param_dtype: Any = float  # of the stored parameters

    def __post_init__(self):
        if not self.feed_forward or isinstance(self.feed_forward, str):
            raise UserError(
                f"feed_forward must name an F for each layer, such as ('mlp', 'none'), got "
                f"{self.feed_forward!r}."
            )
        for name in self.feed_forward:
            if name not in FEED_FORWARD:
                raise unknown("feed-forward layer", name, FEED_FORWARD)
        if self.positions not in POSITIONS:
            raise unknown("positions", self.positions, POSITIONS)
        check_sizes(self, "vocab_size", "length", "width", "mlp_multiplier")
        check_range("embed_std", self.embed_std, 0, MAX_SCALE)
        if self.positions in ("rotary", "sin_cos") and self.width % 2:
            raise UserError(f"{self.positions} positions need an even width, got {self.width}.")


class Recall(Loadable):
    """The network: tokens (B, T) to logits (B, T, V), or (B, K, V) at `positions_BxK` only.

    With positions the last layer and the unembedding compute only these K rows. The logits are the
    same.
    """

    spec: RecallSpec

    @nn.compact
    def __call__(self, tokens_BxT: jax.Array, positions_BxK: jax.Array | None = None) -> jax.Array:
        spec = self.spec
        length, d = tokens_BxT.shape[1], spec.width
        if length > spec.length:
            raise UserError(f"the model takes at most {spec.length} tokens, got {length}.")
        types = {"dtype": spec.dtype, "param_dtype": spec.param_dtype}
        embed = embedding(spec.vocab_size, d, "embed", spec.embed_std, **types)
        x_BxTxN = tap(self, "token_embeddings", embed(tokens_BxT))
        if spec.positions == "random":
            unrounded = types | {"dtype": spec.param_dtype}
            positions = embedding(spec.length, d, "positions", 1.0, **unrounded)
            p_1xTxN = positions(jnp.arange(length))[None]
            x_BxTxN = add_to_all(x_BxTxN, tap(self, "position_embeddings", p_1xTxN))
        elif spec.positions == "sin_cos":
            p_1xTxN = sin_cos(length, d).astype(x_BxTxN.dtype)[None]
            x_BxTxN = x_BxTxN + tap(self, "position_embeddings", p_1xTxN)
        x_BxTxN = tap(self, "embedded", x_BxTxN)
        last = len(spec.feed_forward) - 1
        for i, feed_forward in enumerate(spec.feed_forward):
            # The layers below the last one are needed at all positions.
            computed_BxK = positions_BxK if i == last else None
            x_BxTxN = Block(spec, feed_forward, name=f"block_{i}")(x_BxTxN, computed_BxK)
        x_BxTxN = tap(self, "final", x_BxTxN)
        if spec.tie_output:
            return tap(self, "logits", embed.attend(x_BxTxN) / d)
        kernel_NxV = Kernel(d, spec.vocab_size, spec.param_dtype, name="unembed")()
        return tap(self, "logits", matrix_product(x_BxTxN, kernel_NxV))


class Block(nn.Module):
    """A layer: x <- x + A(x), then x <- x + F(x)."""

    spec: RecallSpec
    feed_forward: str

    @nn.compact
    def __call__(self, x_BxTxN: jax.Array, positions_BxK: jax.Array | None = None) -> jax.Array:
        x_BxTxN = tap(self, "before", x_BxTxN)
        x_BxKxN = take_positions(x_BxTxN, positions_BxK)
        out_BxKxN = x_BxKxN + Attention(self.spec, name="attn")(x_BxTxN, positions_BxK)
        out_BxKxN = tap(self, "between", out_BxKxN)
        if self.feed_forward == "none":
            return tap(self, "states", out_BxKxN)
        inputs_BxKxN = x_BxKxN if self.spec.parallel else out_BxKxN
        changes_BxKxN = FeedForward(self.spec, self.feed_forward, name="mlp")(inputs_BxKxN)
        return tap(self, "states", out_BxKxN + changes_BxKxN)


class Attention(nn.Module):
    """sum_s a_ts Wo Wv x_s, at all positions or at `positions_BxK` only."""

    spec: RecallSpec

    @nn.compact
    def __call__(self, x_BxTxN: jax.Array, positions_BxK: jax.Array | None) -> jax.Array:
        spec, length = self.spec, x_BxTxN.shape[1]

        def kernel(name):
            return Kernel(spec.width, spec.width, spec.param_dtype, name=name)()

        key_NxN = kernel("key")
        query_NxN = kernel("query") if spec.factored_keys else None
        if spec.positions == "rotary":
            q_BxTxN = x_BxTxN if query_NxN is None else matrix_product(x_BxTxN, query_NxN)
            q_BxTxN, k_BxTxN = rotate_head(q_BxTxN), rotate_head(matrix_product(x_BxTxN, key_NxN))
            q_BxKxN = take_positions(q_BxTxN, positions_BxK)
        else:
            # Wk is applied to the queries, because the keys of all T tokens cost more.
            q_BxKxN, k_BxTxN = take_positions(x_BxTxN, positions_BxK), x_BxTxN
            if query_NxN is not None:
                q_BxKxN = matrix_product(q_BxKxN, query_NxN)
            q_BxKxN = product("bkn,mn->bkm", q_BxKxN, key_NxN)
        q_BxKxN, k_BxTxN = tap(self, "queries", q_BxKxN), tap(self, "keys", k_BxTxN)
        dtype = jnp.promote_types(x_BxTxN.dtype, jnp.float32)
        scores_BxKxT = jnp.einsum("bkd,btd->bkt", q_BxKxN, k_BxTxN, preferred_element_type=dtype)
        if spec.scale_scores:
            scores_BxKxT = scores_BxKxT * spec.width**-0.5
        mask = attention.causal_mask(length) if spec.causal else None
        if mask is not None and positions_BxK is not None:
            mask = mask[positions_BxK]
        scores_BxKxT = attention.apply_mask(tap(self, "scores", scores_BxKxT), mask)
        weights_BxKxT = attention.attention_weights(tap(self, "masked_scores", scores_BxKxT))
        weights_BxKxT = tap(self, "weights", weights_BxKxT, plotted=True)
        values_NxN = kernel("value")
        if spec.factored_values:  # multiply the matrices first: x has more rows
            values_NxN = values_NxN @ kernel("out")
        weights_BxKxT = weights_BxKxT.astype(x_BxTxN.dtype)
        mixed_BxKxN = tap(self, "mixed", jnp.einsum("bkt,btd->bkd", weights_BxKxT, x_BxTxN))
        return tap(self, "output", matrix_product(mixed_BxKxN, values_NxN))


class FeedForward(nn.Module):
    """W2 relu(W1 x), W1 x or relu(W1 x)."""

    spec: RecallSpec
    kind: str

    @nn.compact
    def __call__(self, x_BxTxN: jax.Array) -> jax.Array:
        spec, d = self.spec, self.spec.width
        n_hidden = d * spec.mlp_multiplier if self.kind == "mlp" else d
        in_NxM = Kernel(d, n_hidden, spec.param_dtype, name="in")()
        y_BxTxM = tap(self, "preactivation", matrix_product(x_BxTxN, in_NxM))
        if self.kind == "linear":
            return tap(self, "output", y_BxTxM)
        if self.kind == "linear_relu":
            return tap(self, "output", jax.nn.relu(y_BxTxM))
        out_MxN = Kernel(n_hidden, d, spec.param_dtype, name="out")()
        hidden_BxTxM = tap(self, "hidden", jax.nn.relu(y_BxTxM))
        return tap(self, "output", matrix_product(hidden_BxTxM, out_MxN))


class Kernel(nn.Module):
    """A matrix (inputs, outputs), uniform in +-1/sqrt(inputs) as is PyTorch's default."""

    inputs: int
    outputs: int
    param_dtype: Any

    @nn.compact
    def __call__(self) -> jax.Array:
        uniform = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")
        return self.param("kernel", uniform, (self.inputs, self.outputs), self.param_dtype)


def recall(**numbers) -> Recall:
    """Returns the recall model with the fields of a `RecallSpec`."""
    return Recall(make_spec(RecallSpec, numbers))


def rotate_head(x_BxTxN: jax.Array) -> jax.Array:
    """Applies rotary positions to a single head of width N."""
    return attention.rotary(x_BxTxN[:, :, None])[:, :, 0]


def sin_cos(length: int, width: int, base: float = 10_000.0) -> jax.Array:
    """Returns p_t, the interleaved (sin, cos) of t base^(-2k/N), (T, N).

    Args:
        length: T.
        width: N, an even number.
        base: the ratio of the longest to the shortest wavelength.
    """
    rates_k = base ** (-jnp.arange(0, width, 2) / width)
    angles_Txk = jnp.arange(length)[:, None] * rates_k[None, :]
    return jnp.stack([jnp.sin(angles_Txk), jnp.cos(angles_Txk)], -1).reshape(length, width)
