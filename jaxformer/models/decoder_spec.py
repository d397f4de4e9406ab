"""The hyperparameters of a decoder and its linear maps; decoder.py has the equations."""

from dataclasses import dataclass
from typing import Any

import jax

from jaxformer.core.errors import UserError, check_choice, check_range, unknown
from jaxformer.models import attention
from jaxformer.models.activations import activation
from jaxformer.models.half_precision import DENSE
from jaxformer.models.layers import Dense, dense, normal
from jaxformer.models.model import MAX_SCALE, MAX_SIZES, check_sizes, heads_error

MIXERS = ("softmax", "mixit")
POSITIONS = ("rotary", "none")
POLICIES = jax.checkpoint_policies
_SAVE_DENSE = POLICIES.save_only_these_names(DENSE)
# {remat_keep: the activations that a recomputed block keeps}. "dense" keeps the outputs of linear
# maps and of a TPU's attention kernel, "products" also the attention scores.
REMAT_POLICIES: dict[str, Any] = {
    "nothing": None,
    "dense": _SAVE_DENSE,
    "products": POLICIES.save_from_both_policies(_SAVE_DENSE, POLICIES.dots_saveable),
}


@dataclass(frozen=True)
class DecoderSpec:
    """The hyperparameters of a decoder. A standard deviation may be "fan_in": 1/sqrt(inputs)."""

    vocab_size: int  # V, the number of tokens
    length: int  # m, the longest sequence: the size of MixiT's matrices and positions
    width: int  # n, the width of the residual stream
    layers: int  # L, the number of blocks
    heads: int  # H, the heads of a block
    mlp_width: int  # hidden units of an MLP, 4n in the papers
    mixer: str = "softmax"  # A_h is softmax attention, or with "mixit" a fixed random matrix
    causal: bool = True  # a token attends to itself and earlier tokens only
    # Standard deviation of W: theory | head | spread | token (`attention.mixing_std`), or a number.
    mixing_scale: float | str = "spread"
    mixing_identity: bool = True  # add I to W - rowmean(W)
    sink_head: bool = False  # head 0 of MixiT mixes each token with token 0, half and half
    # Of softmax attention: rotary | none. residual_scale=0 keeps rotary positions, which slow down
    # the collapse of ranks: it is doubly exponential with "none" only.
    positions: str = "rotary"
    learned_positions: bool = False  # a table, for MixiT or with positions="none" as in GPT-2
    use_bias: bool = False  # in the linear maps of blocks
    act: str = "silu"  # phi, a name of models/activations.py
    init_std: float | str = "fan_in"  # initial deviation of matrices but query, key, embeddings
    # Of query and key. The papers' .02 makes frozen attention uniform at width 64, so that
    # Frozen-QK does not learn to retrieve there.
    qk_init_std: float | str = "fan_in"
    embed_init_std: float = 1.0  # of token and position embeddings
    residual_scale: float = 1.0  # r, the factor of the residual stream
    # The factor of branches is b = branch_scale (base_layers / L)^depth_alpha.
    branch_scale: float = 1.0
    depth_alpha: float = 0.0  # the exponent in b; 0: b does not depend on the depth
    base_layers: int = 1  # the depth at which b is branch_scale
    base_width: float = 0.0  # multiply linear maps by sqrt(base_width / inputs); 0: by 1
    base_mlp_width: float = 0.0  # replaces base_width in Wd, which has mlp_width inputs
    score_scale: float = 0.0  # the factor of q.k, such as muP's 1/D; 0: 1/sqrt(D)
    logit_scale: float = 1.0  # the factor of the logits, such as muP's base width / width
    use_norm: bool = True  # RMSNorm before each branch and the unembedding
    use_mlp: bool = True  # otherwise blocks have attention only
    gated: bool = True  # phi(Wg y) multiplies Wu y; otherwise the MLP is Wd phi(Wu y)
    head_width: int = 0  # D, the width of a head; 0: n / H
    outputs: int = 0  # the numbers that a token returns in place of V logits; 0: logits
    pad: int = -1  # the padding token, to which nothing attends; -1: no padding
    # The token that ends a document: softmax attention stays within each document of a window. -1:
    # a window is one text.
    document_end: int = -1
    remat: bool = False  # recompute a block's activations in the backward pass
    remat_keep: str = "nothing"  # activations kept by remat: nothing | dense | products
    fused: bool = False  # keep no attention weights in memory unless they are captured or edited
    scan: bool = False  # compile one body for all blocks but the last; same results
    dtype: Any = float  # of the computation; float is float32, or float64 under x64
    param_dtype: Any = float  # of the stored parameters

    def __post_init__(self):
        if self.mixer not in MIXERS:
            raise unknown("mixer", self.mixer, MIXERS)
        check_sizes(self, "vocab_size", "length", "width", "layers", "heads", "mlp_width")
        scales = "residual_scale", "branch_scale", "depth_alpha", "base_width", "base_mlp_width"
        for name in (*scales, "score_scale", "logit_scale"):
            check_range(name, getattr(self, name), 0, MAX_SCALE)
        check_range("base_layers", self.base_layers, 1, MAX_SCALE)
        if isinstance(self.mixing_scale, str):
            check_choice("mixing scale", self.mixing_scale, attention.MIXING_SCALES)
        else:
            check_range("mixing_scale", self.mixing_scale, 0, MAX_SCALE)
        if self.document_end >= self.vocab_size:
            raise UserError(
                f"document_end must be a token below vocab_size {self.vocab_size}, or -1, got "
                f"{self.document_end}."
            )
        if self.document_end >= 0 and self.mixer != "softmax":
            raise UserError(
                "document_end needs softmax attention: a fixed mixing matrix knows no documents. "
                "Set mixer='softmax' or document_end=-1."
            )
        check_range("head_width", self.head_width, 0, MAX_SIZES["width"])
        check_range("outputs", self.outputs, 0, MAX_SIZES["vocab_size"])
        if not self.head_width and self.width % self.heads:
            raise heads_error(self.heads, self.width)
        if self.head_width and self.mixer != "softmax":
            raise UserError(
                "head_width needs mixer='softmax': the scale of a fixed mixing matrix depends on "
                f"width / heads. Set head_width=0, got {self.head_width}."
            )
        check_choice("positions", self.positions, POSITIONS)
        if self.is_rotary and self.head_dim % 2:
            given = f"width {self.width} / {self.heads} heads = {self.head_dim}"
            if self.head_width:
                given = f"head_width {self.head_width}"
            raise UserError(f"rotary positions need an even head dimension, got {given}.")
        activation(self.act, self.width)  # raises if the name is unknown
        check_choice("remat_keep", self.remat_keep, REMAT_POLICIES)
        for name in ("init_std", "qk_init_std", "embed_init_std"):
            normal(getattr(self, name))  # raises if the value is invalid

    @property
    def head_dim(self) -> int:
        """D, the numbers in a query, a key or a value of one head."""
        return self.head_width or self.width // self.heads

    @property
    def is_rotary(self) -> bool:
        """Whether queries and keys are rotated."""
        return self.mixer == "softmax" and self.positions == "rotary"

    def scaled(self, q_BxTxHxD: jax.Array) -> jax.Array:
        """Returns the queries whose products with keys, divided by sqrt(D), have `score_scale`."""
        if not self.score_scale:
            return q_BxTxHxD
        factor = self.score_scale * self.head_dim**0.5
        return (q_BxTxHxD * factor).astype(q_BxTxHxD.dtype)

    @property
    def branch(self) -> float:
        """The branch factor b at this depth."""
        return self.branch_scale * (self.base_layers / self.layers) ** self.depth_alpha

    def linear(self, features: int, name: str, std: float | str, bias: bool) -> Dense:
        """Returns a linear map with this initial standard deviation."""
        return dense(features, name, std, bias, **self.dtypes)

    def dense(
        self, x: jax.Array, features: int, name: str, std: float | str, base: float | None = None
    ) -> jax.Array:
        """Applies a linear map, times sqrt(base / inputs); `base` is `base_width` by default."""
        base = self.base_width if base is None else base
        y = self.linear(features, name, std, self.use_bias)(x)
        return y * (base / x.shape[-1]) ** 0.5 if base else y

    @property
    def dtypes(self) -> dict[str, Any]:
        return {"dtype": self.dtype, "param_dtype": self.param_dtype}
