"""The post-norm encoder of arXiv 2505.24333: weighted residuals, no centring, no gains.

    X <- LN(SA(X) + alpha_SA X),   X <- LN(MLP(X) + alpha_MLP X),   LN(x) = x sqrt(N) / |x|

Paths: embed, positions, block_{i}/attn/{query,key,value}, block_{i}/mlp/{in,out}, unembed. Only the
MLP has biases, as in the paper's equations. Variances are given times their fan-in.
Activations: those of `points`; block_i/output is another name of block_i/states.
"""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from jaxformer.core.errors import UserError
from jaxformer.models import activation_points, attention
from jaxformer.models.activation_points import point
from jaxformer.models.activations import activation
from jaxformer.models.layers import normal, rms_normalise
from jaxformer.models.model import check_sizes, take_positions
from jaxformer.models.scanned import scan_blocks

STRENGTHS = ("beta", "alpha_sa", "alpha_mlp", "sigma_v2", "sigma_w2", "sigma_b2")


@dataclass(frozen=True)
class EncoderSpec:
    """Every number of an encoder, with the names of theory.signal.Block."""

    vocab_size: int  # 0: vectors (B, T, N) come in and go out, without embedding and logits
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
    causal: bool = False
    scan: bool = False  # one compiled block for all; nothing else changes
    dtype: Any = float
    param_dtype: Any = float

    def __post_init__(self):
        check_sizes(self, "width", "layers", "heads")
        check_sizes(self, "vocab_size", least=0)
        check_sizes(self, "length", least=2)
        for name in STRENGTHS:
            value = getattr(self, name)
            traced = isinstance(value, jax.Array)  # checked by who traces it
            if not traced and not 0 <= value < math.inf:
                raise UserError(f"{name} must be finite and at least 0, got {value}.")
        if self.width % self.heads:
            raise UserError(f"{self.heads} heads do not divide the width {self.width}.")
        activation(self.activation, self.width)

    @property
    def score_std(self) -> float | jax.Array:
        """The deviation of q.k / sqrt(K) at initialisation."""
        return self.beta * math.log(self.length) ** 0.5

    @property
    def dtypes(self) -> dict[str, Any]:
        return {"dtype": self.dtype, "param_dtype": self.param_dtype}

    def normal(self, variance: float | jax.Array) -> nn.initializers.Initializer:
        """Of a kernel: its variance times the fan-in N is given."""
        return normal((variance / self.width) ** 0.5)


class SelfAttention(nn.Module):
    """A_ts V X_s over H heads.

    Var Q_ij = Var K_ij = score_std / N (eq. 11: the deviation, not its square).
    """

    spec: EncoderSpec

    @nn.compact
    def __call__(self, x_BxTxN: jax.Array) -> jax.Array:
        spec = self.spec

        def heads_of(name: str, plural: str, variance: float | jax.Array) -> jax.Array:
            shape, init = (spec.heads, spec.width // spec.heads), spec.normal(variance)
            dense = {"use_bias": False, "kernel_init": init, **spec.dtypes}
            return point(self, plural, nn.DenseGeneral(shape, name=name, **dense)(x_BxTxN))

        q_BxTxHxK = heads_of("query", "queries", spec.score_std)
        k_BxTxHxK = heads_of("key", "keys", spec.score_std)
        scores = point(self, "scores", attention.attention_scores(q_BxTxHxK, k_BxTxHxK))
        mask = attention.causal_mask(x_BxTxN.shape[1]) if spec.causal else None
        scores = point(self, "masked_scores", attention.masked(scores, mask))
        weights_BxHxTxT = attention.attention_weights(scores)
        weights_BxHxTxT = point(self, "weights", weights_BxHxTxT, plotted=True)
        v_BxTxHxK = heads_of("value", "values", spec.sigma_v2)
        mixed = point(self, "heads", attention.mix(weights_BxHxTxT, v_BxTxHxK))
        return point(self, "output", mixed.reshape(x_BxTxN.shape))


class Perceptron(nn.Module):
    """W2 phi(W1 x + b1) + b2, hidden width N."""

    spec: EncoderSpec

    @nn.compact
    def __call__(self, x_BxTxN: jax.Array) -> jax.Array:
        spec = self.spec
        inits = {"kernel_init": spec.normal(spec.sigma_w2), "bias_init": normal(spec.sigma_b2**0.5)}
        phi = activation(spec.activation, spec.width)
        before_BxTxN = nn.Dense(spec.width, **inits, **spec.dtypes, name="in")(x_BxTxN)
        hidden_BxTxN = point(self, "hidden", phi(point(self, "preactivation", before_BxTxN)))
        out_BxTxN = nn.Dense(spec.width, **inits, **spec.dtypes, name="out")(hidden_BxTxN)
        return point(self, "output", out_BxTxN)


class EncoderBlock(nn.Module):
    """Attention and MLP, each LN(f(X) + alpha X)."""

    spec: EncoderSpec

    @nn.compact
    def __call__(self, x_BxTxN: jax.Array) -> jax.Array:
        spec = self.spec
        attn, mlp = SelfAttention(spec, name="attn"), Perceptron(spec, name="mlp")
        x_BxTxN = point(self, "before", x_BxTxN)
        x_BxTxN = rms_normalise(attn(x_BxTxN) + spec.alpha_sa * x_BxTxN)
        x_BxTxN = point(self, "between", x_BxTxN)
        x_BxTxN = rms_normalise(mlp(x_BxTxN) + spec.alpha_mlp * x_BxTxN)
        return point(self, "output", point(self, "states", x_BxTxN), plotted=True)


class Encoder(nn.Module):
    """tokens (B, T) -> logits (B, T, V), or with positions (B, K) only those there. Tokens enter as
    LN(embedding + absolute position). Vectors, when `vocab_size` is 0, enter as LN(x)."""

    spec: EncoderSpec

    @nn.compact
    def __call__(self, inputs: jax.Array, positions_BxK: jax.Array | None = None) -> jax.Array:
        spec = self.spec
        x_BxTxN = rms_normalise(self._embed(inputs) if spec.vocab_size else inputs)
        x_BxTxN = point(self, "embedded", x_BxTxN)
        if spec.scan and not (self.is_initializing() or activation_points.edited()):
            block = EncoderBlock(spec, parent=None)
            x_BxTxN = scan_blocks(self, block, spec.layers, x_BxTxN)
        else:
            for i in range(spec.layers):
                x_BxTxN = EncoderBlock(spec, name=f"block_{i}")(x_BxTxN)
        x_BxKxN = take_positions(x_BxTxN, positions_BxK)
        if not spec.vocab_size:
            return x_BxKxN
        dense = {"use_bias": False, "kernel_init": spec.normal(1.0), **spec.dtypes}
        x_BxKxN = point(self, "final", x_BxKxN)
        return point(self, "logits", nn.Dense(spec.vocab_size, **dense, name="unembed")(x_BxKxN))

    def _embed(self, tokens_BxT: jax.Array) -> jax.Array:
        spec, length = self.spec, tokens_BxT.shape[-1]
        if length > spec.length:
            raise UserError(f"this encoder takes at most {spec.length} tokens, got {length}.")
        table = {"features": spec.width, "embedding_init": normal(1.0), **spec.dtypes}
        embed = nn.Embed(spec.vocab_size, **table, name="embed")
        positions = nn.Embed(spec.length, **table, name="positions")
        x_BxTxN = point(self, "token_embeddings", embed(tokens_BxT))
        p_1xTxN = point(self, "position_embeddings", positions(jnp.arange(length))[None])
        return x_BxTxN + p_1xTxN


def encoder(**numbers) -> Encoder:
    """The encoder with the numbers of an `EncoderSpec`."""
    return Encoder(EncoderSpec(**numbers))
