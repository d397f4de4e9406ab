"""Rotary positions as published models scale them: how fast each pair of a head turns.

plain     f_k = base^(-2k/K)
linear    f_k / factor
llama3    fast pairs stay, slow ones turn `factor` times slower, a ramp in between:
          f_k' = (1 - s) f_k / factor + s f_k,   s = clip((L f_k / 2 pi - low)/(high - low), 0, 1)
          with the length L of the first training
longrope  f_k / short_k up to L tokens, f_k / long_k beyond; cos and sin times `scale`. The
          longest sequence of a batch decides for all of it, as in transformers.
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
    """The first `width` dimensions of a head turn."""

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
            raise UserError(f"rotary positions turn pairs: an even width is needed, {self.width}.")
        numbers = [self.base, self.factor, self.scale, *self.short, *self.long]
        if not all(0 < number < math.inf for number in numbers):
            raise UserError("the base, the factors and the scale of rotary positions are above 0.")
        if self.kind in ("llama3", "longrope") and not 1 <= self.first_length < 2**31:
            raise UserError(
                f"{self.kind} needs the length of the first training, got {self.first_length}."
            )
        if self.kind == "llama3" and not 0 < self.low < self.high:
            raise UserError(f"llama3 needs 0 < low < high, got {self.low} and {self.high}.")
        if self.kind == "longrope" and not len(self.short) == len(self.long) == self.width // 2:
            raise UserError(
                f"longrope needs {self.width // 2} short and as many long factors, got "
                f"{len(self.short)} and {len(self.long)}."
            )

    def rates(self, length: int) -> np.ndarray:
        """f of each pair in a sequence of this length, (K/2,), radians a token."""
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

    def angles(self, places_BxT: jax.Array) -> jax.Array:
        """(B, T, K/2), of the tokens at these places; the last place says how long they are."""
        rates_k = jnp.asarray(self.rates(1), float)
        if self.kind == "longrope":
            longer_k = jnp.asarray(self.rates(self.first_length + 1), float)
            rates_k = jnp.where(places_BxT.max() >= self.first_length, longer_k, rates_k)
        return places_BxT[..., None] * rates_k[None, None]
