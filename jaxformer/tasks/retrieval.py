"""Needle retrieval: pairs (key, value), then a query; answer the value that came with its key.

    k_1 v_1 k_2 v_2 .. k_m v_m  q -> v(q)        m ~ U{1..M}, padded with 0

Values are iid in 1..V/2-1. "authors" (their code): the keys are the first m of a shuffle of M
symbols and the query has a second symbol set, so the model must learn which query belongs to which
key. "paper" (its text): keys from all of V/2..V-1 and the query is the key's own symbol. The text
draws keys iid, which can make an answer ambiguous; here they are distinct in both.
"""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError, check_choice, check_range
from jaxformer.tasks.chunked_loss import LateLogits
from jaxformer.tasks.task import (
    FEW,
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
    max_pairs: int = 8  # M
    vocab: int = 64  # V
    format: str = "authors"

    def __post_init__(self):
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
        """The pairs, the query, the answer and one pad, as in the authors' code."""
        return 2 * self.max_pairs + 3

    def example(self, key: jax.Array, index: jax.Array) -> Batch:
        M, half = self.max_pairs, self.vocab // 2
        symbols, shift = (M, M) if self.format == "authors" else (half, 0)
        # One draw for everything: compiling the generator is what costs, not running it.
        draws = jax.random.uniform(key, (symbols + M + 2,), jnp.float32)  # also under x64
        m = 1 + _below(M, draws[0])
        asked = _below(m, draws[1])
        values_M = 1 + _below(half - 1, draws[2 : M + 2])
        keys_M = jnp.argsort(draws[M + 2 :])[:M].astype(jnp.int32)  # the first of a shuffle
        query = keys_M[asked] + half + shift

        pairs = jnp.stack([keys_M + half, values_M], axis=1).reshape(2 * M)
        place_T = jnp.arange(2 * M + 1, dtype=jnp.int32)
        inputs_T = jnp.where(place_T < 2 * m, jnp.append(pairs, 0), 0)
        inputs_T = jnp.where(place_T == 2 * m, query, inputs_T)
        at_query_T = place_T == 2 * m
        return Batch(inputs_T, jnp.where(at_query_T, values_M[asked], 0), at_query_T * 1.0)

    def is_common(self, example: Batch) -> jax.Array:
        """A context of one pair, of which there are keys x values."""
        n_keys = self.max_pairs if self.format == "authors" else self.vocab // 2
        return (n_keys * (self.vocab // 2 - 1) < FEW) & (example.weights[2] > 0)

    def metrics(self, logits_BxKxV: jax.Array | LateLogits, batch: Batch) -> dict[str, Scores]:
        """Also `in_context`: the answer is some value of the context (copying, not retrieving)."""
        scores = token_metrics(logits_BxKxV, batch)
        guess_BxK = most_likely(logits_BxKxV, batch)
        copied_BxK = (guess_BxK[..., None] == self._values(batch.inputs)[:, None]).any(-1)
        return scores | {"in_context": over_scored(copied_BxK, batch.weights)}

    def baselines(self, batch: Batch) -> dict[str, float]:
        values_BxM = np.asarray(self._values(batch.inputs))
        answers_B = (np.asarray(batch.targets) * np.asarray(batch.weights > 0)).sum(-1)
        hits_B = (values_BxM == answers_B[:, None]).sum(-1)
        n_values = self.vocab // 2 - 1  # all as frequent, so that any constant is the best
        return {
            "in_context_guess": float((hits_B / (values_BxM > 0).sum(-1)).mean()),
            "best_constant": float((answers_B == 1).mean()),
            "uniform_value": 1 / n_values,
            "unigram_loss": math.log(n_values),
        }

    def groups(self, batch: Batch) -> dict[str, jax.Array]:
        pairs_B = (self._values(batch.inputs) > 0).sum(-1)
        return by_range("pairs", pairs_B, ranges(self.max_pairs))

    @property
    def declared(self) -> Declared:
        known = ("in_context_guess", "best_constant", "uniform_value", "unigram_loss")
        return Declared((*TOKEN_SCORES, "in_context"), known)

    def _values(self, inputs_BxT: jax.Array) -> jax.Array:
        """(B, M) values of the context, 0 where there is none."""
        odd_BxM = inputs_BxT[:, 1::2]
        return jnp.where(odd_BxM < self.vocab // 2, odd_BxM, 0)


def _below(n: int | jax.Array, uniform: jax.Array) -> jax.Array:
    """A whole number in 0..n-1 from a number in [0, 1)."""
    return jnp.floor(uniform * n).astype(jnp.int32)
