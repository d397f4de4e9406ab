"""Rotary positions and their scalings in published models: the rate f_k of each pair of a head.

plain     f_k = base^(-2k/D)
linear    f_k / factor
llama3    fast pairs stay, slow pairs rotate `factor` times slower, with a ramp in between:
          f_k' = (1 - s) f_k / factor + s f_k,   s = clip((L f_k / 2 pi - low)/(high - low), 0, 1)
          with the length L of pretraining
longrope  f_k / short_k up to L tokens, f_k / long_k beyond; cos and sin are multiplied by `scale`.
          The longest sequence of a batch decides for the whole batch, as in transformers.
"""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError, check_choice

KINDS = ("plain", "linear", "llama3", "longrope")


@dataclass(frozen=True)
class Rotary:
    """The rotary positions of a head, whose first `width` dimensions rotate."""

    width: int
    base: float = 10_000.0
    kind: str = "plain"
    factor: float = 1.0
    low: float = 1.0
    high: float = 4.0
    first_length: int = 0  # L
    short: tuple[float, ...] = ()
    long: tuple[float, ...] = ()
    scale: float = 1.0

    def __post_init__(self):
        check_choice("rotary scaling", self.kind, KINDS)
        if self.width < 2 or self.width % 2:
            raise UserError(f"rotary positions need an even width of at least 2, got {self.width}.")
        numbers = [self.base, self.factor, self.scale, *self.short, *self.long]
        if not all(0 < number < math.inf for number in numbers):
            raise UserError("base, factors and scale of rotary positions must be above 0.")
        if self.kind in ("llama3", "longrope") and not 1 <= self.first_length < 2**31:
            raise UserError(
                f"{self.kind} needs the length of pretraining, got {self.first_length}."
            )
        if self.kind == "llama3" and not 0 < self.low < self.high:
            raise UserError(f"llama3 needs 0 < low < high, got {self.low} and {self.high}.")
        if self.kind == "longrope" and not len(self.short) == len(self.long) == self.width // 2:
            raise UserError(
                f"longrope needs {self.width // 2} short and {self.width // 2} long factors, got "
                f"{len(self.short)} and {len(self.long)}."
            )

    def rates(self, length: int) -> np.ndarray:
        """Returns f of each pair for sequences of this length, (D/2,), in radians per token."""
        f_k = self.base ** (-np.arange(0, self.width, 2) / self.width)
        if self.kind == "linear":
            return f_k / self.factor
        if self.kind == "llama3":
            turns_k = self.first_length * f_k / (2 * math.pi)
            s_k = np.clip((turns_k - self.low) / (self.high - self.low), 0, 1)
            return (1 - s_k) * f_k / self.factor + s_k * f_k
        if self.kind == "longrope":
            return f_k / np.array(self.long if length > self.first_length else self.short)
        return f_k

    def angles(self, position_BxT: jax.Array) -> jax.Array:
        """Returns the angles at these positions, (B, T, D/2).

        The highest position decides which factors of longrope apply.
        """
        rates_k = jnp.asarray(self.rates(1), float)
        if self.kind == "longrope":
            longer_k = jnp.asarray(self.rates(self.first_length + 1), float)
            rates_k = jnp.where(position_BxT.max() >= self.first_length, longer_k, rates_k)
        return position_BxT[..., None] * rates_k[None, None]
