"""Language modelling of characters: next symbols and masked symbols.

An example is a window at a random place of the file `text`, or a draw from the packaged bigram
chain (text=""), which needs no file. The last tenth of a file is the test part, the tenth before it
the validation part. Windows never cross the border of a part.
"""

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import lru_cache

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError, check_range
from jaxformer.data.characters import Characters, characters
from jaxformer.tasks.masking import check_masking, mask_tokens
from jaxformer.tasks.task import (
    TEST,
    TRAIN,
    VALIDATION,
    Batch,
    Scores,
    Task,
    most_frequent,
    with_gap_to_unigram,
)

MAX_TEXT_SYMBOLS = 2_000_000  # the text is a constant of the compiled program
# Begin and end of the parts, in tenths of the file.
PARTS = {TRAIN: (0, 8), VALIDATION: (8, 9), TEST: (9, 10)}


@dataclass(frozen=True)
class Text(Task):
    """A task on windows of characters."""

    text: str = ""  # a file, or "" for the packaged chain
    window: int = 64  # symbols of an example
    stream: int = TRAIN  # the part of the file; set by `part`

    def __post_init__(self):
        check_range("task.window", self.window, 2, 10**6)
        if self.stream not in PARTS:
            raise UserError(f"task.stream must be one of {[*PARTS]}, got {self.stream}.")
        text = self.characters.text
        if text is not None and len(text) > MAX_TEXT_SYMBOLS:
            raise UserError(
                f"the text {self.text!r} has {len(text):,} symbols, at most "
                f"{MAX_TEXT_SYMBOLS:,} are possible here: prepare it (`jaxformer prepare`) and "
                "use the task next_token or masked_tokens."
            )
        if text is not None and len(text) // 10 < self._example_length:
            raise UserError(
                f"the text {self.text!r} is too short: a tenth of it, {len(text) // 10} symbols, "
                f"must hold a window of {self._example_length}. Give a longer text or a smaller "
                "task.window."
            )

    @property
    def characters(self) -> Characters:
        return characters(self.text)

    @property
    def length(self) -> int:
        return self.window

    @property
    def n_scored(self) -> int:
        return self.window

    @property
    @abstractmethod
    def _example_length(self) -> int:
        """The number of symbols of an example, including a last symbol that is a target only."""

    def part(self, stream: int) -> "Text":
        return replace(self, stream=stream)

    def draw(self, key: jax.Array) -> jax.Array:
        """Returns the int32 symbols of an example, from a part of the file or from the chain."""
        source = self.characters
        if source.text is None:
            return _draw_walk(key, source, self._example_length)
        low, high = (len(source.text) * tenth // 10 for tenth in PARTS[self.stream])
        start = jax.random.randint(key, (), low, high - self._example_length + 1, jnp.int32)
        window = jax.lax.dynamic_slice(jnp.asarray(source.text), (start,), (self._example_length,))
        return window.astype(jnp.int32)

    def _unigram_scores(self, batch: Batch) -> dict[str, float]:
        """Returns scores of the best constant and of the unigram predictor."""
        targets = np.asarray(batch.targets)[np.asarray(batch.weights) > 0]
        counts_V = training_counts(self.text).counts_V
        p_V = counts_V / counts_V.sum()
        return {
            "best_constant": most_frequent(targets, np.ones_like(targets)),
            "unigram_loss": float(-np.log(p_V[targets]).mean()),
        }


@dataclass(frozen=True)
class CausalText(Text):
    """Prediction of the next symbol at every position."""

    @property
    def vocab_size(self) -> int:
        return len(self.characters.symbols)

    @property
    def _example_length(self) -> int:
        return self.window + 1

    def example(self, key: jax.Array, index: jax.Array) -> Batch:
        symbols = self.draw(key)
        return Batch(symbols[:-1], symbols[1:], jnp.ones(self.window))

    def baselines(self, batch: Batch) -> dict[str, float]:
        """Returns unigram and bigram scores. On the chain no model beats the bigram."""
        inputs, targets = np.asarray(batch.inputs), np.asarray(batch.targets)
        p_VxV = transitions(training_counts(self.text))
        best_V = p_VxV.argmax(1)
        return self._unigram_scores(batch) | {
            "bigram_accuracy": float((best_V[inputs] == targets).mean()),
            "bigram_loss": float(-np.log(p_VxV[inputs, targets]).mean()),
        }


@dataclass(frozen=True)
class MaskedText(Text):
    """Prediction of masked symbols. Each is masked with probability `rate` (tasks/masking.py)."""

    rate: float = 0.15  # probability of masking a symbol
    masking: str = "plain"  # shows the mask at every masked symbol; "bert" at 80 % of them

    def __post_init__(self):
        super().__post_init__()
        check_masking(self.rate, self.masking)

    @property
    def vocab_size(self) -> int:
        return len(self.characters.symbols) + 1

    @property
    def _example_length(self) -> int:
        return self.window

    def example(self, key: jax.Array, index: jax.Array) -> Batch:
        text_key, mask_key = jax.random.split(key)
        symbols_T, mask = self.draw(text_key), len(self.characters.symbols)
        draws_3xT = jax.random.uniform(mask_key, (3, self.window), jnp.float32)
        shown_T, scored_T = mask_tokens(symbols_T, draws_3xT, mask, self.rate, self.masking)
        return Batch(jnp.where(scored_T, shown_T, symbols_T), symbols_T, scored_T * 1.0)

    def metrics(self, logits_BxKxV: jax.Array, batch: Batch) -> dict[str, Scores]:
        counts_V = training_counts(self.text).counts_V
        nats_V = -np.log(counts_V / counts_V.sum())
        return with_gap_to_unigram(super().metrics(logits_BxKxV, batch), nats_V, batch)

    def baselines(self, batch: Batch) -> dict[str, float]:
        """Returns unigram scores, and the exact posterior under the bigram chain.

        On the chain with plain masking no model beats this posterior.
        """
        targets, scored = np.asarray(batch.targets), np.asarray(batch.weights) > 0
        p_BxTxV = posterior(training_counts(self.text), targets, scored)
        p_of_target = np.take_along_axis(p_BxTxV, targets[..., None], -1)[..., 0]
        return self._unigram_scores(batch) | {
            "bigram_accuracy": float((p_BxTxV.argmax(-1) == targets)[scored].mean()),
            "bigram_loss": float(-np.log(p_of_target[scored]).mean()),
        }


def training_counts(text: str) -> Characters:
    """Returns the chain, or the symbol and pair counts of a file's training part.

    Counts are smoothed: each symbol counts once more, and each row of pairs gets a further count of
    1 in total, spread in proportion to the counts of symbols.
    """
    return _training_counts(characters(text))


@lru_cache(maxsize=8)
def _training_counts(source: Characters) -> Characters:
    if source.text is None:
        return source
    low, high = (len(source.text) * tenth // 10 for tenth in PARTS[TRAIN])
    ids, V = source.text[low:high].astype(np.int64), len(source.symbols)
    counts_V = np.bincount(ids, minlength=V) + 1
    pairs_VxV = np.bincount(ids[:-1] * V + ids[1:], minlength=V * V).reshape(V, V)
    pairs_VxV = pairs_VxV + counts_V / counts_V.sum()
    return replace(source, pairs_VxV=pairs_VxV, counts_V=counts_V)


def transitions(source: Characters) -> np.ndarray:
    """Returns (V, V) transition probabilities, uniform after a symbol without successors."""
    totals = source.pairs_VxV.sum(1, keepdims=True)
    return np.where(totals > 0, source.pairs_VxV / np.maximum(totals, 1), 1 / len(totals))


def posterior(source: Characters, symbols_BxT: np.ndarray, hidden_BxT: np.ndarray) -> np.ndarray:
    """Returns (B, T, V) posteriors of symbols given the visible symbols (forward-backward).

    Args:
        source: the Markov chain of characters.
        symbols_BxT: the symbols; those at hidden positions are not used.
        hidden_BxT: booleans, true at hidden positions.
    """
    p_VxV, V = transitions(source), len(source.symbols)
    visible_BxTxV = np.where(hidden_BxT[..., None], 1.0, np.eye(V)[symbols_BxT])
    # At t, forward is p(symbol | visible symbols before t), and backward is proportional to
    # p(visible symbols after t | symbol).
    forward, backward = np.empty_like(visible_BxTxV), np.ones_like(visible_BxTxV)
    forward[:, 0] = source.counts_V / source.counts_V.sum()
    for t in range(1, visible_BxTxV.shape[1]):
        forward[:, t] = _normalised(forward[:, t - 1] * visible_BxTxV[:, t - 1]) @ p_VxV
    for t in range(visible_BxTxV.shape[1] - 2, -1, -1):
        backward[:, t] = _normalised((backward[:, t + 1] * visible_BxTxV[:, t + 1]) @ p_VxV.T)
    return _normalised(forward * visible_BxTxV * backward)


def _draw_walk(key: jax.Array, source: Characters, length: int) -> jax.Array:
    """Draws a stationary walk of the chain by inverting cumulative probabilities."""
    # Row 0 is the distribution of the first symbol, row 1 + z that of the symbol after z.
    counts = np.concatenate([source.counts_V[None], source.pairs_VxV]).astype(float)
    cumulative = np.cumsum(counts, 1) / counts.sum(1, keepdims=True)
    thresholds = jnp.asarray(cumulative[:, :-1], jnp.float32)  # float32 even under x64
    draws_T = jax.random.uniform(key, (length,), jnp.float32)

    def step(row, draw):
        symbol = (thresholds[row] <= draw).sum(dtype=jnp.int32)
        return symbol + 1, symbol

    return jax.lax.scan(step, jnp.zeros((), jnp.int32), draws_T)[1]


def _normalised(p: np.ndarray) -> np.ndarray:
    return p / p.sum(-1, keepdims=True)
