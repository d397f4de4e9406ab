"""The sizes, variances and options of a transformer that determine its signal at initialisation.

    pre-norm     X <- alpha_SA X + SA(N(X)),    X <- alpha_MLP X + MLP(N(X))
    parallel     X <- alpha_SA X + SA(N(X)) + MLP(N'(X))
    post-norm    X <- N(alpha_SA X + SA(X)),    X <- N(alpha_MLP X + MLP(X))

In a pre-norm block `input_norm` and `output_norm` say whether a branch normalises its input (as
above), its output (OLMo 2) or both (Gemma 2 and 3).

N divides by sqrt(mean(x^2) + eps). LayerNorm and RMSNorm give the same predictions: subtracting the
mean of `width` entries changes averages by 1/width only.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

from jaxformer.core.errors import UserError, check_choice
from theory.activation_moments import ACTIVATIONS
from theory.checks import check_count

NORMS = ("layer", "rms")
COUNTS = ("layers", "width", "heads", "kv_heads", "head_width", "mlp_width")
DEVIATIONS = ("std_q", "std_k", "std_v", "std_o", "std_1", "std_2")
DEVIATIONS += ("std_bias", "std_embed", "std_position", "std_type")
MULTIPLIERS = ("score_scale", "alpha_sa", "alpha_mlp")


@dataclass(frozen=True)
class Architecture:
    """A transformer at initialisation. The defaults describe a post-norm encoder.

    Every `std_*` is the standard deviation of the entries of one matrix or vector.
    """

    layers: int  # L
    width: int  # d
    heads: int  # H
    head_width: int  # entries of one query
    mlp_width: int  # hidden units of the MLP
    std_q: float
    std_k: float
    std_v: float
    std_1: float  # W_1; in a gated MLP both W_gate and W_up
    std_2: float
    # Factor of q.k in the scores: usually 1/sqrt(head_width); 1/head_width in muP, 1 in T5.
    score_scale: float
    kv_heads: int = 0  # heads of keys and values in grouped-query attention; 0: as many as heads
    std_o: float | None = None  # None: no output projection after attention
    std_bias: float = 0.0  # both biases of the MLP
    alpha_sa: float = 1.0  # residual weights
    alpha_mlp: float = 1.0
    pre_norm: bool = False
    input_norm: bool = True  # of a pre-norm block: SA(N(X)), otherwise SA(X)
    output_norm: bool = False  # of a pre-norm block: N(SA(..))
    qk_norm: bool = False  # queries and keys of each head are normalised
    norm: str = "layer"
    eps: float = 0.0
    causal: bool = False
    parallel: bool = False  # attention and MLP read the same input (GPT-NeoX)
    gated: bool = False  # W_2 (phi(W_gate x) * W_up x)
    activation: str = "gelu"
    rotary: float = 0.0  # rotated fraction of each head
    rotary_base: float = 10_000.0
    std_embed: float = 1.0
    std_position: float = 0.0
    std_type: float = 0.0  # segment vector, which all tokens of a segment share
    embed_norm: bool = False
    embed_gain: float = 1.0  # of a projection after the embedding (ELECTRA): variance times fan-in

    def __post_init__(self):
        for name in COUNTS:
            check_count(name, getattr(self, name), 0 if name == "kv_heads" else 1)
        for name in (*DEVIATIONS, *MULTIPLIERS, "eps", "embed_gain"):
            value = getattr(self, name)
            if value is None and name == "std_o":
                continue
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise UserError(f"{name} must be a number, got {value!r}.")
            if not 0 <= value <= 1e6:
                raise UserError(f"{name} must be in [0, 1e6], got {value:g}.")
        check_choice("activation", self.activation, ACTIVATIONS)
        check_choice("norm", self.norm, NORMS)
        if self.kv_heads and self.heads % self.kv_heads:
            raise UserError(
                f"{self.kv_heads} heads of keys and values do not divide {self.heads} heads."
            )
        if (self.output_norm or not self.input_norm) and (self.parallel or not self.pre_norm):
            raise UserError("norms of branch outputs need a pre-norm block that is not parallel.")
        if self.std_o is None and self.heads * self.head_width != self.width:
            raise UserError("without an output projection the heads must fill the width.")

    def replace(self, **changes: Any) -> "Architecture":
        """Returns a copy with some fields changed."""
        return replace(self, **changes)

    @property
    def has_output_projection(self) -> bool:
        return self.std_o is not None

    @property
    def score_variance(self) -> float:
        """Variance of the scores a_ts of normalised tokens."""
        if self.qk_norm:
            return self.score_scale**2 * self.head_width
        weights = self.std_q**2 * self.std_k**2
        return self.score_scale**2 * self.head_width * self.width**2 * weights

    @property
    def sigma_v2(self) -> float:
        """sigma_V^2: variance of the attention output of a token that attends to a single token."""
        output = 1.0 if self.std_o is None else self.heads * self.head_width * self.std_o**2
        return self.width * self.std_v**2 * output

    @property
    def sigma_1_squared(self) -> float:
        """sigma_1^2: variance of the MLP's hidden layer before the activation."""
        return self.width * self.std_1**2

    @property
    def sigma_2_squared(self) -> float:
        """sigma_2^2: variance of the MLP's output for hidden units of variance 1."""
        return self.mlp_width * self.std_2**2

    def beta(self, length: int) -> float:
        """Returns the score scale beta: scores have variance beta^2 ln T, T = length."""
        return math.sqrt(self.score_variance / math.log(length))

    def input_moments(self, rho0: float | None = None, repeat: float = 0.0) -> tuple[float, float]:
        """Returns q = E x_t.x_t / d and p = E x_t.x_t' / d of the first block's input tokens.

        Args:
          rho0: cosine of two embedded tokens; None computes it from the embedding's variances.
          repeat: probability that two tokens are the same symbol.
        """
        q = self.std_embed**2 + self.std_position**2 + self.std_type**2
        p = repeat * self.std_embed**2 + self.std_type**2
        if rho0 is not None:
            p = rho0 * q
        if self.embed_norm and q > 0:
            q, p = q / (q + self.eps), p / (q + self.eps)
        return q * self.embed_gain, p * self.embed_gain

    def describe(self) -> str:
        """Returns a one-line description, such as "post-norm, causal, LayerNorm, W_O, ..."."""
        mlp = f"{self.mlp_width / self.width:g}d"
        gate = "gated " if self.gated else ""
        names = [
            "pre-norm" if self.pre_norm else "post-norm",
            "causal" if self.causal else "bidirectional",
            "LayerNorm" if self.norm == "layer" else "RMSNorm",
            "no W_O" if self.std_o is None else "W_O",
            f"hidden {mlp}",
            f"{gate}{self.activation}",
        ]
        if self.output_norm:
            names.append("normed branch outputs")
        if self.qk_norm:
            names.append("normed queries and keys")
        if self.parallel:
            names.append("parallel attention and MLP")
        if self.kv_heads and self.kv_heads != self.heads:
            names.append(f"{self.heads} query and {self.kv_heads} key heads")
        if self.rotary:
            names.append("rotary positions" if self.rotary == 1 else f"rotary {self.rotary:g}")
        if (self.alpha_sa, self.alpha_mlp) != (1, 1):
            names.append(f"residual weights {self.alpha_sa:g} and {self.alpha_mlp:g}")
        return ", ".join(names)
