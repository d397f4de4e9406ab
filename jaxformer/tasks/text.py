"""Text, symbol by symbol: fill in what is masked, or name what comes next.

A window is `window` symbols at a random place of the file `text`, or a draw from the packaged
bigram chain (text=""), which needs no file. Of a file the last tenth is for testing, the tenth
before it for validation; windows never cross from one part into another.
"""

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError, check_choice, check_range
from jaxformer.data.characters import Characters, characters
from jaxformer.tasks.source import TEST, TRAIN, VALIDATION
from jaxformer.tasks.task import Batch, Task, most_frequent

MASKINGS = ("plain", "bert")
COMPILED = 2_000_000  # symbols of a file, which is a constant of the compiled program
# Where the parts of a file begin and end, in tenths of it.
PARTS = {TRAIN: (0, 8), VALIDATION: (8, 9), TEST: (9, 10)}


@dataclass(frozen=True)
class Text(Task):
    """What both tasks share: where the characters are from, and the drawing of windows."""

    text: str = ""  # a file, or the chain
    window: int = 64
    stream: int = TRAIN  # which part of the file; set by `part`

    def __post_init__(self):
        check_range("task.window", self.window, 2, 10**6)
        if self.stream not in PARTS:
            raise UserError(f"task.stream must be one of {[*PARTS]}, got {self.stream}.")
        text = self.characters.text
        if text is not None and len(text) > COMPILED:
            raise UserError(
                f"the text {self.text!r} has {len(text):,} symbols, and up to {COMPILED:,} become "
                "a part of the program: prepare it (experiments/prepare.py) and take the task "
                "next_token or masked_tokens."
            )
        if text is not None and len(text) // 10 < self._drawn:
            raise UserError(
                f"the text {self.text!r} is too short: a tenth of it, {len(text) // 10} symbols, "
                f"must hold a window of {self._drawn}. Give a longer text or a smaller task.window."
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
    def _drawn(self) -> int:
        """How many symbols an example takes from the text."""

    def part(self, stream: int) -> "Text":
        return replace(self, stream=stream)

    def draw(self, key: jax.Array) -> jax.Array:
        """(symbols of an example,) int32, from the part of the text or from the chain."""
        source = self.characters
        if source.text is None:
            return _walk(key, source, self._drawn)
        low, high = (len(source.text) * tenth // 10 for tenth in PARTS[self.stream])
        start = jax.random.randint(key, (), low, high - self._drawn + 1, jnp.int32)
        window = jax.lax.dynamic_slice(jnp.asarray(source.text), (start,), (self._drawn,))
        return window.astype(jnp.int32)

    def _unigram(self, batch: Batch) -> dict[str, float]:
        """The predictor that knows how frequent symbols are and nothing else."""
        targets = np.asarray(batch.targets)[np.asarray(batch.weights) > 0]
        counts_V = counted(self.text).counts_V
        p_V = counts_V / counts_V.sum()
        return {
            "best_constant": most_frequent(targets, np.ones_like(targets)),
            "unigram_loss": float(-np.log(p_V[targets]).mean()),
        }


@dataclass(frozen=True)
class CausalText(Text):
    """The next symbol at every position."""

    @property
    def vocab_size(self) -> int:
        return len(self.characters.symbols)

    @property
    def _drawn(self) -> int:
        return self.window + 1

    def example(self, key: jax.Array, index: jax.Array) -> Batch:
        symbols = self.draw(key)
        return Batch(symbols[:-1], symbols[1:], jnp.ones(self.window))

    def baselines(self, batch: Batch) -> dict[str, float]:
        """`bigram`: the best guess from the current symbol; on the chain nothing does better."""
        inputs, targets = np.asarray(batch.inputs), np.asarray(batch.targets)
        p_VxV = transitions(counted(self.text))
        best_V = p_VxV.argmax(1)
        return self._unigram(batch) | {
            "bigram_accuracy": float((best_V[inputs] == targets).mean()),
            "bigram_loss": float(-np.log(p_VxV[inputs, targets]).mean()),
        }


@dataclass(frozen=True)
class MaskedText(Text):
    """Each position is chosen with probability `rate`, and the model names its symbol.

    masking="plain": every chosen position shows the mask, the last id. "bert": 80 % show the mask,
    10 % a random symbol, 10 % their own symbol, as in BERT and in Hugging Face's collator.
    """

    rate: float = 0.15
    masking: str = "plain"

    def __post_init__(self):
        super().__post_init__()
        if not 0 < self.rate < 1:
            raise UserError(f"task.rate must be between 0 and 1, got {self.rate}.")
        check_choice("masking", self.masking, MASKINGS)

    @property
    def vocab_size(self) -> int:
        return len(self.characters.symbols) + 1

    @property
    def _drawn(self) -> int:
        return self.window

    def example(self, key: jax.Array, index: jax.Array) -> Batch:
        text_key, mask_key = jax.random.split(key)
        symbols_T, mask = self.draw(text_key), len(self.characters.symbols)
        chosen_T, kind_T, other_T = jax.random.uniform(mask_key, (3, self.window), jnp.float32)
        shown_T = jnp.full(self.window, mask, jnp.int32)
        if self.masking == "bert":
            random_T = jnp.floor(other_T * mask).astype(jnp.int32)
            shown_T = jnp.where(kind_T < 0.8, mask, jnp.where(kind_T < 0.9, random_T, symbols_T))
        scored_T = chosen_T < self.rate
        return Batch(jnp.where(scored_T, shown_T, symbols_T), symbols_T, scored_T * 1.0)

    def baselines(self, batch: Batch) -> dict[str, float]:
        """`bigram`: the exact posterior under the bigram chain of all that is not chosen.

        On the chain with plain masking no model does better.
        """
        targets, scored = np.asarray(batch.targets), np.asarray(batch.weights) > 0
        p_BxTxV = posterior(counted(self.text), targets, scored)
        p_of_target = np.take_along_axis(p_BxTxV, targets[..., None], -1)[..., 0]
        return self._unigram(batch) | {
            "bigram_accuracy": float((p_BxTxV.argmax(-1) == targets)[scored].mean()),
            "bigram_loss": float(-np.log(p_of_target[scored]).mean()),
        }


@cache
def counted(text: str) -> Characters:
    """What trivial predictors know: the chain, or the part of a file that is trained on.

    What that part lacks is not impossible. Each symbol counts once more, and each row of pairs has
    one more entry, spread as the symbols are.
    """
    source = characters(text)
    if source.text is None:
        return source
    low, high = (len(source.text) * tenth // 10 for tenth in PARTS[TRAIN])
    ids, V = source.text[low:high].astype(np.int64), len(source.symbols)
    counts_V = np.bincount(ids, minlength=V) + 1
    pairs_VxV = np.bincount(ids[:-1] * V + ids[1:], minlength=V * V).reshape(V, V)
    pairs_VxV = pairs_VxV + counts_V / counts_V.sum()
    return replace(source, pairs_VxV=pairs_VxV, counts_V=counts_V)


def transitions(source: Characters) -> np.ndarray:
    """(V, V) probabilities of the next symbol; a symbol that nothing follows is left evenly."""
    totals = source.pairs_VxV.sum(1, keepdims=True)
    return np.where(totals > 0, source.pairs_VxV / np.maximum(totals, 1), 1 / len(totals))


def posterior(source: Characters, symbols_BxT: np.ndarray, hidden_BxT: np.ndarray) -> np.ndarray:
    """(B, T, V): each symbol given those not hidden, under the chain (forward-backward)."""
    p_VxV, V = transitions(source), len(source.symbols)
    seen_BxTxV = np.where(hidden_BxT[..., None], 1.0, np.eye(V)[symbols_BxT])
    forward, backward = np.empty_like(seen_BxTxV), np.ones_like(seen_BxTxV)
    forward[:, 0] = source.counts_V / source.counts_V.sum()
    for t in range(1, seen_BxTxV.shape[1]):
        forward[:, t] = _normalised(forward[:, t - 1] * seen_BxTxV[:, t - 1]) @ p_VxV
    for t in range(seen_BxTxV.shape[1] - 2, -1, -1):
        backward[:, t] = _normalised((backward[:, t + 1] * seen_BxTxV[:, t + 1]) @ p_VxV.T)
    return _normalised(forward * seen_BxTxV * backward)


def _walk(key: jax.Array, source: Characters, length: int) -> jax.Array:
    """A stationary walk of the chain, by inverting cumulative probabilities."""
    rows = np.concatenate([source.counts_V[None], source.pairs_VxV]).astype(float)
    ends = np.cumsum(rows, 1) / rows.sum(1, keepdims=True)
    ends_ = jnp.asarray(ends[:, :-1], jnp.float32)  # row 0: the first symbol; float32 under x64
    draws_T = jax.random.uniform(key, (length,), jnp.float32)

    def step(row, draw):
        symbol = (ends_[row] <= draw).sum(dtype=jnp.int32)
        return symbol + 1, symbol

    return jax.lax.scan(step, jnp.zeros((), jnp.int32), draws_T)[1]


def _normalised(p: np.ndarray) -> np.ndarray:
    return p / p.sum(-1, keepdims=True)
