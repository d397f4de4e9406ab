"""The post-norm encoder of arXiv 2505.24333, with weighted residuals and norms without gains.

    X <- LN(SA(X) + alpha_SA X),   X <- LN(MLP(X) + alpha_MLP X),   LN(x) = x sqrt(N) / |x|

Paths: embed, positions, block_{i}/attn/{query,key,value}, block_{i}/mlp/{in,out}, unembed. Only the
MLP has biases, as in the paper's equations. sigma_v2 and sigma_w2 are N times the initial variance
of weights, sigma_b2 is the initial variance of biases. `activation_points` lists the activations;
block_i/output is another address of block_i/states.
"""

import math
import re
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

from jaxformer.core.errors import UserError
from jaxformer.models import activation_points
from jaxformer.models.activation_points import tap
from jaxformer.models.activations import activation
from jaxformer.models.half_precision import add_to_all
from jaxformer.models.layers import dense, embedding, rms_normalise
from jaxformer.models.model import check_sizes, heads_error, make_spec, take_positions
from jaxformer.models.scanned import scan_blocks
from jaxformer.models.source import Loadable
from jaxformer.models.transformer import BlockSpec, TransformerBlock

HEAD_KERNEL = re.compile(r"(.*/)?block_\d+/attn/(query|key|value)/kernel")
# The fields of an EncoderSpec that scale a term; each is finite and at least 0.
STRENGTHS = ("beta", "alpha_sa", "alpha_mlp", "sigma_v2", "sigma_w2", "sigma_b2")


@dataclass(frozen=True)
class EncoderSpec:
    """The hyperparameters of an encoder, named as in theory.signal.Block."""

    vocab_size: int  # 0: inputs and outputs are vectors (B, T, N), without embedding and logits
    length: int  # T: the longest sequence, and the T of `beta`
    width: int  # N, the width of the residual stream and of the MLP
    layers: int  # L, the number of blocks
    heads: int  # H, the heads of a block
    beta: float  # the initial standard deviation of scores is beta sqrt(ln T)
    alpha_sa: float = 1.0  # factor of the residual of attention
    alpha_mlp: float = 1.0  # factor of the residual of the MLP
    sigma_v2: float = 0.2  # N times the initial variance of value weights
    sigma_w2: float = 0.2  # N times the initial variance of MLP weights
    sigma_b2: float = 4e-4  # initial variance of MLP biases
    activation: str = "relu"  # of the MLP, a name of models/activations.py
    causal: bool = False  # a token attends to itself and earlier tokens only
    scan: bool = False  # compile one body for all blocks; the results are the same
    dtype: Any = float  # of the computation; float is float32, or float64 under x64
    param_dtype: Any = float  # of the stored parameters

    def __post_init__(self):
        check_sizes(self, "width", "layers", "heads")
        check_sizes(self, "vocab_size", least=0)
        check_sizes(self, "length", least=2)
        for name in STRENGTHS:
            value = getattr(self, name)
            traced = isinstance(value, jax.Array)  # such a value was checked before tracing
            if not traced and not 0 <= value < math.inf:
                raise UserError(f"{name} must be finite and at least 0, got {value}.")
        if self.width % self.heads:
            raise heads_error(self.heads, self.width)
        activation(self.activation, self.width)  # raises if the name is unknown

    @property
    def score_std(self) -> float | jax.Array:
        """The initial standard deviation of q.k / sqrt(D)."""
        return self.beta * math.log(self.length) ** 0.5

    @property
    def dtypes(self) -> dict[str, Any]:
        return {"dtype": self.dtype, "param_dtype": self.param_dtype}

    @property
    def block(self) -> BlockSpec:
        """The hyperparameters of one block; Var Q_ij = Var K_ij = score_std / N (eq. 11)."""
        std_qk = self.deviation(self.score_std)
        std_mlp = self.deviation(self.sigma_w2)
        return BlockSpec(
            width=self.width,
            heads=self.heads,
            kv_heads=self.heads,
            head_width=self.width // self.heads,
            mlp_width=self.width,
            std_q=std_qk,
            std_k=std_qk,
            std_v=self.deviation(self.sigma_v2),
            std_1=std_mlp,
            std_2=std_mlp,
            std_bias=self.sigma_b2**0.5,
            alpha_sa=self.alpha_sa,
            alpha_mlp=self.alpha_mlp,
            causal=self.causal,
            activation=self.activation,
            **self.dtypes,
        )

    def deviation(self, variance: float | jax.Array) -> float | jax.Array:
        """Returns the standard deviation of a kernel from its variance times the fan-in N."""
        return (variance / self.width) ** 0.5


class Encoder(Loadable):
    """The network: tokens (B, T) to logits (B, T, V), or (B, K, V) at positions (B, K).

    The first block reads LN(embedding + absolute position), or LN(x) of vectors x if `vocab_size`
    is 0.
    """

    spec: EncoderSpec

    @nn.compact
    def __call__(self, inputs: jax.Array, positions_BxK: jax.Array | None = None) -> jax.Array:
        spec = self.spec
        x_BxTxN = rms_normalise(self._embed(inputs) if spec.vocab_size else inputs)
        x_BxTxN = tap(self, "embedded", x_BxTxN)
        if spec.scan and not (self.is_initializing() or activation_points.has_edits()):
            block = TransformerBlock(spec.block, parent=None)
            x_BxTxN = scan_blocks(self, block, spec.layers, x_BxTxN)
        else:
            for i in range(spec.layers):
                x_BxTxN = TransformerBlock(spec.block, name=f"block_{i}")(x_BxTxN)
        x_BxKxN = take_positions(x_BxTxN, positions_BxK)
        if not spec.vocab_size:
            return x_BxKxN
        unembed = dense(spec.vocab_size, "unembed", spec.deviation(1.0), **spec.dtypes)
        return tap(self, "logits", unembed(tap(self, "final", x_BxKxN)))

    @staticmethod
    def convert_checkpoint(arrays: dict[str, Any]) -> dict[str, Any]:
        """Returns {path: array} of a checkpoint with flat query, key and value kernels.

        Kernels of older checkpoints have the shape (members, N, H, D).
        """

        def flat(path: str, array: Any) -> Any:
            return array.reshape(*array.shape[:2], -1) if HEAD_KERNEL.fullmatch(path) else array

        return {path: flat(path, array) for path, array in arrays.items()}

    def _embed(self, tokens_BxT: jax.Array) -> jax.Array:
        spec, length = self.spec, tokens_BxT.shape[-1]
        if length > spec.length:
            raise UserError(f"this encoder takes at most {spec.length} tokens, got {length}.")
        embed = embedding(spec.vocab_size, spec.width, "embed", 1.0, **spec.dtypes)
        unrounded = spec.dtypes | {"dtype": spec.param_dtype}
        positions = embedding(spec.length, spec.width, "positions", 1.0, **unrounded)
        x_BxTxN = tap(self, "token_embeddings", embed(tokens_BxT))
        p_1xTxN = tap(self, "position_embeddings", positions(jnp.arange(length))[None])
        return add_to_all(x_BxTxN, p_1xTxN)


def encoder(**numbers) -> Encoder:
    """Returns the encoder with the fields of an `EncoderSpec`."""
    return Encoder(make_spec(EncoderSpec, numbers))
