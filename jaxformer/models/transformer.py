"""One block of a transformer as people build them: every choice a field, every deviation its own.

    pre-norm     X <- a X + SA(N(X)),   X <- m X + MLP(N(X));   parallel: both read the first N(X)
    post-norm    X <- N(a X + SA(X)),   X <- N(m X + MLP(X))

Like `encoder` and `decoder`, which are the networks of two papers, except that nothing is fixed:
this one is built by theory.signal to measure what it predicts. Vectors (B, T, N) go in and out.

Paths: attn/{query,key,value,out}, mlp/{gate,in,out}, norms without gains. Activations: those of
`points`, without block_i/.
"""

from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxformer.core.errors import UserError
from jaxformer.models import attention
from jaxformer.models.activation_points import point
from jaxformer.models.activations import activation
from jaxformer.models.layers import normal

NORMS = ("layer", "rms")


@dataclass(frozen=True)
class BlockSpec:
    """Every number of a block; std_* are the deviations of the entries of a matrix."""

    width: int
    heads: int
    kv_heads: int
    head_width: int
    mlp_width: int
    std_q: float
    std_k: float
    std_v: float
    std_o: float | None  # None: no projection after attention
    std_1: float
    std_2: float
    std_bias: float  # of both biases of the MLP
    score_scale: float
    alpha_sa: float
    alpha_mlp: float
    pre_norm: bool
    norm: str
    eps: float
    causal: bool
    parallel: bool
    gated: bool
    activation: str
    rotary: float  # the fraction of a head that turns
    rotary_base: float
    dtype: Any = float
    param_dtype: Any = float

    def dense(self, features: int, name: str, std: float, bias: bool = False) -> nn.Dense:
        inits = {"kernel_init": normal(std), "bias_init": normal(self.std_bias)}
        kinds = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        return nn.Dense(features, use_bias=bias and self.std_bias > 0, name=name, **inits, **kinds)


class Attention(nn.Module):
    """W_O concat_h(A_h v_h), queries in groups that share keys and values."""

    spec: BlockSpec

    @nn.compact
    def __call__(self, x_BxTxN: jax.Array) -> jax.Array:
        spec = self.spec

        def heads_of(name: str, plural: str, n_heads: int, std: float) -> jax.Array:
            flat = spec.dense(n_heads * spec.head_width, name, std)(x_BxTxN)
            return point(self, plural, flat.reshape(*flat.shape[:2], n_heads, spec.head_width))

        q_BxTxHxK = self._turned(heads_of("query", "queries", spec.heads, spec.std_q))
        k_BxTxHxK = self._turned(heads_of("key", "keys", spec.kv_heads, spec.std_k))
        q_BxTxHxK = point(self, "turned_queries", q_BxTxHxK)
        k_BxTxHxK = point(self, "turned_keys", k_BxTxHxK)
        v_BxTxHxK = heads_of("value", "values", spec.kv_heads, spec.std_v)
        group = spec.heads // spec.kv_heads
        k_BxTxHxK, v_BxTxHxK = (jnp.repeat(x, group, axis=2) for x in (k_BxTxHxK, v_BxTxHxK))
        # attention_scores divides by sqrt(K) already.
        factor = spec.score_scale * spec.head_width**0.5
        scores_BxHxTxT = factor * attention.attention_scores(q_BxTxHxK, k_BxTxHxK)
        mask = attention.causal_mask(x_BxTxN.shape[1]) if spec.causal else None
        scores_BxHxTxT = attention.masked(point(self, "scores", scores_BxHxTxT), mask)
        weights = attention.attention_weights(point(self, "masked_scores", scores_BxHxTxT))
        weights_BxHxTxT = point(self, "weights", weights, plotted=True)
        mixed_BxTxHxK = point(self, "heads", attention.mix(weights_BxHxTxT, v_BxTxHxK))
        mixed = mixed_BxTxHxK.reshape(*mixed_BxTxHxK.shape[:2], spec.heads * spec.head_width)
        if spec.std_o is not None:
            mixed = spec.dense(spec.width, "out", spec.std_o)(mixed)
        return point(self, "output", mixed)

    def _turned(self, x_BxTxHxK):
        turned = 2 * round(self.spec.rotary * self.spec.head_width / 2)
        if not turned:
            return x_BxTxHxK
        first, rest = jnp.split(x_BxTxHxK, [turned], axis=-1)
        return jnp.concatenate([attention.rotary(first, self.spec.rotary_base), rest], axis=-1)


class Perceptron(nn.Module):
    """W_2 phi(W_1 x), or W_2 (phi(W_gate x) * W_1 x)."""

    spec: BlockSpec

    @nn.compact
    def __call__(self, x_BxTxN: jax.Array) -> jax.Array:
        spec, phi = self.spec, activation(self.spec.activation, self.spec.width)
        hidden = spec.dense(spec.mlp_width, "in", spec.std_1, bias=True)(x_BxTxN)
        if spec.gated:
            gate = spec.dense(spec.mlp_width, "gate", spec.std_1, bias=True)(x_BxTxN)
            gate = point(self, "gates", phi(point(self, "preactivation", gate)))
            hidden = gate * point(self, "linear", hidden)
        else:
            hidden = phi(point(self, "preactivation", hidden))
        hidden = point(self, "hidden", hidden)
        return point(self, "output", spec.dense(spec.width, "out", spec.std_2, bias=True)(hidden))


class TransformerBlock(nn.Module):
    """Attention and MLP around their residuals; see the module's docstring."""

    spec: BlockSpec

    @nn.compact
    def __call__(self, x_BxTxN: jax.Array) -> jax.Array:
        spec, x = self.spec, point(self, "before", x_BxTxN)
        attn, mlp = Attention(spec, name="attn"), Perceptron(spec, name="mlp")
        if spec.parallel:
            inside = self._norm(x)
            return point(self, "states", spec.alpha_sa * x + attn(inside) + mlp(inside))
        if spec.pre_norm:
            x = point(self, "between", spec.alpha_sa * x + attn(self._norm(x)))
            return point(self, "states", spec.alpha_mlp * x + mlp(self._norm(x)))
        x = point(self, "between", self._norm(spec.alpha_sa * x + attn(x)))
        return point(self, "states", self._norm(spec.alpha_mlp * x + mlp(x)))

    def _norm(self, x_BxTxN):
        spec = self.spec
        if spec.norm not in NORMS:
            raise UserError(f"norm must be one of {', '.join(NORMS)}, got {spec.norm!r}.")
        if spec.norm == "layer":
            x_BxTxN = x_BxTxN - jnp.mean(x_BxTxN, -1, keepdims=True)
        square = jnp.mean(jnp.square(x_BxTxN), -1, keepdims=True) + spec.eps
        return x_BxTxN * jax.lax.rsqrt(jnp.maximum(square, jnp.finfo(x_BxTxN.dtype).tiny))
