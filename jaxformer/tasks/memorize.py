"""Memorisation of a random table of K x K entries, K = `symbols`.

    (k_1, K + k_2) -> value ~ U{0..K-1}, one fixed draw for each of the K^2 pairs

There is no test set: the training accuracy is reported. A table entry has log2(K) bits, so a model
that recalls a fraction `acc` of the entries stores K^2 acc log2(K) bits. This number counts lucky
guesses too. Its cross-entropy CE in nats gives K^2 max(0, log2(K) - CE/ln 2) bits, without them.
"""

import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxformer.core.errors import check_range, check_types
from jaxformer.core.settings import MAX_SEED
from jaxformer.tasks import trivial
from jaxformer.tasks.task import TOKEN_SCORES, Batch, Declared, OneAnswer


@dataclass(frozen=True)
class Memorize(OneAnswer):
    symbols: int = 512  # K, the number of first keys, of second keys and of values
    table_seed: int = 0  # the table is the same for all members and variants

    def __post_init__(self):
        check_types(type(self), vars(self))
        check_range("symbols of memorize", self.symbols, 2, 40_000)
        check_range("table_seed", self.table_seed, 0, MAX_SEED)

    @property
    def vocab_size(self) -> int:
        return 2 * self.symbols

    @property
    def length(self) -> int:
        return 3

    @property
    def size(self) -> int:
        return self.symbols**2

    def example(self, key: jax.Array, index: jax.Array) -> Batch:
        del key  # the index enumerates the table's entries
        index = jnp.asarray(index, jnp.int32)
        table_key = jax.random.fold_in(jax.random.key(self.table_seed), index)
        value = jax.random.randint(table_key, (), 0, self.symbols, jnp.int32)
        inputs = jnp.stack([index // self.symbols, index % self.symbols + self.symbols])
        return Batch(inputs, jnp.stack([jnp.zeros_like(value), value]), jnp.array([0.0, 1.0]))

    def baselines(self, batch: Batch) -> dict[str, float]:
        return {  # fitted and scored on the whole table
            "best_constant": trivial.best_constant(batch, batch),
            "uniform_value": 1 / self.symbols,
            "unigram_loss": trivial.unigram_loss(batch, batch),
        }

    @property
    def declared(self) -> Declared:
        bits = ("bits_per_parameter", "bits_per_parameter_by_loss")
        return Declared((*TOKEN_SCORES, *bits), ("best_constant", "uniform_value", "unigram_loss"))

    def summary(self, means: dict[str, float], trainable: int) -> dict[str, float]:
        bits_of_entry = math.log2(self.symbols)
        entries_per_parameter = self.size / trainable
        stored_bits_of_entry = max(0.0, bits_of_entry - means["loss"] / math.log(2))
        return {
            "bits_per_parameter": entries_per_parameter * bits_of_entry * means["accuracy"],
            "bits_per_parameter_by_loss": entries_per_parameter * stored_bits_of_entry,
        }
