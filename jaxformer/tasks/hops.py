"""k-hop induction (Sanford et al.): follow k references back through a sequence.

    inputs    k s_1 s_2 .. s_m     k ~ U{0..K}, letters without immediate repetition
    targets   blank, then for each position i the letter s_j, where j starts at i and hops k times:
              j <- 1 + max{j' < j: s_j' = s_j}; "~" if there is no such j

Every position is scored, including the blank and "~", so trivial predictors have a high accuracy.
`accuracy_existing` scores only answers that exist. Both accuracies are also reported by the number
of hops.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import check_range, check_types
from jaxformer.tasks import trivial
from jaxformer.tasks.task import (
    TOKEN_SCORES,
    Batch,
    Declared,
    Scores,
    Task,
    by_range,
    ranges,
    token_metrics,
)


@dataclass(frozen=True)
class Hops(Task):
    max_hops: int = 16  # K, the largest number of hops
    letters: int = 4  # size of the alphabet
    tokens: int = 99  # input tokens, including the hop count

    def __post_init__(self):
        check_types(type(self), vars(self))
        check_range("letters of k-hop", self.letters, 2, 100_000)
        check_range("tokens of k-hop", self.tokens, 2, 100_000)
        # A hop goes back by at least one letter, and each k has its own metric.
        check_range("max_hops of k-hop", self.max_hops, 1, min(self.tokens - 1, 256))

    @property
    def blank_token(self) -> int:
        """The target at the hop count, the first token."""
        return self.letters + self.max_hops + 1

    @property
    def missing(self) -> int:
        """The token "~" of positions without an answer."""
        return self.blank_token + 1

    @property
    def vocab_size(self) -> int:
        return self.letters + (self.max_hops + 1) + 2

    @property
    def length(self) -> int:
        return self.tokens

    @property
    def n_scored(self) -> int:
        return self.tokens

    def example(self, key: jax.Array, index: jax.Array) -> Batch:
        m = self.tokens - 1
        draws = jax.random.uniform(key, (m + 1,), jnp.float32)
        k = jnp.floor(draws[0] * (self.max_hops + 1)).astype(jnp.int32)
        # A letter differs from the one before: add 1..a-1 modulo a.
        first = jnp.floor(draws[1:2] * self.letters).astype(jnp.int32)
        steps = 1 + jnp.floor(draws[2:] * (self.letters - 1)).astype(jnp.int32)
        s = jnp.cumsum(jnp.concatenate([first, steps])) % self.letters

        position = jnp.arange(m)
        earlier = (s[:, None] == s[None, :]) & (position[None, :] < position[:, None])
        one_hop = jnp.where(earlier, position[None, :] + 1, -1).max(1)  # -1: there is no target

        def hop(t, j):
            return jnp.where((t < k) & (j >= 0), one_hop[jnp.maximum(j, 0)], j)

        j = jax.lax.fori_loop(0, self.max_hops, hop, position)
        answers = jnp.where(j >= 0, s[jnp.maximum(j, 0)], self.missing)
        inputs = jnp.append(self.letters + k, s).astype(jnp.int32)
        targets = jnp.append(self.blank_token, answers).astype(jnp.int32)
        return Batch(inputs, targets, jnp.ones(self.tokens))

    def metrics(self, logits_BxKxV: jax.Array, batch: Batch) -> dict[str, Scores]:
        scores = token_metrics(logits_BxKxV, batch)
        weights = (batch.targets < self.letters) * batch.weights  # 0 for the blank and "~"
        existing = token_metrics(logits_BxKxV, batch._replace(weights=weights))["accuracy"]
        return scores | {"accuracy_existing": existing}

    def groups(self, batch: Batch) -> dict[str, jax.Array]:
        return by_range("hops", batch.inputs[:, 0] - self.letters, ranges(self.max_hops, 0))

    @property
    def grouped(self) -> tuple[str, ...]:
        return ("accuracy", "accuracy_existing")

    def baselines(self, batch: Batch) -> dict[str, float]:
        """Returns accuracies of the best answer by hop count and position, and by letter too."""
        fit = trivial.fitting_examples(self)
        return {
            "by_hops_and_position": trivial.best_by(
                lambda b: _hops_position_and_letter(b)[:2], fit, batch
            ),
            "by_hops_position_and_letter": trivial.best_by(_hops_position_and_letter, fit, batch),
            "fraction_missing": float((np.asarray(batch.targets) == self.missing).mean()),
            "unigram_loss": trivial.unigram_loss(fit, batch),
        }

    @property
    def declared(self) -> Declared:
        names = ("by_hops_and_position", "by_hops_position_and_letter", "fraction_missing")
        return Declared((*TOKEN_SCORES, "accuracy_existing"), (*names, "unigram_loss"))


def _hops_position_and_letter(batch: Batch) -> tuple[np.ndarray, ...]:
    """Returns the hop count, the position and the letter at each position."""
    inputs = np.asarray(batch.inputs)
    hops, position = inputs[:, :1], np.arange(inputs.shape[1])
    return np.broadcast_to(hops, inputs.shape), np.broadcast_to(position, inputs.shape), inputs
