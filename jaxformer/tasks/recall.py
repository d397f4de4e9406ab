"""Noisy in-context recall: after a trigger comes a noise token or the token ybar of the sequence.

    ybar ~ U[N];  z_1 ~ pi_u;  z_{t+1} ~ pi_b(. | z_t),   but after a trigger q:
    ybar with probability 1 - alpha, the noise token tau with probability alpha

pi_u and pi_b are the unigram and bigram statistics of a text, or uniform. The noise token is an
extra symbol, or a symbol of the text such as "!" (authors' code). The paper does not define what
follows an extra symbol: here it is a draw from pi_u. Each trigger has its own ybar.

    scored "repeats" (code)    the token after each trigger, from its second occurrence on
    scored "last" (paper)      z_T is set to q, and only its successor is scored
"""

import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError, check_choice, check_range, check_types, is_users
from jaxformer.data.characters import Statistics, alias_tables, statistics
from jaxformer.tasks.chunked_loss import DeferredLogits
from jaxformer.tasks.task import Batch, Scores, Task, most_frequent, over_scored, token_metrics

SCORED = ("repeats", "last")
STATISTICS = ("text", "uniform")


@dataclass(frozen=True)
class Recall(Task):
    n_symbols: int = 32  # N, the number of symbols; they are the most frequent ones of the text
    context: int = 64  # T, the tokens of a sequence
    alpha: float = 0.5  # probability of the noise token after a trigger
    triggers: str = " "  # the symbols that are triggers
    drawn_triggers: int = 0  # if positive: the number of triggers drawn from pi_u for each sequence
    noise: str = ""  # a symbol of the text, or "" for an extra symbol
    exclude_triggers: bool = False  # ybar is never a trigger
    scored: str = "repeats"  # the positions that count in loss and accuracy: repeats | last
    statistics: str = "text"  # the source of pi_u and pi_b: text | uniform
    text: str = ""  # a file, or "" for the packaged counts
    max_scored: int = 0  # the most positions that are scored; 0: half the context

    def __post_init__(self):
        check_types(type(self), vars(self))
        check_choice("kind of scored positions", self.scored, SCORED)
        check_choice("statistics", self.statistics, STATISTICS)
        if not 0 <= self.alpha <= 1:
            raise UserError(f"alpha must be in [0, 1], got {self.alpha}.")
        check_range("context", self.context, 0, 100_000)
        check_range("max_scored", self.max_scored, 0, self.context)
        if self.context < 3:
            raise UserError(f"recall needs a context of at least 3 tokens, got {self.context}.")
        if not self.triggers and not self.drawn_triggers:
            raise UserError("recall needs a trigger: name symbols in `triggers`, got none.")
        if not 0 <= self.drawn_triggers < self.n_symbols:
            raise UserError(
                f"drawn_triggers must be 0 to n_symbols - 1 = {self.n_symbols - 1}, got "
                f"{self.drawn_triggers}."
            )
        if self.scored == "last" and self.n_triggers > 1:
            raise UserError(
                "scored='last' sets z_T to the trigger, so it needs a single one; got "
                f"{self.n_triggers} triggers."
            )
        if self.exclude_triggers and self.n_triggers >= self.n_symbols:
            raise UserError(
                f"exclude_triggers needs a symbol that is no trigger, got {self.n_triggers} "
                f"triggers and {self.n_symbols} symbols."
            )
        if len(self.noise) > 1:
            raise UserError(f"noise is one symbol or none, got {self.noise!r}.")
        symbols = self._statistics.symbols
        if len({*self.triggers}) < len(self.triggers):
            raise UserError(f"each symbol of `triggers` is one trigger, got {self.triggers!r}.")
        for name in ("triggers", "noise"):
            for symbol in getattr(self, name):
                if symbol not in symbols:
                    raise UserError(
                        f"{name} has {symbol!r}, which is not among the {self.n_symbols} symbols: "
                        f"{''.join(symbols)!r}."
                    )

    @property
    def _statistics(self) -> Statistics:
        return statistics(self.text, self.n_symbols)

    @property
    def n_triggers(self) -> int:
        return self.drawn_triggers or len(self.triggers)

    @property
    def noise_token(self) -> int:
        """The noise token tau."""
        symbols = self._statistics.symbols
        return symbols.index(self.noise) if self.noise else self.n_symbols

    @property
    def trigger_tokens(self) -> tuple[int, ...]:
        """The fixed triggers; empty if triggers are drawn for each sequence."""
        symbols = self._statistics.symbols
        return () if self.drawn_triggers else tuple(symbols.index(q) for q in self.triggers)

    @property
    def vocab_size(self) -> int:
        return self.n_symbols + (not self.noise)

    @property
    def length(self) -> int:
        return self.context + 1

    @property
    def n_scored(self) -> int:
        if self.scored == "last":
            return 1
        return min(self.max_scored or self.context // 2, self.context)

    def probabilities(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns pi_u (V,) and pi_b (V, V). Only a trigger leads to an extra noise symbol."""
        counted, N = self._statistics, self.n_symbols
        unigram, bigram = counted.unigram_N, counted.bigram_NxN
        if self.statistics == "uniform":
            unigram, bigram = np.full(N, 1 / N), np.full((N, N), 1 / N)
        if not self.noise:
            bigram = np.pad(np.vstack([bigram, unigram[None]]), ((0, 0), (0, 1)))
            unigram = np.append(unigram, 0.0)
        return unigram, bigram

    def example(self, key: jax.Array, index: jax.Array) -> Batch:
        T, V = self.context, self.vocab_size
        keep_np, alias_np = _alias_tables_of(self) if not is_users(self) else _alias_tables(self)
        keep, alias = jnp.asarray(keep_np), jnp.asarray(alias_np)

        def draw(row, uniform):
            """Draws a symbol of a row of the alias tables (Walker's method) with one look-up."""
            scaled = uniform * V
            cell = jnp.minimum(scaled.astype(jnp.int32), V - 1)
            return jnp.where(scaled - cell < keep[row, cell], cell, alias[row, cell])

        key_q, key = jax.random.split(key)
        n_draws = 2 * T + 2 + self.n_triggers
        u = jax.random.uniform(key, (n_draws,), jnp.float32)  # float32 even under x64
        coins, symbol_u, ybar_u = u[: T + 1], u[T + 1 : 2 * T + 2], u[2 * T + 2 :]
        if self.drawn_triggers:  # Gumbel top-k draws without replacement
            gumbel_N = jax.random.gumbel(key_q, (self.n_symbols,), jnp.float32)
            log_p = jnp.log(jnp.asarray(self.probabilities()[0][: self.n_symbols], jnp.float32))
            triggers_Q = jax.lax.top_k(log_p + gumbel_N, self.drawn_triggers)[1].astype(jnp.int32)
        else:
            triggers_Q = jnp.asarray(self.trigger_tokens, jnp.int32)
        ybar_Q = self._draw_ybar(ybar_u, triggers_Q)

        def next_symbol(z, coin, uniform):
            is_trigger_Q = z == triggers_Q
            ybar = (jnp.where(is_trigger_Q, ybar_Q, 0)).sum()
            answer = jnp.where(coin < self.alpha, self.noise_token, ybar)
            return jnp.where(is_trigger_Q.any(), answer, draw(z, uniform)).astype(jnp.int32)

        def step(z, draws):
            z = next_symbol(z, *draws)
            return z, z

        # Row V of the tables is pi_u.
        first = draw(jnp.int32(V), symbol_u[0]).astype(jnp.int32)
        _, rest = jax.lax.scan(step, first, (coins[1:T], symbol_u[1:T]))
        inputs_T = jnp.append(first, rest)
        if self.scored == "last":
            inputs_T = inputs_T.at[-1].set(triggers_Q[0])
        last_target = next_symbol(inputs_T[-1], coins[T], symbol_u[T])
        targets_T = jnp.append(inputs_T[1:], last_target)
        if self.scored == "last":
            weights_T = (jnp.arange(T) == T - 1) * 1.0
        else:
            is_trigger_TxQ = inputs_T[:, None] == triggers_Q[None]
            is_repeated_TxQ = jnp.cumsum(is_trigger_TxQ, axis=0) >= 2
            weights_T = (is_trigger_TxQ & is_repeated_TxQ).any(-1) * 1.0
        return Batch(inputs_T, targets_T, weights_T)

    def _draw_ybar(self, uniform_Q, triggers_Q):
        """Returns ybar of Q triggers, uniform over all symbols or over all but the triggers."""
        n_choices = self.n_symbols - (self.n_triggers if self.exclude_triggers else 0)
        ybar_Q = jnp.floor(uniform_Q * n_choices).astype(jnp.int32)
        if self.exclude_triggers:  # take the ybar-th symbol that is no trigger
            is_choice_N = jnp.ones(self.n_symbols, jnp.int32).at[triggers_Q].set(0)
            ybar_Q = jnp.searchsorted(jnp.cumsum(is_choice_N), ybar_Q + 1).astype(jnp.int32)
        return ybar_Q

    def metrics(self, logits_BxKxV: jax.Array, batch: Batch) -> dict[str, Scores]:
        return noisy_metrics(logits_BxKxV, batch, self.noise_token)

    def baselines(self, batch: Batch) -> dict[str, float]:
        return {
            "best_constant": most_frequent(batch.targets, batch.weights),
            "uniform": 1 / self.vocab_size,
        }


def noisy_metrics(
    logits_BxKxV: jax.Array | DeferredLogits, batch: Batch, noise_token: int
) -> dict[str, Scores]:
    """Returns the token scores, and the probabilities of the target and of the noise token.

    Args:
        logits_BxKxV: logits at the scored positions.
        batch: the batch at these positions, with targets and weights (B, K).
        noise_token: the token that replaces a part of the answers.
    """
    dtype = batch.weights.dtype
    if isinstance(logits_BxKxV, DeferredLogits):
        taus_BxK = jnp.full_like(batch.targets, noise_token)
        correct_BxK, noise_BxK = (
            jnp.exp(-logits_BxKxV.scores(tokens_BxK, dtype)[0])
            for tokens_BxK in (batch.targets, taus_BxK)
        )
    else:
        p_BxKxV = jax.nn.softmax(logits_BxKxV.astype(dtype))
        correct_BxK = jnp.take_along_axis(p_BxKxV, batch.targets[..., None], -1)[..., 0]
        noise_BxK = p_BxKxV[..., noise_token]
    return token_metrics(logits_BxKxV, batch) | {
        "p_correct": over_scored(correct_BxK, batch.weights),
        "p_noise": over_scored(noise_BxK, batch.weights),
    }


@functools.cache
def _alias_tables_of(task: Recall) -> tuple[np.ndarray, np.ndarray]:
    return _alias_tables(task)


def _alias_tables(task: Recall) -> tuple[np.ndarray, np.ndarray]:
    """Returns the alias tables of pi_b, with pi_u in the last row."""
    unigram, bigram = task.probabilities()
    return alias_tables(np.vstack([bigram, unigram[None]]))
