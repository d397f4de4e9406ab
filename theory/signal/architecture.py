"""What signal propagation needs to know about a transformer at initialisation: every number of it.

    pre-norm     X <- alpha_SA X + SA(N(X)),    X <- alpha_MLP X + MLP(N(X))
    parallel     X <- alpha_SA X + SA(N(X)) + MLP(N'(X))
    post-norm    X <- N(alpha_SA X + SA(X)),    X <- N(alpha_MLP X + MLP(X))

N divides by sqrt(mean(x^2) + eps). LayerNorm and RMSNorm are one here: subtracting the mean of
`width` entries changes averages by 1/width. Deviations are those of the entries of a matrix.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

from jaxformer.core.errors import UserError, check_choice

# The names of jaxformer.models.activations, without importing jax.
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "quick_gelu", "silu", "tanh", "linear")
NORMS = ("layer", "rms")
COUNTS = ("layers", "width", "heads", "kv_heads", "head_width", "mlp_width")
DEVIATIONS = ("std_q", "std_k", "std_v", "std_o", "std_1", "std_2")
DEVIATIONS += ("std_bias", "std_embed", "std_position", "std_type")
WEIGHTS = ("score_scale", "alpha_sa", "alpha_mlp")


@dataclass(frozen=True)
class Architecture:
    """A transformer at initialisation. The defaults are those of a plain post-norm encoder."""

    layers: int  # L
    width: int  # d
    heads: int  # H
    head_width: int  # entries of one query
    mlp_width: int  # m
    std_q: float
    std_k: float
    std_v: float
    std_1: float  # W_1, of a gated MLP both W_gate and W_up
    std_2: float
    score_scale: float  # scores are score_scale q.k: 1/sqrt(head_width), muP 1/head_width, T5 1
    kv_heads: int = 0  # grouped queries: fewer heads of keys and values; 0: as many as heads
    std_o: float | None = None  # None: no output projection after attention
    std_bias: float = 0.0  # of both biases of the MLP
    alpha_sa: float = 1.0  # weights of the residuals
    alpha_mlp: float = 1.0
    pre_norm: bool = False
    norm: str = "layer"
    eps: float = 0.0
    causal: bool = False
    parallel: bool = False  # attention and MLP read the same input (GPT-NeoX)
    gated: bool = False  # W_2 (phi(W_gate x) * W_up x)
    activation: str = "gelu"
    rotary: float = 0.0  # the fraction of a head that turns
    rotary_base: float = 10_000.0
    std_embed: float = 1.0
    std_position: float = 0.0
    std_type: float = 0.0  # one vector that all tokens of a segment share
    embed_norm: bool = False
    embed_gain: float = 1.0  # variance x fan-in of a projection after the embedding (ELECTRA)

    def __post_init__(self):
        for name in COUNTS:
            value = getattr(self, name)
            least = 0 if name == "kv_heads" else 1
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise UserError(
                    f"{name} must be a whole number of at least {least}, got {value!r}."
                )
        for name in (*DEVIATIONS, *WEIGHTS, "eps", "embed_gain"):
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
        if self.std_o is None and self.heads * self.head_width != self.width:
            raise UserError("without an output projection the heads must fill the width.")

    def replace(self, **changes: Any) -> "Architecture":
        return replace(self, **changes)

    @property
    def score_variance(self) -> float:
        """Var(a_ts) of normalised tokens."""
        one = self.width * self.std_q * self.width * self.std_k
        return one * one and self.score_scale**2 * self.head_width * self.width**2 * (
            self.std_q**2 * self.std_k**2
        )

    @property
    def sigma_v2(self) -> float:
        """The variance of what attention adds when it looks at one token."""
        out = 1.0 if self.std_o is None else self.heads * self.head_width * self.std_o**2
        return self.width * self.std_v**2 * out

    @property
    def sigma_12(self) -> float:
        """Variance of the hidden layer before the activation."""
        return self.width * self.std_1**2

    @property
    def sigma_22(self) -> float:
        return self.mlp_width * self.std_2**2

    def beta(self, length: int) -> float:
        """Scores have variance beta^2 ln T."""
        return math.sqrt(self.score_variance / math.log(length))

    def start(self, rho0: float | None = None, repeat: float = 0.0) -> tuple[float, float]:
        """(q, p) of the tokens as they enter the first block.

        `repeat` is the chance that two tokens are the same word. `rho0`, the cosine of two tokens
        of the embedding, replaces what the config says of it.
        """
        q = self.std_embed**2 + self.std_position**2 + self.std_type**2
        p = repeat * self.std_embed**2 + self.std_type**2
        if rho0 is not None:
            p = rho0 * q
        if self.embed_norm and q > 0:
            q, p = q / (q + self.eps), p / (q + self.eps)
        return q * self.embed_gain, p * self.embed_gain

    def describe(self) -> str:
        """The architecture in one line."""
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
        if self.parallel:
            names.append("parallel attention and MLP")
        if self.kv_heads and self.kv_heads != self.heads:
            names.append(f"{self.heads} query and {self.kv_heads} key heads")
        if self.rotary:
            names.append("rotary positions" if self.rotary == 1 else f"rotary {self.rotary:g}")
        if (self.alpha_sa, self.alpha_mlp) != (1, 1):
            names.append(f"residual weights {self.alpha_sa:g} and {self.alpha_mlp:g}")
        return ", ".join(names)
