"""The hyperparameters of a published network; each difference between families is a field."""

from dataclasses import dataclass, fields, replace
from typing import Any

from jaxformer.core.errors import UserError, check_choice, check_range, check_type
from jaxformer.models.activations import activation
from jaxformer.models.model import MAX_SIZES, check_sizes
from jaxformer.models.pretrained.rotary import Rotary

NORMS = ("layer", "rms")
NORM_PLACES = ("input", "output", "both", "sum")
QK_NORMS = ("", "head", "each_head", "width")
MAX_EXPERTS = 10_000
MAX_NUMBER = 1e30  # the largest value of a float field


@dataclass(frozen=True)
class PretrainedSpec:
    """The hyperparameters of a published network; `config_numbers` reads them from config.json.

    A block has two branches, attention and MLP, whose outputs are added to the residual stream.
    """

    family: str  # a key of `families.FAMILIES`
    vocab_size: int
    length: int  # the longest sequence; a limit only with learned positions
    width: int
    layers: int
    heads: int
    kv_heads: int  # G; groups of H / G queries share keys and values
    head_width: int
    mlp_width: int
    norm: str = "layer"
    # The place of norms: the "input", "output" or "both" ends of a branch, or its "sum" with the
    # residual stream.
    norm_at: str = "input"
    norm_params: bool = True  # whether norms have a gain, and a bias in LayerNorm
    gain_offset: float = 0.0  # norms multiply by offset + gain
    final_norm: bool = True
    # Norm of queries and keys. "head": one that all heads share, "each_head": one for each head,
    # "width": one over all heads together, "": none.
    qk_norm: str = ""
    eps: float = 1e-5
    act: str = "gelu"
    experts: int = 0  # MLPs of which each token uses some; 0: one MLP for all tokens
    experts_per_token: int = 0
    expert_width: int = 0  # hidden units of an expert; 0: `mlp_width`
    shared_width: int = 0  # hidden units of an expert that all tokens use, with a gate; 0: none
    normalised_experts: bool = False  # whether the weights of a token's experts sum to 1
    sparse: tuple[bool, ...] = ()  # which blocks have experts; (): all
    gated: bool = False  # W_out (phi(W_gate x) * W_in x), else W_out phi(W_in x)
    # L: W_gate x is at most L, and W_in x becomes 1 + its value clipped to [-L, L]; 0: neither.
    gate_limit: float = 0.0
    parallel: bool = False  # attention and MLP both read the block's input
    shared_norm: bool = False  # in a parallel block both branches read the same norm
    tied: bool = False  # the unembedding is the embedding
    # The width of the embedding, if linear maps connect it to the residual stream; 0: `width`.
    embed_width: int = 0
    embed_scale: float = 1.0
    embed_norm: bool = False
    types: int = 0  # number of segment embeddings, as in BERT's sentence pairs; 0: none
    learned_positions: bool = False
    position_offset: int = 0  # the row of the first token in the table of positions
    pad: int = -1  # the padding token, which does not count as a position; -1: none
    rotary: Rotary | None = None
    local_rotary: Rotary | None = None  # of blocks with a window; None: as `rotary`
    rotated: tuple[bool, ...] = ()  # which blocks have rotary positions; (): all
    alibi: bool = False  # a bias of the scores that is linear in the position of the key
    window: int = 0  # token i attends to tokens j with i - j < window; 0: no limit
    windowed: tuple[bool, ...] = ()  # which blocks have the window; (): all
    score_scale: float = 0.0  # the factor of q.k; 0: 1/sqrt(head_width)
    scale_by_layer: bool = False  # block i divides its scores by i + 1
    score_cap: float = 0.0  # scores become cap tanh(scores / cap); 0: unchanged
    logit_cap: float = 0.0  # logits become cap tanh(logits / cap); 0: unchanged
    sinks: bool = False  # each head has a score without a key, which takes a share of its softmax
    clip: float = 0.0  # limits queries, keys and values to [-clip, clip]; 0: unlimited
    qkv_bias: bool = False
    out_bias: bool = False  # of attention's output
    mlp_bias: bool = False  # also of experts and of their router
    unembed_bias: bool = False
    has_logits: bool = True  # otherwise the output is the last states
    # The activation of BERT's dense layer, which a norm follows, before the unembedding; "": none.
    head_act: str = ""
    causal: bool = True
    init_std: float = 0.02
    dtype: Any = float
    param_dtype: Any = float

    def __post_init__(self):
        check_kinds(self)
        check_sizes(self, "vocab_size", "length", "width", "layers", "heads", "mlp_width")
        check_choice("norm", self.norm, NORMS)
        check_choice("norm_at", self.norm_at, NORM_PLACES)
        check_choice("qk_norm", self.qk_norm, QK_NORMS)
        for name in (self.act, *([self.head_act] if self.head_act else [])):
            activation(name, self.width)  # raises if the name is unknown
        check_range("head_width", self.head_width, 1, MAX_SIZES["width"])
        check_range("window", self.window, 0, 2**31 - 1)
        if self.kv_heads < 1 or self.heads % self.kv_heads:
            raise UserError(
                f"the query heads must be a multiple of the key heads, got {self.heads} and "
                f"{self.kv_heads}."
            )
        if self.parallel and self.norm_at != "input":
            raise UserError(
                f"a parallel block needs norm_at='input', the input of its branches, got "
                f"{self.norm_at!r}."
            )
        for rotary in (self.rotary, self.local_rotary):
            if rotary is not None and rotary.width > self.head_width:
                raise UserError(
                    f"{rotary.width} rotary dimensions do not fit a head of {self.head_width}."
                )
        check_range("experts", self.experts, 0, MAX_EXPERTS)
        if self.experts:
            for name in ("expert_width", "shared_width"):
                check_range(name, getattr(self, name), 0, MAX_SIZES["mlp_width"])
            if not 1 <= self.experts_per_token <= self.experts:
                raise UserError(
                    f"a token must use between 1 and all {self.experts} experts, got "
                    f"experts_per_token = {self.experts_per_token}."
                )
        for name in ("windowed", "rotated", "sparse"):
            entries = getattr(self, name)
            if len(entries) not in (0, self.layers):
                raise UserError(
                    f"{name} must have an entry for each of {self.layers} layers, got "
                    f"{len(entries)}."
                )

    @property
    def dtypes(self) -> dict[str, Any]:
        return {"dtype": self.dtype, "param_dtype": self.param_dtype}

    @property
    def expert_hidden(self) -> int:
        """The hidden units of an expert."""
        return self.expert_width or self.mlp_width

    def has_experts(self, block: int) -> bool:
        """Returns whether a block has experts in place of its MLP."""
        return bool(self.experts) and (not self.sparse or self.sparse[block])

    def of_block(self, block: int) -> "PretrainedSpec":
        """The network that has only this block, as block_0.

        Two blocks that differ only in their parameters give equal networks, so that one compiled
        program serves both.
        """
        experts = self.experts if self.has_experts(block) else 0
        return replace(
            self,
            layers=1,
            window=self.window_of(block),
            windowed=(),
            rotary=self.rotary_of(block),
            local_rotary=None,
            rotated=(),
            score_scale=self.score_scale_of(block),
            scale_by_layer=False,
            experts=experts,
            sparse=(),
        )

    def window_of(self, block: int) -> int:
        """Returns the window of a block; 0 without one."""
        return self.window if not self.windowed or self.windowed[block] else 0

    def rotary_of(self, block: int) -> Rotary | None:
        """Returns the rotary positions of a block."""
        if self.rotated and not self.rotated[block]:
            return None
        is_local = self.local_rotary is not None and self.window_of(block)
        return self.local_rotary if is_local else self.rotary

    def score_scale_of(self, block: int) -> float:
        """Returns the factor of q.k in a block."""
        scale = self.score_scale or self.head_width**-0.5
        return scale / (block + 1) if self.scale_by_layer else scale


def check_kinds(spec: Any) -> None:
    """Raises unless each field from config.json has its declared type, and floats are >= 0.

    Whole numbers in fields of floats become floats.
    """
    for field in fields(spec):
        value = getattr(spec, field.name)
        check_type(field.name, value, field.type)
        if field.type is float:
            check_range(field.name, value, 0, MAX_NUMBER)
            # JAX refuses whole numbers above 2^31, which JSON may have here.
            object.__setattr__(spec, field.name, float(value))
