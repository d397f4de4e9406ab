"""Decimal and modular addition.

Decimal: two numbers with exactly `digits` digits, their sum and a stop token.

    paper     1234+5678=6912.     as the paper's example prints it
    authors   4321+8765=2196.     the same sum with all digits reversed

Answer digits have the tokens 20..29. The authors score a position if its input is an answer token.
So the first answer digit, which is predicted from "=", is neither trained nor scored. If the sum
has only `digits` digits, a pad follows the stop, and it is scored. scored="strict" scores every
answer digit and the stop.
"""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError, check_choice, check_range, check_types
from jaxformer.tasks import trivial
from jaxformer.tasks.task import (
    TOKEN_SCORES,
    Batch,
    Declared,
    OneAnswer,
    Task,
    by_range,
    ranges,
)

# Tokens; digits of the summands are 0..9, digits of the answer ANSWER + 0..9.
PLUS, EQUALS, PAD, ANSWER, STOP = 10, 11, 12, 20, 30
FORMATS = ("authors", "paper")
SCORED = ("authors", "strict")


@dataclass(frozen=True)
class DecimalAddition(Task):
    digits: int = 10  # of each summand
    format: str = "authors"  # the order of the digits: authors | paper
    scored: str = "authors"  # the positions that count in loss and accuracy: authors | strict

    def __post_init__(self):
        check_types(type(self), vars(self))
        check_choice("format of decimal addition", self.format, FORMATS)
        check_choice("scored positions of decimal addition", self.scored, SCORED)
        check_range("digits of decimal addition", self.digits, 1, 1000)

    @property
    def vocab_size(self) -> int:
        return 31

    @property
    def length(self) -> int:
        return 3 * self.digits + 4

    @property
    def n_scored(self) -> int:
        # A sum has at most digits + 1 digits. "strict" adds the stop.
        return self.digits + (1 if self.scored == "authors" else 2)

    def example(self, key: jax.Array, index: jax.Array) -> Batch:
        n = self.digits
        a_key, b_key = jax.random.split(key)
        a, b = (_random_digits(k, n) for k in (a_key, b_key))  # least significant digit first
        total, carry = [], jnp.int32(0)
        for i in range(n):
            total.append((a[i] + b[i] + carry) % 10)
            carry = (a[i] + b[i] + carry) // 10
        answer = jnp.stack([*total, carry])  # n + 1 digits; the last is the final carry
        n_answer = n + carry
        if self.format == "paper":
            a, b = a[::-1], b[::-1]
            answer = jnp.where(carry > 0, answer[::-1], jnp.roll(answer[::-1], -1))
        position = jnp.arange(n + 2)
        tail = jnp.where(position < n_answer, ANSWER + jnp.append(answer, 0), PAD)
        tail = jnp.where(position == n_answer, STOP, tail)
        sequence = jnp.concatenate([a, jnp.array([PLUS]), b, jnp.array([EQUALS]), tail])
        sequence = sequence.astype(jnp.int32)
        inputs, targets = sequence[:-1], sequence[1:]
        scored = inputs >= ANSWER if self.scored == "authors" else targets >= ANSWER
        return Batch(inputs, targets, scored * 1.0)

    def baselines(self, batch: Batch) -> dict[str, float]:
        """Returns accuracies of the best answer by position, and by position and token."""
        fit = trivial.fitting_examples(self)
        return {
            "by_position": trivial.best_by(lambda b: _position_and_token(b)[:1], fit, batch),
            "by_position_and_token": trivial.best_by(_position_and_token, fit, batch),
            "unigram_loss": trivial.unigram_loss(fit, batch),
        }

    def groups(self, batch: Batch) -> dict[str, jax.Array]:
        """Returns groups by the number of digits that carry over."""
        n = self.digits
        a, b = batch.inputs[:, :n], batch.inputs[:, n + 1 : 2 * n + 1]
        if self.format == "paper":
            a, b = a[:, ::-1], b[:, ::-1]
        carry_B = n_carries_B = jnp.zeros(len(a), jnp.int32)
        for i in range(n):
            carry_B = (a[:, i] + b[:, i] + carry_B) // 10
            n_carries_B += carry_B
        return by_range("carries", n_carries_B, ranges(n, 0))

    @property
    def declared(self) -> Declared:
        return Declared(TOKEN_SCORES, ("by_position", "by_position_and_token", "unigram_loss"))


@dataclass(frozen=True)
class ModularAddition(OneAnswer):
    """Modular addition a, b -> (a + b) mod p over all p^2 ordered pairs; p need not be prime."""

    p: int = 199  # the modulus

    def __post_init__(self):
        check_types(type(self), vars(self))
        if not 2 <= self.p <= 40_000:
            raise UserError(f"modular addition needs 2 <= p <= 40,000, got {self.p}.")

    @property
    def remark(self) -> str:
        divisor = next((d for d in range(2, int(self.p**0.5) + 1) if self.p % d == 0), None)
        if divisor is None:
            return ""
        return f"p = {self.p} is not prime ({divisor} divides it); the papers' p is prime."

    @property
    def vocab_size(self) -> int:
        return self.p

    @property
    def length(self) -> int:
        return 3

    @property
    def size(self) -> int:
        return self.p**2

    @property
    def held_out(self) -> bool:
        return True

    def example(self, key: jax.Array, index: jax.Array) -> Batch:
        del key  # the index enumerates the pairs
        index = jnp.asarray(index, jnp.int32)
        a, b = index // self.p, index % self.p
        answer = (a + b) % self.p
        targets = jnp.stack([jnp.zeros_like(answer), answer])
        return Batch(jnp.stack([a, b]), targets, jnp.array([0.0, 1.0]))

    def baselines(self, batch: Batch) -> dict[str, float]:
        # Over all pairs every sum is equally frequent, so the constant answer 0 is among the best.
        is_zero = np.asarray(batch.targets)[:, -1] == 0
        return {
            "best_constant": float(is_zero.mean()),
            "uniform": 1 / self.p,
            "unigram_loss": math.log(self.p),
        }

    @property
    def declared(self) -> Declared:
        return Declared(TOKEN_SCORES, ("best_constant", "uniform", "unigram_loss"))


def _position_and_token(batch: Batch) -> tuple[np.ndarray, ...]:
    """Returns the position and the token at each position."""
    inputs = np.asarray(batch.inputs)
    return np.broadcast_to(np.arange(inputs.shape[1]), inputs.shape), inputs


def _random_digits(key: jax.Array, digits: int) -> jax.Array:
    """Returns the digits of a random number without leading zero, least significant first."""
    draws = jax.random.uniform(key, (digits,), jnp.float32)
    smallest = jnp.where(jnp.arange(digits) == digits - 1, 1, 0)  # no leading zero
    return smallest + jnp.floor(draws * (10 - smallest)).astype(jnp.int32)
