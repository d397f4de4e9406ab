"""Synthetic indirect object identification (arXiv 2406.03068, Appendix J).

A sequence has uniform tokens other than q. The trigger q stands at three positions, at least two
apart, and is followed once by ybar and twice by yD, in random order. The last token z_T is q. The
answer is the noise token tau with probability alpha, and otherwise

    reading "rarer": ybar, the token that follows q once (as in IOI and in the construction)
    reading "more":  yD, the token that follows q twice (the text: "which appears more")
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxformer.core.errors import UserError, check_choice, check_range, check_types
from jaxformer.tasks.recall import noisy_metrics
from jaxformer.tasks.task import Batch, OneAnswer, Scores, most_frequent

READINGS = ("rarer", "more")


@dataclass(frozen=True)
class SyntheticIOI(OneAnswer):
    n_symbols: int = 32  # N, the tokens except tau; token N - 1 is q, token N is tau
    context: int = 32  # T, the tokens of a sequence
    alpha: float = 0.5  # probability that the answer is the noise token
    reading: str = "rarer"  # which of ybar and yD is the answer: rarer | more

    def __post_init__(self):
        check_types(type(self), vars(self))
        check_choice("reading of Appendix J", self.reading, READINGS)
        if not 0 <= self.alpha <= 1:
            raise UserError(f"alpha must be in [0, 1], got {self.alpha}.")
        if self.n_symbols < 3:
            raise UserError(f"ybar, yD and q need n_symbols of at least 3, got {self.n_symbols}.")
        check_range("n_symbols", self.n_symbols, 3, 10**6)  # checks the upper bound
        check_range("context", self.context, 0, 100_000)
        if self.context < 7:
            raise UserError(
                "three triggers with their successors, and the last one, need a context of at "
                f"least 7 tokens, got {self.context}."
            )

    @property
    def vocab_size(self) -> int:
        return self.n_symbols + 1

    @property
    def length(self) -> int:
        return self.context + 1

    @property
    def noise_token(self) -> int:
        return self.n_symbols

    @property
    def trigger_tokens(self) -> tuple[int, ...]:
        return (self.n_symbols - 1,)

    def example(self, key: jax.Array, index: jax.Array) -> Batch:
        N, T, q = self.n_symbols, self.context, self.n_symbols - 1
        # One draw for everything, because compiling the generator is slow.
        draws = jax.random.uniform(key, (2 * T,), jnp.float32)  # float32 even under x64
        u, slot_draws, others = draws[:4], draws[4:T], draws[T:]
        others_T = jnp.floor(others * q).astype(jnp.int32)
        # ybar is one of the N - 1 tokens other than q; yD is one of the N - 2 remaining ones.
        ybar = jnp.floor(u[0] * (N - 1)).astype(jnp.int32)
        yD = jnp.floor(u[1] * (N - 2)).astype(jnp.int32)
        yD = yD + (yD >= ybar)
        # Choose 3 of T - 4 slots, sort, add 0, 1, 2: uniform over triples at least two apart.
        starts_3 = jnp.sort(jax.lax.top_k(slot_draws, 3)[1]) + jnp.arange(3)
        i_ybar = jnp.floor(u[3] * 3).astype(jnp.int32)
        successors_3 = jnp.where(jnp.arange(3) == i_ybar, ybar, yD).astype(jnp.int32)
        inputs_T = others_T.at[starts_3].set(q).at[starts_3 + 1].set(successors_3).at[-1].set(q)
        signal = ybar if self.reading == "rarer" else yD
        answer = jnp.where(u[2] < self.alpha, N, signal).astype(jnp.int32)
        targets_T = jnp.append(inputs_T[1:], answer)
        return Batch(inputs_T, targets_T, (jnp.arange(T) == T - 1) * 1.0)

    def metrics(self, logits_BxKxV: jax.Array, batch: Batch) -> dict[str, Scores]:
        return noisy_metrics(logits_BxKxV, batch, self.noise_token)

    def baselines(self, batch: Batch) -> dict[str, float]:
        return {
            "best_constant": most_frequent(batch.targets, batch.weights),
            "uniform": 1 / self.vocab_size,
            "guess_a_successor": 0.5 * (1 - self.alpha),
        }
