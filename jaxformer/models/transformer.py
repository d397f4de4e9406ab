"""A transformer block with a field of `BlockSpec` for each choice and initial standard deviation.

    pre-norm     X <- a X + SA(N(X)),   X <- m X + MLP(N(X))
    parallel     X <- a X + SA(N(X)) + MLP(N(X))
    post-norm    X <- N(a X + SA(X)),   X <- N(m X + MLP(X))

SA is attention, N the norm, a = alpha_sa and m = alpha_mlp. A branch of a pre-norm block may
normalise its output in addition to its input, N(SA(N(X))), or instead of it, N(SA(X)).

`encoder` stacks the post-norm form. theory.signal compares its predictions with these blocks.
Inputs and outputs are vectors (B, T, N).

Paths: attn/{query,key,value,out}, mlp/{gate,in,out}; norms have no gains. `activation_points` lists
the activations, here without block_i/; `output` is another address of `states`.
"""

from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxformer.core.errors import check_choice
from jaxformer.models import attention, layers
from jaxformer.models.activation_points import tap
from jaxformer.models.activations import activation

NORMS = ("layer", "rms")


@dataclass(frozen=True)
class BlockSpec:
    """The hyperparameters of a block; std_* are initial standard deviations of matrix entries."""

    width: int
    heads: int
    kv_heads: int
    head_width: int
    mlp_width: int
    std_q: float | jax.Array
    std_k: float | jax.Array
    std_v: float | jax.Array
    std_1: float | jax.Array  # of mlp/in and mlp/gate
    std_2: float | jax.Array  # of mlp/out
    alpha_sa: float | jax.Array  # a, the factor of the residual of attention
    alpha_mlp: float | jax.Array  # m, the factor of the residual of the MLP
    activation: str
    std_o: float | None = None  # None: no projection after attention
    std_bias: float | jax.Array | None = None  # of the two biases of the MLP; None: no biases
    score_scale: float | None = None  # None: 1/sqrt(head_width)
    pre_norm: bool = False
    input_norm: bool = True  # branches of a pre-norm block normalise their input
    output_norm: bool = False  # branches of a pre-norm block normalise their output
    qk_norm: bool = False  # queries and keys of each head are normalised
    norm: str = "rms"
    eps: float = 0.0
    causal: bool = False
    parallel: bool = False
    gated: bool = False
    rotary: float = 0.0  # the fraction of a head's dimensions that rotates
    rotary_base: float = 10_000.0
    dtype: Any = float
    param_dtype: Any = float

    def __post_init__(self):
        check_choice("norm", self.norm, NORMS)

    def dense(
        self, x: jax.Array, features: int, name: str, std: Any, bias_std: Any = None
    ) -> jax.Array:
        """Applies a linear map; it has a bias if `bias_std` is given."""
        dtypes = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        return layers.dense(features, name, std, bias_std is not None, bias_std, **dtypes)(x)


class Attention(nn.Module):
    """W_O concat_h(A_h v_h); groups of queries share keys and values."""

    spec: BlockSpec

    @nn.compact
    def __call__(self, x_BxTxN: jax.Array) -> jax.Array:
        spec = self.spec

        def heads(name: str, n_heads: int, std: Any) -> jax.Array:
            flat = spec.dense(x_BxTxN, n_heads * spec.head_width, name, std)
            split = layers.split_heads(self, name, flat, n_heads)
            is_normed = spec.qk_norm and name != "value"
            return layers.rms_normalise(split, spec.eps) if is_normed else split

        q_BxTxHxD = heads("query", spec.heads, spec.std_q)
        k_BxTxGxD = heads("key", spec.kv_heads, spec.std_k)
        rotated = 2 * round(spec.rotary * spec.head_width / 2)
        if rotated:
            q_BxTxHxD, k_BxTxGxD = (
                tap(self, name, attention.rotary(x, spec.rotary_base, width=rotated))
                for name, x in (("turned_queries", q_BxTxHxD), ("turned_keys", k_BxTxGxD))
            )
        v_BxTxGxD = heads("value", spec.kv_heads, spec.std_v)
        mask = attention.causal_mask(x_BxTxN.shape[1]) if spec.causal else None
        mixed_BxTxHxD = layers.softmax_attention(
            self, q_BxTxHxD, k_BxTxGxD, v_BxTxGxD, mask, scale=spec.score_scale
        )

        def project(x):
            return x if spec.std_o is None else spec.dense(x, spec.width, "out", spec.std_o)

        return layers.merge_heads(self, mixed_BxTxHxD, project)


class Perceptron(nn.Module):
    """W_2 phi(W_1 x), or W_2 (phi(W_gate x) * W_1 x)."""

    spec: BlockSpec

    @nn.compact
    def __call__(self, x_BxTxN: jax.Array) -> jax.Array:
        spec = self.spec

        def dense(x: jax.Array, features: int, name: str) -> jax.Array:
            std = spec.std_2 if name == "out" else spec.std_1
            return spec.dense(x, features, name, std, spec.std_bias)

        phi = activation(spec.activation, spec.width)
        return layers.mlp(self, x_BxTxN, dense, spec.mlp_width, phi, spec.gated)


class TransformerBlock(nn.Module):
    """Attention and MLP with their residuals; the module's docstring has the equations."""

    spec: BlockSpec

    @nn.compact
    def __call__(self, x_BxTxN: jax.Array) -> jax.Array:
        spec = self.spec
        x = tap(self, "before", x_BxTxN)
        attn, mlp = Attention(spec, name="attn"), Perceptron(spec, name="mlp")
        if spec.parallel:
            normed = self._norm(x)
            x = spec.alpha_sa * x + attn(normed) + mlp(normed)
        elif spec.pre_norm:
            x = tap(self, "between", spec.alpha_sa * x + self._normed_branch(attn, x))
            x = spec.alpha_mlp * x + self._normed_branch(mlp, x)
        else:
            # The residual comes second: the order of the terms decides the gradient's last bits.
            x = tap(self, "between", self._norm(attn(x) + spec.alpha_sa * x))
            x = self._norm(mlp(x) + spec.alpha_mlp * x)
        return tap(self, "output", tap(self, "states", x), plotted=True)

    def _normed_branch(self, branch: nn.Module, x_BxTxN: jax.Array) -> jax.Array:
        """Returns the output of a branch of a pre-norm block."""
        x_BxTxN = branch(self._norm(x_BxTxN) if self.spec.input_norm else x_BxTxN)
        return self._norm(x_BxTxN) if self.spec.output_norm else x_BxTxN

    def _norm(self, x_BxTxN: jax.Array) -> jax.Array:
        if self.spec.norm == "layer":
            x_BxTxN = x_BxTxN - jnp.mean(x_BxTxN, -1, keepdims=True)
        return layers.rms_normalise(x_BxTxN, self.spec.eps)
