"""The post-norm encoder of arXiv 2505.24333: weighted residuals, no centring, no gains.

    X <- LN(SA(X) + alpha_SA X),   X <- LN(MLP(X) + alpha_MLP X),   LN(x) = x sqrt(N) / |x|

Paths: embed, positions, block_{i}/attn/{query,key,value}, block_{i}/mlp/{in,out}, unembed. Only the
MLP has biases, as in the paper's equations. Variances are given times their fan-in.
Captures: block_i/attn/weights, block_i/output.
"""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from jaxformer.errors import UserError, unknown
from jaxformer.models.attention import attention_scores, attention_weights, mix
from jaxformer.models.decoder import take_positions
from jaxformer.models.layers import keep_last

ACTIVATIONS = {"relu": jax.nn.relu, "tanh": jnp.tanh, "gelu": jax.nn.gelu}


@dataclass(frozen=True)
class EncoderSpec:
    """Every number of an encoder over tokens, with the names of theory.signal.Block."""

    vocab_size: int
    length: int  # T: the longest sequence, and the T of `beta`
    width: int  # d
    layers: int  # L
    heads: int  # H
    beta: float  # scores have deviation beta sqrt(ln T) at initialisation
    alpha_sa: float = 1.0
    alpha_mlp: float = 1.0
    sigma_v2: float = 0.2
    sigma_w2: float = 0.2
    sigma_b2: float = 0.0
    activation: str = "relu"
    dtype: Any = float
    param_dtype: Any = float

    def __post_init__(self):
        for name, least in dict(vocab_size=1, length=2, width=1, layers=1, heads=1).items():
            if getattr(self, name) < least:
                raise UserError(f"{name} must be at least {least}, got {getattr(self, name)}.")
        for name in ("beta", "alpha_sa", "alpha_mlp", "sigma_v2", "sigma_w2", "sigma_b2"):
            if not 0 <= getattr(self, name) < math.inf:
                raise UserError(f"{name} must be finite and at least 0, got {getattr(self, name)}.")
        if self.width % self.heads:
            raise UserError(f"{self.heads} heads do not divide the width {self.width}.")
        if self.activation not in ACTIVATIONS:
            raise unknown("activation", self.activation, ACTIVATIONS)


def encoder(**numbers) -> "Encoder":
    """The encoder with the numbers of an `EncoderSpec`."""
    spec = EncoderSpec(**numbers)
    return Encoder(
        depth=spec.layers,
        width=spec.width,
        heads=spec.heads,
        length=spec.length,
        vocab_size=spec.vocab_size,
        alpha_sa=spec.alpha_sa,
        alpha_mlp=spec.alpha_mlp,
        score_std=spec.beta * math.log(spec.length) ** 0.5,
        value_variance=spec.sigma_v2,
        weight_variance=spec.sigma_w2,
        bias_variance=spec.sigma_b2,
        activation=spec.activation,
        dtype=spec.dtype,
        param_dtype=spec.param_dtype,
    )


def rms_normalise(x_BxTxN: jax.Array) -> jax.Array:
    """LN(x) = x sqrt(N) / |x|."""
    square = jnp.mean(jnp.square(x_BxTxN), -1, keepdims=True)
    return x_BxTxN * jax.lax.rsqrt(jnp.maximum(square, jnp.finfo(x_BxTxN.dtype).tiny))


def _normal(variance: float, fan_in: int) -> nn.initializers.Initializer:
    return nn.initializers.normal((variance / fan_in) ** 0.5)


class SelfAttention(nn.Module):
    """A_ts V X_s over H heads; scores q.k / sqrt(K) have deviation `score_std` at initialisation.

    Var Q_ij = Var K_ij = score_std / N (eq. 11: the deviation, not its square).
    """

    heads: int
    score_std: float
    value_variance: float
    dtype: Any = None
    param_dtype: Any = float

    @nn.compact
    def __call__(self, x_BxTxN: jax.Array) -> jax.Array:
        width = x_BxTxN.shape[-1]

        def heads_of(name: str, variance: float) -> jax.Array:
            dense = nn.DenseGeneral(
                (self.heads, width // self.heads),
                use_bias=False,
                kernel_init=_normal(variance, width),
                dtype=self.dtype,
                param_dtype=self.param_dtype,
                name=name,
            )
            return dense(x_BxTxN)

        scores = attention_scores(
            heads_of("query", self.score_std), heads_of("key", self.score_std)
        )
        weights_BxHxTxT = attention_weights(scores)
        self.sow("intermediates", "weights", weights_BxHxTxT, reduce_fn=keep_last)
        mixed = mix(weights_BxHxTxT, heads_of("value", self.value_variance))
        return mixed.reshape(x_BxTxN.shape)


class Perceptron(nn.Module):
    """W2 phi(W1 x + b1) + b2, hidden width N."""

    activation: str
    weight_variance: float
    bias_variance: float
    dtype: Any = None
    param_dtype: Any = float

    @nn.compact
    def __call__(self, x_BxTxN: jax.Array) -> jax.Array:
        if self.activation not in ACTIVATIONS:
            raise unknown("activation", self.activation, ACTIVATIONS)
        width = x_BxTxN.shape[-1]

        def dense(name: str) -> nn.Dense:
            return nn.Dense(
                width,
                kernel_init=_normal(self.weight_variance, width),
                bias_init=_normal(self.bias_variance, 1),
                dtype=self.dtype,
                param_dtype=self.param_dtype,
                name=name,
            )

        return dense("out")(ACTIVATIONS[self.activation](dense("in")(x_BxTxN)))


class EncoderBlock(nn.Module):
    """Attention and MLP, each LN(f(X) + alpha X)."""

    heads: int
    alpha_sa: float = 1.0
    alpha_mlp: float = 1.0
    score_std: float = 1.0
    value_variance: float = 1.0
    weight_variance: float = 1.0
    bias_variance: float = 0.0
    activation: str = "relu"
    dtype: Any = None
    param_dtype: Any = float

    @nn.compact
    def __call__(self, x_BxTxN: jax.Array) -> jax.Array:
        if x_BxTxN.shape[-1] % self.heads:
            raise UserError(
                f"the width must be a multiple of the heads, got {x_BxTxN.shape[-1]} "
                f"and {self.heads}."
            )
        types = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        attn = SelfAttention(self.heads, self.score_std, self.value_variance, **types, name="attn")
        mlp = Perceptron(
            self.activation, self.weight_variance, self.bias_variance, **types, name="mlp"
        )
        x_BxTxN = rms_normalise(attn(x_BxTxN) + self.alpha_sa * x_BxTxN)
        x_BxTxN = rms_normalise(mlp(x_BxTxN) + self.alpha_mlp * x_BxTxN)
        self.sow("intermediates", "output", x_BxTxN, reduce_fn=keep_last)
        return x_BxTxN


class Encoder(nn.Module):
    """`depth` blocks over tokens (B, T) -> logits (B, T, V), or over vectors (B, T, N) -> (B, T, N)
    when `vocab_size` is 0. Tokens enter as LN(embedding + absolute position); with positions (B, K)
    only the logits there are computed."""

    depth: int
    width: int
    heads: int
    length: int
    vocab_size: int = 0
    alpha_sa: float = 1.0
    alpha_mlp: float = 1.0
    score_std: float = 1.0
    value_variance: float = 1.0
    weight_variance: float = 1.0
    bias_variance: float = 0.0
    activation: str = "relu"
    dtype: Any = None
    param_dtype: Any = float

    @nn.compact
    def __call__(self, inputs: jax.Array, positions_BxK: jax.Array | None = None) -> jax.Array:
        types = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        x_BxTxN = self._embed(inputs, types) if self.vocab_size else rms_normalise(inputs)
        for i in range(self.depth):
            block = EncoderBlock(
                heads=self.heads,
                alpha_sa=self.alpha_sa,
                alpha_mlp=self.alpha_mlp,
                score_std=self.score_std,
                value_variance=self.value_variance,
                weight_variance=self.weight_variance,
                bias_variance=self.bias_variance,
                activation=self.activation,
                **types,
                name=f"block_{i}",
            )
            x_BxTxN = block(x_BxTxN)
        if not self.vocab_size:
            return x_BxTxN
        init = _normal(1.0, self.width)
        unembed = nn.Dense(
            self.vocab_size, use_bias=False, kernel_init=init, **types, name="unembed"
        )
        return unembed(take_positions(x_BxTxN, positions_BxK))

    def _embed(self, tokens_BxT: jax.Array, types: dict[str, Any]) -> jax.Array:
        length = tokens_BxT.shape[-1]
        if length > self.length:
            raise UserError(f"this encoder takes at most {self.length} tokens, got {length}.")
        normal = nn.initializers.normal(1.0)
        embed = nn.Embed(self.vocab_size, self.width, embedding_init=normal, **types, name="embed")
        positions = nn.Embed(
            self.length, self.width, embedding_init=normal, **types, name="positions"
        )
        return rms_normalise(embed(tokens_BxT) + positions(jnp.arange(length))[None])
