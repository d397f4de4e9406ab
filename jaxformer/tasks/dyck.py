"""Dyck-1: classification of strings of parentheses as balanced or not.

    ( ( ) ) ?  -> ")" if balanced, else "("        tokens: 0 pad, 1 "(", 2 ")", 3 "?"

Strings have up to 2K parentheses, K = `pairs`. The paper's "length 40" means K = 20 if it counts
parentheses, and K = 40 if it counts pairs, as the authors' examples do. A third of the strings are
coin flips of uniform length. The others begin balanced, with t ~ U{1..K} pairs, and half of these
are not changed. The other half and the coin flips get swaps, flips, both or neither, with equal
probability. Labels are computed at the end. A comparison of the counts of "(" and ")" labels 93 %
of the strings correctly. So `accuracy_hard` scores unbalanced strings with equal counts.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import check_range, check_types
from jaxformer.tasks import trivial
from jaxformer.tasks.task import (
    MIN_EXAMPLES_OF_A_KIND,
    TOKEN_SCORES,
    Batch,
    Declared,
    OneAnswer,
    Scores,
    by_range,
    token_metrics,
)

OPEN, CLOSE, ASK = 1, 2, 3
MAX_SWAPS = 16  # a geometric count exceeds it once in 65,536 examples


@dataclass(frozen=True)
class Dyck(OneAnswer):
    pairs: int = 20  # K, half of the largest number of parentheses

    def __post_init__(self):
        check_types(type(self), vars(self))
        check_range("pairs of dyck", self.pairs, 1, 100_000)

    @property
    def vocab_size(self) -> int:
        return 4

    @property
    def length(self) -> int:
        return 2 * self.pairs + 3

    def example(self, key: jax.Array, index: jax.Array) -> Batch:
        K = self.pairs
        grow_key, draw_key = jax.random.split(key)
        u = jax.random.uniform(draw_key, (8 + 2 * K + 4 * MAX_SWAPS,), jnp.float32)
        u_coin, u_pairs, u_stays, u_doubled, u_mode, u_length, u_swaps, u_flips = u[:8]
        # Rows 0 and 1 have the positions of swaps, rows 2 and 3 the positions of flips.
        coins, positions = u[8 : 8 + 2 * K], u[8 + 2 * K :].reshape(4, MAX_SWAPS)

        is_coin = u_coin < 1 / 3
        pairs = 1 + jnp.floor(u_pairs * K).astype(jnp.int32)
        n = jnp.where(is_coin, 1 + jnp.floor(u_length * 2 * K).astype(jnp.int32), 2 * pairs)
        s = jnp.where(is_coin, coins < 0.5, _draw_balanced(grow_key, pairs, K))  # True is "("
        # The mode is 0: no change, 1: swaps, 2: flips, 3: both.
        mode = jnp.floor(u_mode * 4).astype(jnp.int32)
        mode = jnp.where(~is_coin & (u_stays < 0.5), 0, mode)
        has_swaps, has_flips = mode % 2 == 1, mode >= 2

        swaps = jnp.where(has_swaps, _geometric(u_swaps), 0)
        flip_factor = jnp.where(u_doubled < 2 / 3, 2, 1)
        flips = jnp.where(has_flips, _geometric(u_flips) * flip_factor, 0)
        first, second = (jnp.floor(p * n).astype(jnp.int32) for p in positions[:2])
        s = jax.lax.fori_loop(
            0, MAX_SWAPS, lambda i, s: _swap(s, first[i], second[i], i < swaps), s
        )
        flipped = jnp.floor(positions[2:].ravel() * n).astype(jnp.int32)
        is_used = (jnp.arange(2 * MAX_SWAPS) < flips).astype(jnp.int32)
        n_flips_of_position = jnp.zeros(2 * K, jnp.int32).at[flipped].add(is_used)
        s = s ^ (n_flips_of_position % 2 == 1)

        position = jnp.arange(2 * K + 1)
        tokens = jnp.where(position < n, jnp.where(jnp.append(s, False), OPEN, CLOSE), 0)
        tokens = jnp.where(position == n, ASK, tokens).astype(jnp.int32)
        answer = jnp.where(is_balanced(tokens), CLOSE, OPEN)
        is_query = tokens == ASK
        return Batch(tokens, jnp.where(is_query, answer, 0).astype(jnp.int32), is_query * 1.0)

    def is_common(self, example: Batch) -> jax.Array:
        """Returns True if few strings have the length n and the kind of the example.

        There are 2^n strings of length n. C(n, n/2) of them have equal counts of "(" and ")", and
        C(n, n/2)/(n/2 + 1) are balanced.
        """
        tokens = example.inputs
        n = (tokens == ASK).argmax()
        equal = (tokens == OPEN).sum() == (tokens == CLOSE).sum()
        balanced = is_balanced(tokens)
        return (
            (n <= _longest_common(lambda n: 2**n))
            | equal & (n <= _longest_common(lambda n: math.comb(n, n // 2)))
            | balanced & (n <= _longest_common(lambda n: math.comb(n, n // 2) // (n // 2 + 1)))
        )

    def metrics(self, logits_BxKxV: jax.Array, batch: Batch) -> dict[str, Scores]:
        scores = token_metrics(logits_BxKxV, batch)
        equal = (batch.inputs == OPEN).sum(-1) == (batch.inputs == CLOSE).sum(-1)
        answer_B = (batch.targets * (batch.weights > 0)).sum(-1)
        hard = equal & (answer_B == OPEN)
        accuracy = scores["accuracy"]
        return scores | {"accuracy_hard": Scores(accuracy.value, accuracy.weight * hard)}

    def baselines(self, batch: Batch) -> dict[str, float]:
        """Returns accuracies of the majority answer and of two predictors of balance.

        "equal_counts" predicts balance if "(" and ")" are equally frequent. "equal_counts_and_ends"
        also needs "(" at the start and ")" at the end.
        """
        inputs, targets, weights = map(np.asarray, batch)
        balanced = (targets * (weights > 0)).sum(-1) == CLOSE
        n = (inputs == ASK).argmax(-1)
        equal = (inputs == OPEN).sum(-1) == (inputs == CLOSE).sum(-1)
        last = inputs[np.arange(len(n)), np.maximum(n - 1, 0)]
        ends = equal & (inputs[:, 0] == OPEN) & (last == CLOSE)
        fit = trivial.fitting_examples(self)
        return {
            "majority": trivial.best_constant(fit, batch),
            "equal_counts": float((equal == balanced).mean()),
            "equal_counts_and_ends": float((ends == balanced).mean()),
            "unigram_loss": trivial.unigram_loss(fit, batch),
        }

    def groups(self, batch: Batch) -> dict[str, jax.Array]:
        """Returns groups by the number of parentheses: 1-2, 3-4, 5-8, and so on."""
        lows = [1, *(2**i + 1 for i in range(1, self.pairs.bit_length() + 1))]
        bounds = [(low, min(max(2, 2 * (low - 1)), 2 * self.pairs)) for low in lows]
        bounds = [(low, high) for low, high in bounds if low <= high]
        return by_range("length", (batch.inputs == ASK).argmax(-1), bounds)

    @property
    def declared(self) -> Declared:
        names = ("majority", "equal_counts", "equal_counts_and_ends", "unigram_loss")
        return Declared((*TOKEN_SCORES, "accuracy_hard"), names)


def _longest_common(count: Callable[[int], int]) -> int:
    """Returns the largest length with too few strings of a kind, as `count` counts them."""
    return max(n for n in range(40) if count(n) < MIN_EXAMPLES_OF_A_KIND)


def is_balanced(tokens: jax.Array) -> jax.Array:
    """Returns True if the nesting depth is never negative and ends at zero."""
    depth = jnp.cumsum((tokens == OPEN) * 1 - (tokens == CLOSE) * 1)
    return (depth >= 0).all() & (depth[-1] == 0)


def _draw_balanced(key: jax.Array, pairs: jax.Array, max_pairs: int) -> jax.Array:
    """Returns a random balanced string as booleans, True for "(".

    A coin decides whether t pairs become "(" + (t - 1 pairs) + ")", or `left` pairs followed by
    t - `left` pairs. The recursion uses a stack of pair counts t, with -1 for a pending ")"; `top`
    is its height. It takes at most 4t - 1 visits with two random numbers each.
    """
    u = jax.random.uniform(key, (4 * max_pairs, 2), jnp.float32)

    def visit(i, carry):
        stack, top, text, n_written = carry
        t = jnp.where(top > 0, stack[jnp.maximum(top - 1, 0)], 0)
        idle = top == 0
        wrap = (t == 1) | (u[i, 0] < 0.5)
        left = 1 + jnp.floor(u[i, 1] * jnp.maximum(t - 1, 1)).astype(jnp.int32)
        left = jnp.minimum(left, jnp.maximum(t - 1, 1))
        base = jnp.maximum(top - 1, 0)
        # Wrapping pushes ")" below the enclosed pairs. Splitting pushes the right part below the
        # left one.
        below, above = jnp.where(wrap, -1, t - left), jnp.where(wrap, t - 1, left)
        grown = stack.at[base].set(below).at[base + 1].set(above)
        stack = jnp.where(idle | (t < 1), stack, grown)
        writes = ~idle & ((t == -1) | ((t >= 1) & wrap))
        text = jnp.where(writes, text.at[n_written].set(t >= 1), text)
        grown_top = jnp.where(wrap & (t == 1), top, top + 1)
        top = jnp.where(idle, 0, jnp.where(t < 1, top - 1, grown_top))
        return stack, top, text, n_written + writes

    stack = jnp.zeros(2 * max_pairs + 2, jnp.int32).at[0].set(pairs)
    start = (stack, jnp.int32(1), jnp.zeros(2 * max_pairs, bool), jnp.int32(0))
    return jax.lax.fori_loop(0, 4 * max_pairs, visit, start)[2]


def _geometric(uniform: jax.Array) -> jax.Array:
    """Returns a geometric count with P(count > c) = 2^-c, at most MAX_SWAPS."""
    count = 1 + jnp.floor(-jnp.log2(jnp.maximum(1 - uniform, 1e-9))).astype(jnp.int32)
    return jnp.minimum(count, MAX_SWAPS)


def _swap(s: jax.Array, p: jax.Array, q: jax.Array, enabled: jax.Array) -> jax.Array:
    """Exchanges positions p and q of s if `enabled` and p < q."""
    swapped = s.at[p].set(s[q]).at[q].set(s[p])
    return jnp.where(enabled & (p < q), swapped, s)
