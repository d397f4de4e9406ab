"""Prepared text (`experiments/prepare.py`): what comes next, and what is masked.

tokens=""            the packaged chain of symbols, which needs no file
tokens="NAME"        a prepared folder: a path, or a folder of runs/data (or $JAXFORMER_DATA)
documents=False      packed: windows of the whole text, cut anew in each epoch
documents=True       as the authors of the MixiT papers do: the beginning of a document an
                     example, padded with ends; what is padded is not scored
fingerprint          of the tokens that are meant ("" takes any): printed by prepare.py
"""

from abc import abstractmethod
from dataclasses import dataclass
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError, check_choice, check_range
from jaxformer.data import ngrams
from jaxformer.data.chain import packaged
from jaxformer.data.tokens import PARTS, Tokens, open_tokens
from jaxformer.tasks.disk import DiskTask
from jaxformer.tasks.task import Batch, Scores, most_frequent, token_metrics

MASKINGS = ("plain", "bert")


@dataclass(frozen=True)
class PreparedText(DiskTask):
    """What the tasks on prepared text share."""

    tokens: str = ""
    window: int = 64
    documents: bool = False
    fingerprint: str = ""

    def __post_init__(self):
        check_range("task.window", self.window, 2, 10**6)
        found = self.held.fingerprint
        if self.fingerprint and found != self.fingerprint:
            raise UserError(
                f"task.tokens {self.tokens!r} has the fingerprint {found}; the one that is meant "
                f"is {self.fingerprint}. Prepare that text again; a new run takes any text with "
                "task.fingerprint=''."
            )
        for name in PARTS:
            here = self.held.part(name)
            if here.stop - here.start < self._row or here.last == here.first:
                raise UserError(
                    f"the {name} part of {self.tokens or 'the chain'} has {here.stop - here.start} "
                    f"tokens, and an example takes {self._row}: take a longer text, a larger share "
                    "of it (prepare.py), or a smaller task.window."
                )

    @property
    def held(self) -> Tokens:
        """The tokens, opened."""
        return opened(self.tokens, self.two_ways)

    @property
    def two_ways(self) -> bool:
        """Does the chain come in two classes?"""
        return False

    @property
    def vocab_size(self) -> int:
        return self.held.vocab_size

    @property
    def length(self) -> int:
        return self.window

    @property
    def n_scored(self) -> int:
        return self.window

    @property
    @abstractmethod
    def _row(self) -> int:
        """Tokens of a row."""

    def count(self, part: int) -> int:
        here = self.held.part(PARTS[part])
        if self.documents:
            return here.last - here.first
        return max((here.stop - here.start) // self.window - 1, 1)

    def rows(self, part: int, index_B: np.ndarray, shift_B: np.ndarray) -> np.ndarray:
        """Tokens; of documents as int32, with the length of each behind them."""
        here = self.held.part(PARTS[part])
        if self.documents:
            tokens, lengths = self.held.documents(here.first + index_B, self._row)
            return np.concatenate([tokens.astype(np.int32), lengths[:, None]], 1)
        # Where the first window begins moves with the epoch, so that other tokens stand at its end.
        free = here.stop - here.start - self._row - (self.count(part) - 1) * self.window
        start_B = here.start + shift_B % min(free + 1, self.window) + index_B * self.window
        return self.held.windows(start_B, self._row)

    def split(self, rows_BxR: jax.Array) -> tuple[jax.Array, jax.Array]:
        """(B, row) tokens, (B, row) which of them are of the text."""
        tokens_BxR = rows_BxR[:, : self._row].astype(jnp.int32)
        if not self.documents:
            return tokens_BxR, jnp.ones(tokens_BxR.shape, bool)
        return tokens_BxR, jnp.arange(self._row)[None] < rows_BxR[:, self._row :]


@dataclass(frozen=True)
class NextToken(PreparedText):
    """The next token at every position. `batch_of` is that of the papers' log perplexity: a mean
    over batches of that many examples, so that short examples count more; 0 leaves it out."""

    batch_of: int = 0

    @property
    def _row(self) -> int:
        return self.window + 1

    @property
    def chosen_by(self) -> str:
        return "loss"

    @property
    def means_of_batches(self) -> dict[str, tuple[str, int]]:
        return {"log_perplexity": ("loss", self.batch_of)} if self.batch_of else {}

    def batch(self, rows_BxR: jax.Array, keys_B: jax.Array) -> Batch:
        tokens_BxR, real_BxR = self.split(rows_BxR)
        scored = (real_BxR[:, 1:] & real_BxR[:, :-1]) * 1.0
        return Batch(tokens_BxR[:, :-1], tokens_BxR[:, 1:], scored)

    def metrics(self, logits_BxKxV, batch: Batch) -> dict[str, Scores]:
        """Beside loss and accuracy, bits a byte of text: it compares tokenizers."""
        scores = token_metrics(logits_BxKxV, batch)
        loss, weight = scores["loss"]
        table = jnp.asarray(self.held.bytes_of_token, batch.weights.dtype)
        bytes_B = (table[batch.targets] * batch.weights).sum(-1)
        bits_B = loss * weight / jnp.log(2.0).astype(loss.dtype)
        return scores | {"bits_per_byte": Scores(bits_B / jnp.maximum(bytes_B, 1e-9), bytes_B)}

    def baselines(self, batch: Batch) -> dict[str, float]:
        """Predictors that look back no, one or two tokens, fitted on the training text: on its
        first 5,000,000 tokens (`ngrams.MOST`) if it is longer."""
        scored = np.asarray(batch.weights) > 0
        inputs, targets = np.asarray(batch.inputs), np.asarray(batch.targets)
        before = np.concatenate([np.full((len(inputs), 1), -1), inputs[:, :-1]], 1)
        fitted = fitted_to(self.held)
        c = targets[scored]
        p = fitted.probabilities(before[scored], inputs[scored], c)
        bytes_ = self.held.bytes_of_token[c].sum()
        return {
            "best_constant": most_frequent(c, np.ones_like(c)),
            "bigram_accuracy": float((fitted.best_after()[inputs[scored]] == c).mean()),
            **{f"{name}_loss": float(-np.log(p_c).mean()) for name, p_c in p.items()},
            **{
                f"{name}_bits_per_byte": float(-np.log2(p_c).sum() / bytes_)
                for name, p_c in p.items()
            },
        }


@dataclass(frozen=True)
class MaskedTokens(PreparedText):
    """Each token is chosen with probability `rate`, and the model names it.

    masking="plain": every chosen position shows the mask, the last id. "bert": 80 % show the mask,
    10 % a random token, 10 % their own.
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
        return self.held.vocab_size + 1

    @property
    def _row(self) -> int:
        return self.window

    @property
    def chosen_by(self) -> str:
        return "loss"

    def batch(self, rows_BxR: jax.Array, keys_B: jax.Array) -> Batch:
        tokens_BxT, real_BxT = self.split(rows_BxR)
        draws = jax.vmap(lambda key: jax.random.uniform(key, (3, self.window), jnp.float32))(keys_B)
        chosen_BxT, kind_BxT, other_BxT = jnp.moveaxis(draws, 1, 0)
        mask = self.held.vocab_size
        shown_BxT = jnp.full_like(tokens_BxT, mask)
        if self.masking == "bert":
            random_BxT = jnp.floor(other_BxT * mask).astype(jnp.int32)
            kept = jnp.where(kind_BxT < 0.9, random_BxT, tokens_BxT)
            shown_BxT = jnp.where(kind_BxT < 0.8, mask, kept)
        scored_BxT = (chosen_BxT < self.rate) & real_BxT
        return Batch(jnp.where(scored_BxT, shown_BxT, tokens_BxT), tokens_BxT, scored_BxT * 1.0)

    def baselines(self, batch: Batch) -> dict[str, float]:
        """The predictor that knows how frequent tokens are (in the same first tokens as the n-grams
        of `NextToken`) and nothing else."""
        c = np.asarray(batch.targets)[np.asarray(batch.weights) > 0]
        return {
            "best_constant": most_frequent(c, np.ones_like(c)),
            "unigram_loss": float(-np.log(fitted_to(self.held).unigram_V[c]).mean()),
        }


def opened(name: str, two_ways: bool) -> Tokens:
    return open_tokens(name) if name else packaged(two_ways)


@cache
def fitted_to(held: Tokens) -> ngrams.Ngrams:
    """The n-grams of the training part, of its first `ngrams.MOST` tokens if it is longer."""
    here = held.part("train")
    tokens = held.tokens(here.start, min(here.stop, here.start + ngrams.MOST))
    return ngrams.fit(tokens, held.vocab_size)
