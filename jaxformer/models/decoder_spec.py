"""The options of a decoder, and the linear maps that they determine (equations: decoder.py)."""

from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax

from jaxformer.core.errors import UserError, check_choice, check_range, unknown
from jaxformer.models import attention
from jaxformer.models.activations import activation
from jaxformer.models.layers import DENSE, flat, normal
from jaxformer.models.model import LARGEST_SCALE, check_sizes

MIXERS = ("softmax", "mixit")
POLICIES = jax.checkpoint_policies
# What a recomputed block keeps from the forward pass, by remat_keep. "products" also keeps products
# of two activations, such as scores.
KEEP: dict[str, Any] = {"nothing": None, "dense": POLICIES.save_only_these_names(DENSE)}
KEEP["products"] = POLICIES.save_from_both_policies(KEEP["dense"], POLICIES.dots_saveable)


@dataclass(frozen=True)
class DecoderSpec:
    """The options of a decoder.

    A standard deviation may be "fan_in", which is 1/sqrt(inputs). The letters m, n, L, r and b are
    those of the papers, as in decoder.py.
    """

    vocab_size: int
    length: int  # m, the longest sequence: the size of MixiT's matrices and positions
    width: int  # n
    layers: int  # L
    heads: int  # H
    mlp_width: int  # 4n in the papers
    mixer: str = "softmax"
    causal: bool = True  # a token sees only those before it and itself
    mixing_scale: float | str = "spread"  # std of W: a number, or a rule of attention.mixing_std
    mixing_identity: bool = True  # the mixing is I + W - rowmean(W); False: W - rowmean(W)
    sink_head: bool = False  # head 0 mixes a token with token 0, half and half (attention.sink)
    learned_positions: bool = False
    use_bias: bool = False
    act: str = "silu"
    init_std: float | str = 0.02
    qk_init_std: float | str = 0.02  # separate, since it decides whether Frozen-QK works
    embed_init_std: float = 0.02
    residual_scale: float = 1.0  # r
    branch_scale: float = 1.0  # b, times (base_layers / L)^depth_alpha
    depth_alpha: float = 0.0
    base_layers: int = 1
    base_width: float = 0.0  # linear maps are multiplied by sqrt(base_width / inputs); 0: by 1
    base_mlp_width: float = 0.0  # the same for Wd, whose inputs are mlp_width
    use_norm: bool = True
    use_mlp: bool = True
    pad: int = -1  # the padding token, which no token attends to; -1: none
    remat: bool = False  # recompute a block's activations in the backward pass
    remat_keep: str = "nothing"  # see KEEP: activations that remat does not recompute
    fused: bool = False  # softmax attention without stored weights, unless they are captured
    scan: bool = False  # compile all blocks but the last as one; results are the same
    dtype: Any = float  # type of activations; float is float32, or float64 under x64
    param_dtype: Any = float

    def __post_init__(self):
        if self.mixer not in MIXERS:
            raise unknown("mixer", self.mixer, MIXERS)
        check_sizes(self, "vocab_size", "length", "width", "layers", "heads", "mlp_width")
        scales = "residual_scale", "branch_scale", "depth_alpha", "base_width", "base_mlp_width"
        for name in scales:
            check_range(name, getattr(self, name), 0, LARGEST_SCALE)
        check_range("base_layers", self.base_layers, 1, LARGEST_SCALE)
        if isinstance(self.mixing_scale, str):
            check_choice("mixing scale", self.mixing_scale, attention.MIXING_SCALES)
        else:
            check_range("mixing_scale", self.mixing_scale, 0, LARGEST_SCALE)
        if self.width % self.heads:
            raise UserError(f"{self.heads} heads do not divide the width {self.width}.")
        if self.mixer == "softmax" and self.width // self.heads % 2:
            raise UserError(
                f"rotary positions need an even head dimension, got width {self.width} / "
                f"{self.heads} heads = {self.width // self.heads}."
            )
        activation(self.act, self.width)
        check_choice("remat_keep", self.remat_keep, KEEP)
        for name in ("init_std", "qk_init_std", "embed_init_std"):
            normal(getattr(self, name))

    @property
    def branch(self) -> float:
        """The factor b of a branch, at this depth."""
        return self.branch_scale * (self.base_layers / self.layers) ** self.depth_alpha

    def linear(self, features: int, name: str, std: float | str, bias: bool) -> nn.Dense:
        """Returns a linear layer whose kernel has the initial standard deviation `std`."""
        init = normal(std)
        return nn.Dense(
            features, bias, **self.dtypes, kernel_init=init, dot_general=flat, name=name
        )

    def dense(
        self, x: jax.Array, features: int, name: str, std: float | str, base: float | None = None
    ) -> jax.Array:
        """Applies a new linear layer with its bias, and multiplies by sqrt(base / inputs).

        Args:
            x: the input.
            features: the number of outputs.
            name: the name of the layer.
            std: the initial standard deviation of the kernel.
            base: base_width if None. With 0 the output is not multiplied.
        """
        base = self.base_width if base is None else base
        y = self.linear(features, name, std, self.use_bias)(x)
        return y * (base / x.shape[-1]) ** 0.5 if base else y

    @property
    def dtypes(self) -> dict[str, Any]:
        return {"dtype": self.dtype, "param_dtype": self.param_dtype}
