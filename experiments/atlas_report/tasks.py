"""Ten small tasks, each of which asks for one thing.

copy        a b c > a b c           shift       the token three places back
reverse     a b c > c b a           majority    the more frequent of two tokens
sort        c a b > a b c           count       how many of the tokens are 1
induction   what followed last time parity      whether the sum is odd
brackets    the bracket to close    sum         the sum of three numbers modulo 11
"""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.tasks.task import Batch, Task

GAP = 0  # the token between the given sequence and the answer


@dataclass(frozen=True)
class Small(Task):
    """A task whose trivial predictor gives each scored place its most frequent answer."""

    @property
    def length(self) -> int:
        return 12

    def baselines(self, batch: Batch) -> dict[str, float]:
        targets, scored = np.asarray(batch.targets), np.asarray(batch.weights) > 0
        hits = sum(
            np.bincount(targets[scored[:, place], place]).max()
            for place in np.flatnonzero(scored.any(0))
        )
        return {"best_constant_by_place": float(hits / scored.sum())}


@dataclass(frozen=True)
class Rewrite(Small):
    """Six given tokens, then what `rule` makes of them, token by token."""

    rule: str = "copy"
    tokens: int = 12
    given: int = 6

    @property
    def vocab_size(self) -> int:
        return self.tokens + 1

    @property
    def n_scored(self) -> int:
        return self.given

    def example(self, key: jax.Array, index: jax.Array) -> Batch:
        given = jax.random.randint(key, (self.given,), 1, self.tokens + 1)
        answer = RULES[self.rule](given)
        inputs = jnp.concatenate([given, jnp.full(1, GAP, given.dtype), answer[:-1]])
        targets = jnp.concatenate([jnp.zeros_like(given), answer])
        return Batch(inputs, targets, (jnp.arange(self.length) >= self.given) * 1.0)


RULES: dict[str, Callable[[jax.Array], jax.Array]] = {
    "copy": lambda given: given,
    "reverse": lambda given: given[::-1],
    "sort": jnp.sort,
}


@dataclass(frozen=True)
class Shift(Small):
    """Each token is answered by the token three places back."""

    tokens: int = 12
    back: int = 3

    @property
    def vocab_size(self) -> int:
        return self.tokens

    @property
    def n_scored(self) -> int:
        return self.length - self.back

    def example(self, key: jax.Array, index: jax.Array) -> Batch:
        given = jax.random.randint(key, (self.length,), 0, self.tokens)
        targets = jnp.roll(given, self.back)
        return Batch(given, targets, (jnp.arange(self.length) >= self.back) * 1.0)


@dataclass(frozen=True)
class Induction(Small):
    """Six different tokens, twice: what follows a token the second time followed it the first."""

    tokens: int = 16

    @property
    def vocab_size(self) -> int:
        return self.tokens

    @property
    def n_scored(self) -> int:
        return self.length // 2 - 1

    def example(self, key: jax.Array, index: jax.Array) -> Batch:
        half, turn = self.length // 2, jax.random.fold_in(key, 1)
        first = jax.random.permutation(key, self.tokens)[:half]
        # The second time it begins somewhere else, so that no fixed distance leads to the answer.
        inputs = jnp.concatenate([first, jnp.roll(first, jax.random.randint(turn, (), 0, half))])
        position = jnp.arange(self.length)
        scored = (position >= half) & (position < self.length - 1)
        return Batch(inputs, jnp.roll(inputs, -1), scored * 1.0)


@dataclass(frozen=True)
class Brackets(Small):
    """Nested brackets of two kinds: which bracket would close the innermost open one, if any."""

    @property
    def vocab_size(self) -> int:
        return 5  # ( [ ) ] and "none is open"

    @property
    def n_scored(self) -> int:
        return self.length

    def example(self, key: jax.Array, index: jax.Array) -> Batch:
        def step(carry, key):
            stack, depth = carry
            kind, opens = jax.random.randint(key, (2,), 0, 2)
            opens = (opens == 1) | (depth == 0)
            top = jnp.where(depth > 0, stack[depth - 1], 0)
            stack = jnp.where(opens, stack.at[depth].set(kind), stack)
            depth = jnp.where(opens, depth + 1, depth - 1)
            innermost = jnp.where(depth > 0, 2 + stack[depth - 1], 4)
            return (stack, depth), (jnp.where(opens, kind, 2 + top), innermost)

        start = jnp.zeros(self.length, jnp.int32), jnp.zeros((), jnp.int32)
        _, (inputs, targets) = jax.lax.scan(step, start, jax.random.split(key, self.length))
        return Batch(inputs, targets, jnp.ones(self.length))


@dataclass(frozen=True)
class Summary(Small):
    """Numbers, and one answer about all of them at the last place."""

    rule: str = "parity"

    @property
    def vocab_size(self) -> int:
        return max(SUMMARIES[self.rule].n_tokens, SUMMARIES[self.rule].n_answers) + 1

    @property
    def length(self) -> int:
        return SUMMARIES[self.rule].given + 1

    @property
    def n_scored(self) -> int:
        return 1

    def example(self, key: jax.Array, index: jax.Array) -> Batch:
        rule, last = SUMMARIES[self.rule], self.vocab_size - 1  # the last token asks for the answer
        given = jax.random.randint(key, (rule.given,), 0, rule.n_tokens)
        inputs = jnp.append(given, last)
        targets = jnp.zeros_like(inputs).at[-1].set(rule.answer(given))
        return Batch(inputs, targets, (jnp.arange(self.length) == rule.given) * 1.0)


@dataclass(frozen=True)
class Rule:
    """The question of a `Summary` about its numbers."""

    answer: Callable[[jax.Array], jax.Array]
    given: int
    n_tokens: int
    n_answers: int


SUMMARIES = {
    "majority": Rule(lambda given: (2 * given.sum() > given.size).astype(int), 15, 2, 2),
    "count": Rule(lambda given: (given == 1).sum(), 10, 3, 11),
    "parity": Rule(lambda given: given.sum() % 2, 3, 12, 2),
    "sum": Rule(lambda given: given.sum() % 11, 3, 11, 11),
}
TASKS: dict[str, Task] = {
    **{rule: Rewrite(rule=rule) for rule in RULES},
    "shift": Shift(),
    "induction": Induction(),
    "brackets": Brackets(),
    **{rule: Summary(rule=rule) for rule in SUMMARIES},
}
