"""Rotary positions and their scalings in published models: the rate f_k of each pair of a head.

A head has D rotating dimensions. L is the length of pretraining.

plain     f_k = base^(-2k/D)
linear    f_k / factor
dynamic   beyond L tokens the base grows with the number of tokens n of the longest sequence:
          base (factor n / L - (factor - 1))^(D/(D-2))
llama3    fast pairs stay, slow pairs rotate `factor` times slower, with a ramp in between:
          f_k' = (1 - s) f_k / factor + s f_k,   s = clip((L f_k / 2 pi - low)/(high - low), 0, 1)
yarn      llama3 with another s: a ramp in k between the pairs that make `high` and `low` turns in L
          tokens; cos and sin are multiplied by `scale`
longrope  f_k / short_k up to L tokens, f_k / long_k beyond; cos and sin are multiplied by `scale`.
          The longest sequence of a batch decides for the whole batch, as in transformers.
"""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError, check_choice
from jaxformer.models import attention
from jaxformer.models.pretrained.rotary_fields import ROTARY_KINDS


@dataclass(frozen=True)
class Rotary:
    """The rotary positions of a head; the module's docstring has the formulas."""

    width: int  # D, the number of leading dimensions that rotate
    base: float = 10_000.0
    kind: str = "plain"
    factor: float = 1.0
    low: float = 1.0
    high: float = 4.0
    pretraining_length: int = 0  # L
    short: tuple[float, ...] = ()  # longrope: short_k, a factor for each pair
    long: tuple[float, ...] = ()  # longrope: long_k
    scale: float = 1.0
    is_truncated: bool = True  # yarn: the ramp begins and ends at whole pairs
    interleaved: bool = False  # the pairs are (x_2k, x_2k+1), otherwise (x_k, x_k+D/2)

    def __post_init__(self):
        check_choice("rotary scaling", self.kind, ROTARY_KINDS)
        if self.width < 2 or self.width % 2:
            raise UserError(f"rotary positions need an even width of at least 2, got {self.width}.")
        numbers = [self.base, self.factor, self.scale, *self.short, *self.long]
        if wrong := [number for number in numbers if not 0 < number < math.inf]:
            raise UserError(
                "base, factors and scale of rotary positions must be finite and above 0, got "
                f"{wrong[0]}."
            )
        if self.kind not in ("plain", "linear") and not 1 <= self.pretraining_length < 2**31:
            raise UserError(
                f"{self.kind} needs the length of pretraining, got {self.pretraining_length}."
            )
        if self.kind in ("llama3", "yarn") and not 0 < self.low < self.high:
            raise UserError(f"{self.kind} needs 0 < low < high, got {self.low} and {self.high}.")
        if self.kind == "dynamic" and self.width < 4:
            raise UserError(f"dynamic needs at least 4 rotary dimensions, got {self.width}.")
        if self.kind == "longrope" and not len(self.short) == len(self.long) == self.width // 2:
            raise UserError(
                f"longrope needs {self.width // 2} short and {self.width // 2} long factors, got "
                f"{len(self.short)} and {len(self.long)}."
            )

    def rates(self, length: int) -> np.ndarray:
        """Returns f of each pair for sequences of this length, (D/2,), in radians per token."""
        base = self.base
        if self.kind == "dynamic" and length > self.pretraining_length:
            base *= self._base_factor(length)
        f_k = base ** (-np.arange(0, self.width, 2) / self.width)
        if self.kind == "linear":
            return f_k / self.factor
        if self.kind == "llama3":
            turns_k = self.pretraining_length * f_k / (2 * math.pi)
            s_k = np.clip((turns_k - self.low) / (self.high - self.low), 0, 1)
            return (1 - s_k) * f_k / self.factor + s_k * f_k
        if self.kind == "yarn":
            s_k = 1 - self._ramp()
            return (1 - s_k) * f_k / self.factor + s_k * f_k
        if self.kind == "longrope":
            return f_k / np.array(self.long if length > self.pretraining_length else self.short)
        return f_k

    def _base_factor(self, length: Any) -> Any:
        """Returns the factor of the base in sequences of a length beyond L (dynamic)."""
        ratio = self.factor * length / self.pretraining_length - (self.factor - 1)
        return ratio ** (self.width / (self.width - 2))

    def _ramp(self) -> np.ndarray:
        """Returns YaRN's ramp, (D/2,): 0 for fast pairs, 1 for slow pairs."""

        # The fractional index k of the pair that makes this many turns in L tokens.
        def pair_of(turns: float) -> float:
            ratio = self.pretraining_length / (turns * 2 * math.pi)
            return self.width * math.log(ratio) / (2 * math.log(self.base))

        first, last = pair_of(self.high), pair_of(self.low)
        if self.is_truncated:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, self.width - 1)
        last += 0.001 if first == last else 0  # the width of the ramp is a divisor
        return np.clip((np.arange(self.width // 2) - first) / (last - first), 0, 1)

    def angles(self, position_BxT: jax.Array) -> jax.Array:
        """Returns the angles at these positions, (B, T, D/2).

        The highest position decides which factors of longrope and which base of dynamic apply.
        """
        rates_k = jnp.asarray(self.rates(1), float)  # the rates up to L tokens
        if self.kind == "longrope":
            longer_k = jnp.asarray(self.rates(self.pretraining_length + 1), float)
            rates_k = jnp.where(position_BxT.max() >= self.pretraining_length, longer_k, rates_k)
        if self.kind == "dynamic":
            length = jnp.maximum(position_BxT.max() + 1, self.pretraining_length)
            exponents_k = jnp.asarray(-np.arange(0, self.width, 2) / self.width, float)
            rates_k = rates_k * self._base_factor(length) ** exponents_k
        return position_BxT[..., None] * rates_k[None, None]

    def turn(self, x_BxTxHxD: jax.Array, angles_BxTxk: jax.Array) -> jax.Array:
        """Returns queries or keys, rotated by these angles."""
        if not self.interleaved:
            return attention.rotate(x_BxTxHxD, angles_BxTxk, self.scale)
        turning, rest = x_BxTxHxD[..., : self.width], x_BxTxHxD[..., self.width :]
        halves = jnp.concatenate([turning[..., ::2], turning[..., 1::2]], -1)
        first, second = jnp.split(attention.rotate(halves, angles_BxTxk, self.scale), 2, -1)
        turned = jnp.stack([first, second], -1).reshape(turning.shape)
        return jnp.concatenate([turned, rest], -1)
