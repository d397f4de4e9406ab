"""Needle retrieval: a list of (key, value) pairs, then a query for the value of one key.

    k_1 v_1 k_2 v_2 .. k_m v_m  q -> v(q)        m ~ U{1..M}, padded with 0

Values are iid in 1..V/2-1. Keys are distinct in both formats; the paper's text draws them iid,
which can make an answer ambiguous.

    format "authors" (code)   m of M keys; queries have other symbols than keys, so that the model
                              must learn which query belongs to which key
    format "paper" (text)     keys from all of V/2..V-1; the query is the symbol of the key
"""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError, check_choice, check_range, check_types
from jaxformer.tasks.chunked_loss import DeferredLogits
from jaxformer.tasks.task import (
    MIN_EXAMPLES_OF_A_KIND,
    TOKEN_SCORES,
    Batch,
    Declared,
    OneAnswer,
    Scores,
    by_range,
    most_likely,
    over_scored,
    ranges,
    token_metrics,
)

FORMATS = ("authors", "paper")


@dataclass(frozen=True)
class Retrieval(OneAnswer):
    max_pairs: int = 8  # M, the largest number of pairs
    vocab: int = 64  # V, the number of tokens
    format: str = "authors"  # the symbols of keys and queries: authors | paper

    def __post_init__(self):
        check_types(type(self), vars(self))
        check_choice("format of retrieval", self.format, FORMATS)
        check_range("vocab of retrieval", self.vocab, 0, 10**6)
        if self.max_pairs < 1 or 2 * self.max_pairs > self.vocab // 2:
            raise UserError(
                "retrieval needs 1 <= max_pairs <= vocab / 4 (keys and queries fill the upper "
                f"half), got max_pairs={self.max_pairs}, vocab={self.vocab}."
            )

    @property
    def vocab_size(self) -> int:
        return self.vocab

    @property
    def length(self) -> int:
        """The length of the pairs, the query, the answer and one pad, as in the authors' code."""
        return 2 * self.max_pairs + 3

    def example(self, key: jax.Array, index: jax.Array) -> Batch:
        M, half = self.max_pairs, self.vocab // 2
        # The number of key symbols, and the distance from a key to its query symbol.
        symbols, shift = (M, M) if self.format == "authors" else (half, 0)
        # One draw for everything, because compiling the generator is slow.
        draws = jax.random.uniform(key, (symbols + M + 2,), jnp.float32)  # float32 even under x64
        m = 1 + _integer_below(M, draws[0])
        queried = _integer_below(m, draws[1])
        values_M = 1 + _integer_below(half - 1, draws[2 : M + 2])
        keys_M = jnp.argsort(draws[M + 2 :])[:M].astype(jnp.int32)  # the first M of a permutation
        query = keys_M[queried] + half + shift

        pairs = jnp.stack([keys_M + half, values_M], axis=1).reshape(2 * M)
        position_T = jnp.arange(2 * M + 1, dtype=jnp.int32)
        inputs_T = jnp.where(position_T < 2 * m, jnp.append(pairs, 0), 0)
        inputs_T = jnp.where(position_T == 2 * m, query, inputs_T)
        at_query_T = position_T == 2 * m
        return Batch(inputs_T, jnp.where(at_query_T, values_M[queried], 0), at_query_T * 1.0)

    def is_common(self, example: Batch) -> jax.Array:
        """Returns True for contexts of one pair if few (key, value) pairs exist."""
        n_keys = self.max_pairs if self.format == "authors" else self.vocab // 2
        n_contexts = n_keys * (self.vocab // 2 - 1)
        has_one_pair = example.weights[2] > 0  # position 2 is the query
        return (n_contexts < MIN_EXAMPLES_OF_A_KIND) & has_one_pair

    def metrics(self, logits_BxKxV: jax.Array | DeferredLogits, batch: Batch) -> dict[str, Scores]:
        """Returns the token scores and `in_context`: the share of answers that copy any value."""
        scores = token_metrics(logits_BxKxV, batch)
        guess_BxK = most_likely(logits_BxKxV, batch)
        copied_BxK = (guess_BxK[..., None] == self._context_values(batch.inputs)[:, None]).any(-1)
        return scores | {"in_context": over_scored(copied_BxK, batch.weights)}

    def baselines(self, batch: Batch) -> dict[str, float]:
        values_BxM = np.asarray(self._context_values(batch.inputs))
        answers_B = (np.asarray(batch.targets) * np.asarray(batch.weights > 0)).sum(-1)
        hits_B = (values_BxM == answers_B[:, None]).sum(-1)
        # Values are equally frequent, so the constant answer 1 is among the best.
        n_values = self.vocab // 2 - 1
        return {
            "in_context_guess": float((hits_B / (values_BxM > 0).sum(-1)).mean()),
            "best_constant": float((answers_B == 1).mean()),
            "uniform_value": 1 / n_values,
            "unigram_loss": math.log(n_values),
        }

    def groups(self, batch: Batch) -> dict[str, jax.Array]:
        pairs_B = (self._context_values(batch.inputs) > 0).sum(-1)
        return by_range("pairs", pairs_B, ranges(self.max_pairs))

    @property
    def declared(self) -> Declared:
        names = ("in_context_guess", "best_constant", "uniform_value", "unigram_loss")
        return Declared((*TOKEN_SCORES, "in_context"), names)

    def _context_values(self, inputs_BxT: jax.Array) -> jax.Array:
        """Returns the (B, M) values of the context, 0 where there is no pair."""
        values_BxM = inputs_BxT[:, 1::2]  # 0 at padding
        return values_BxM * (values_BxM < self.vocab // 2)


def _integer_below(n: int | jax.Array, uniform: jax.Array) -> jax.Array:
    """Maps a number in [0, 1) to an integer in 0..n-1."""
    return jnp.floor(uniform * n).astype(jnp.int32)
