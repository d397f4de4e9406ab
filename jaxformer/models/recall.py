"""The two-layer model of noisy in-context recall: no norms, no biases, one head, fixed embeddings.

    x_t = E[z_t] + p_t
    x_t <- x_t + sum_{s<=t} a_ts Wo Wv x_s,   a = softmax_s(x_t^T Wk x_s / sqrt(d))      (W_Q = 1)
    x_t <- x_t + F(x_t),                      F = W2 relu(W1 x), W1 x, relu(W1 x) or nothing
    logits_t = U x_t

Like the paper's, except that W_V is the product Wo Wv and the scores are divided by sqrt(d), as in
the authors' code (`factored_values`, `scale_scores`). Nothing is frozen here: E, p and U are
parameters that the partition `(embed|unembed|positions)/.* frozen` holds fixed.

Paths: embed/embedding, positions/embedding, block_i/attn/{query,key,value,out}/kernel (query if
`factored_keys`, out if `factored_values`), block_i/mlp/{in,out}/kernel (out for "mlp" only),
unembed/kernel. Activations: those of `points`; queries are q^T Wk (x^T Wk), keys x.
"""

from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxformer.core.errors import UserError, check_range, unknown
from jaxformer.models import attention
from jaxformer.models.activation_points import point
from jaxformer.models.layers import flat, normal
from jaxformer.models.model import LARGEST_SCALE, check_sizes, take_positions

FEED_FORWARD = ("mlp", "linear", "linear_relu", "none")
POSITIONS = ("random", "sin_cos", "rotary", "none")


@dataclass(frozen=True)
class RecallSpec:
    """Every number of a recall model."""

    vocab_size: int
    length: int  # T, the longest sequence
    width: int  # d
    feed_forward: tuple[str, ...] = ("mlp", "mlp")  # one F a layer: as many layers
    mlp_multiplier: int = 4
    factored_values: bool = True  # W_V = Wo Wv, else one matrix
    factored_keys: bool = False  # W_QK = Wq^T Wk, else W_Q = 1
    scale_scores: bool = True  # divide by sqrt(d)
    positions: str = "random"
    embed_std: float = 1.0  # 1/sqrt(d) is the authors' `sqrtd_embeddings`
    tie_output: bool = False  # U = E/sqrt(d), and the logits over sqrt(d) again
    parallel: bool = False  # F reads x instead of x + attention
    causal: bool = True  # s <= t
    dtype: Any = float
    param_dtype: Any = float

    def __post_init__(self):
        if not self.feed_forward:
            raise UserError("feed_forward must name one F a layer, got none.")
        for name in self.feed_forward:
            if name not in FEED_FORWARD:
                raise unknown("feed-forward layer", name, FEED_FORWARD)
        if self.positions not in POSITIONS:
            raise unknown("positions", self.positions, POSITIONS)
        check_sizes(self, "vocab_size", "length", "width", "mlp_multiplier")
        check_range("embed_std", self.embed_std, 0, LARGEST_SCALE)
        if self.positions in ("rotary", "sin_cos") and self.width % 2:
            raise UserError(f"{self.positions} positions need an even width, got {self.width}.")


class Recall(nn.Module):
    """Logits at every position, or at the scored `positions_BxK` only.

    With positions, the last layer works on those K rows: the same numbers for a fraction of the
    last layer, of F and of the unembedding.
    """

    spec: RecallSpec

    @nn.compact
    def __call__(self, tokens_BxT: jax.Array, positions_BxK: jax.Array | None = None) -> jax.Array:
        spec = self.spec
        length, d = tokens_BxT.shape[1], spec.width
        if length > spec.length:
            raise UserError(f"a sequence of {length} tokens exceeds the length {spec.length}.")
        types = {"dtype": spec.dtype, "param_dtype": spec.param_dtype}
        init = normal(spec.embed_std)
        embed = nn.Embed(spec.vocab_size, d, embedding_init=init, **types, name="embed")
        x_BxTxD = point(self, "token_embeddings", embed(tokens_BxT))
        if spec.positions == "random":
            init = normal(1.0)  # of p_t
            positions = nn.Embed(spec.length, d, embedding_init=init, **types, name="positions")
            p_1xTxD = positions(jnp.arange(length))[None]
            x_BxTxD = x_BxTxD + point(self, "position_embeddings", p_1xTxD)
        elif spec.positions == "sin_cos":
            p_1xTxD = sin_cos(length, d).astype(x_BxTxD.dtype)[None]
            x_BxTxD = x_BxTxD + point(self, "position_embeddings", p_1xTxD)
        x_BxTxD = point(self, "embedded", x_BxTxD)
        last = len(spec.feed_forward) - 1
        for i, feed_forward in enumerate(spec.feed_forward):
            rows = positions_BxK if i == last else None
            x_BxTxD = Block(spec, feed_forward, name=f"block_{i}")(x_BxTxD, rows)
        x_BxTxD = point(self, "final", x_BxTxD)
        if spec.tie_output:
            return point(self, "logits", embed.attend(x_BxTxD) / d)
        kernel_DxV = Kernel(d, spec.vocab_size, spec.param_dtype, name="unembed")()
        return point(self, "logits", flat(x_BxTxD, kernel_DxV.astype(x_BxTxD.dtype)))


class Block(nn.Module):
    """x <- x + A(x); x <- x + F(x)."""

    spec: RecallSpec
    feed_forward: str

    @nn.compact
    def __call__(self, x_BxTxD: jax.Array, positions_BxK: jax.Array | None = None) -> jax.Array:
        x_BxTxD = point(self, "before", x_BxTxD)
        read = take_positions(x_BxTxD, positions_BxK)
        out = read + Attention(self.spec, name="attn")(x_BxTxD, positions_BxK)
        out = point(self, "between", out)
        if self.feed_forward == "none":
            return point(self, "states", out)
        feed_forward = FeedForward(self.spec, self.feed_forward, name="mlp")
        return point(self, "states", out + feed_forward(read if self.spec.parallel else out))


class Attention(nn.Module):
    """sum_s a_ts Wo Wv x_s for the queries at `positions_BxK`, or for all."""

    spec: RecallSpec

    @nn.compact
    def __call__(self, x_BxTxD: jax.Array, positions_BxK: jax.Array | None) -> jax.Array:
        spec, length = self.spec, x_BxTxD.shape[1]

        def kernel(name):
            matrix = Kernel(spec.width, spec.width, spec.param_dtype, name=name)()
            return matrix.astype(x_BxTxD.dtype)

        key_DxD = kernel("key")
        query_DxD = kernel("query") if spec.factored_keys else None
        if spec.positions == "rotary":
            q_BxTxD = x_BxTxD if query_DxD is None else flat(x_BxTxD, query_DxD)
            q_BxTxD, k_BxTxD = turn(q_BxTxD), turn(flat(x_BxTxD, key_DxD))
            q_BxKxD = take_positions(q_BxTxD, positions_BxK)
        else:
            # q^T Wk first: the keys of all T sources are never formed for a few queries.
            q_BxKxD, k_BxTxD = take_positions(x_BxTxD, positions_BxK), x_BxTxD
            if query_DxD is not None:
                q_BxKxD = flat(q_BxKxD, query_DxD)
            q_BxKxD = q_BxKxD @ key_DxD.T
        q_BxKxD, k_BxTxD = point(self, "queries", q_BxKxD), point(self, "keys", k_BxTxD)
        scores_BxKxT = jnp.einsum("bkd,btd->bkt", q_BxKxD, k_BxTxD)
        if spec.scale_scores:
            scores_BxKxT = scores_BxKxT * spec.width**-0.5
        mask = attention.causal_mask(length) if spec.causal else None
        if mask is not None and positions_BxK is not None:
            mask = mask[positions_BxK]
        scores_BxKxT = attention.masked(point(self, "scores", scores_BxKxT), mask)
        weights_BxKxT = attention.attention_weights(point(self, "masked_scores", scores_BxKxT))
        weights_BxKxT = point(self, "weights", weights_BxKxT, plotted=True)
        values_DxD = kernel("value")
        if spec.factored_values:  # their product first: one matrix for the many rows of x
            values_DxD = values_DxD @ kernel("out")
        mixed_BxKxD = point(self, "mixed", jnp.einsum("bkt,btd->bkd", weights_BxKxT, x_BxTxD))
        return point(self, "output", flat(mixed_BxKxD, values_DxD))


class FeedForward(nn.Module):
    """W2 relu(W1 x), W1 x or relu(W1 x)."""

    spec: RecallSpec
    kind: str

    @nn.compact
    def __call__(self, x_BxTxD: jax.Array) -> jax.Array:
        spec, d = self.spec, self.spec.width
        wide = d * spec.mlp_multiplier if self.kind == "mlp" else d
        in_DxM = Kernel(d, wide, spec.param_dtype, name="in")().astype(x_BxTxD.dtype)
        y_BxTxM = point(self, "preactivation", flat(x_BxTxD, in_DxM))
        if self.kind == "linear":
            return point(self, "output", y_BxTxM)
        if self.kind == "linear_relu":
            return point(self, "output", jax.nn.relu(y_BxTxM))
        out_MxD = Kernel(wide, d, spec.param_dtype, name="out")().astype(x_BxTxD.dtype)
        return point(self, "output", flat(point(self, "hidden", jax.nn.relu(y_BxTxM)), out_MxD))


class Kernel(nn.Module):
    """A matrix (inputs, outputs), uniform in +-1/sqrt(inputs): PyTorch's default, no bias."""

    inputs: int
    outputs: int
    param_dtype: Any

    @nn.compact
    def __call__(self) -> jax.Array:
        uniform = nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")
        return self.param("kernel", uniform, (self.inputs, self.outputs), self.param_dtype)


def recall(**numbers) -> Recall:
    """The recall model with the numbers of a `RecallSpec`."""
    return Recall(RecallSpec(**numbers))


def turn(x_BxTxD: jax.Array) -> jax.Array:
    """Rotary positions of a single head."""
    return attention.rotary(x_BxTxD[:, :, None])[:, :, 0]


def sin_cos(length: int, width: int, base: float = 10_000.0) -> jax.Array:
    """p_t = (sin, cos) of t base^(-2k/d), interleaved, (T, d)."""
    rates_k = base ** (-jnp.arange(0, width, 2) / width)
    angles_Txk = jnp.arange(length)[:, None] * rates_k[None, :]
    return jnp.stack([jnp.sin(angles_Txk), jnp.cos(angles_Txk)], -1).reshape(length, width)
