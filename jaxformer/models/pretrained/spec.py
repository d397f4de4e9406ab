"""The numbers of a published decoder; each difference between the families is a field."""

import math
from dataclasses import dataclass, fields
from typing import Any

from jaxformer.core.errors import UserError, check_choice, check_range, one_line
from jaxformer.models.activations import activation
from jaxformer.models.model import MAX_SIZES, check_sizes
from jaxformer.models.pretrained.rotary import Rotary

NORMS = ("layer", "rms")
KINDS = {
    int: ("a whole number", lambda x: isinstance(x, int) and not isinstance(x, bool)),
    float: ("a number", lambda x: isinstance(x, int | float) and math.isfinite(x) and x >= 0),
    bool: ("true or false", lambda x: isinstance(x, bool)),
    str: ("a string", lambda x: isinstance(x, str)),
}


@dataclass(frozen=True)
class PretrainedSpec:
    """The numbers of a published decoder."""

    family: str  # a key of keys.FAMILIES: the tensor names on disk
    vocab_size: int
    length: int  # the longest sequence; a limit only with learned positions
    width: int
    layers: int
    heads: int
    kv_heads: int  # G; groups of H / G queries share keys and values
    head_width: int
    mlp_width: int
    norm: str = "layer"
    eps: float = 1e-5
    act: str = "gelu"
    gated: bool = False  # W_out (phi(W_gate x) * W_in x), else W_out phi(W_in x)
    parallel: bool = False  # attention and MLP both have the block's input
    tied: bool = False  # the unembedding is the embedding
    learned_positions: bool = False
    rotary: Rotary | None = None
    window: int = 0  # token i attends to tokens j with i - j < window; 0: to all before
    qkv_bias: bool = False
    out_bias: bool = False  # of attention's output
    mlp_bias: bool = False
    causal: bool = True
    init_std: float = 0.02
    dtype: Any = float
    param_dtype: Any = float

    def __post_init__(self):
        check_kinds(self)
        check_sizes(self, "vocab_size", "length", "width", "layers", "heads", "mlp_width")
        check_choice("norm", self.norm, NORMS)
        activation(self.act, self.width)
        check_range("head_width", self.head_width, 1, MAX_SIZES["width"])
        check_range("window", self.window, 0, 2**31 - 1)
        if self.kv_heads < 1 or self.heads % self.kv_heads:
            raise UserError(
                f"the query heads must be a multiple of the key heads, got {self.heads} and "
                f"{self.kv_heads}."
            )
        if not self.causal:
            raise UserError("published decoders are causal, got causal=False.")
        if self.rotary is not None and self.rotary.width > self.head_width:
            raise UserError(
                f"{self.rotary.width} rotary dimensions do not fit a head of {self.head_width}."
            )

    @property
    def dtypes(self) -> dict[str, Any]:
        return {"dtype": self.dtype, "param_dtype": self.param_dtype}


def check_kinds(spec: Any) -> None:
    """Raises unless each field from config.json has its declared type."""
    for field in fields(spec):
        if field.type in KINDS:
            expected, fits = KINDS[field.type]
            if not fits(value := getattr(spec, field.name)):
                raise UserError(
                    f"{field.name} must be {expected}, got {one_line(repr(value), 60)}."
                )
