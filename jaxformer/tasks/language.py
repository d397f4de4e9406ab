"""Language modelling on prepared text (`jaxformer prepare`): next tokens and masked tokens.

tokens=""            the packaged Markov chain of symbols, which needs no file
tokens="NAME"        a prepared folder: a path, or a folder of runs/data (or $JAXFORMER_DATA)
documents=False      packed windows of the whole text, shifted in each epoch
documents=True       the beginning of each document, padded with end tokens that are not scored
                     (as in the code of the MixiT papers)
fingerprint="HEX"    the text must have this fingerprint, which `jaxformer prepare` prints
"""

from abc import abstractmethod
from dataclasses import dataclass
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError, check_range
from jaxformer.data import ngrams
from jaxformer.data.chain import packaged
from jaxformer.data.token_index import PARTS
from jaxformer.data.tokens import Tokens, open_tokens
from jaxformer.tasks.disk import DiskTask
from jaxformer.tasks.masking import check_masking, mask_tokens
from jaxformer.tasks.task import (
    Batch,
    Scores,
    most_frequent,
    token_metrics,
    with_gap_to_unigram,
)


@dataclass(frozen=True)
class PreparedText(DiskTask):
    """A task on the tokens of a prepared text."""

    tokens: str = ""  # a prepared folder: its path or name; "" is the packaged chain
    window: int = 64  # tokens of an example
    documents: bool = False  # examples are beginnings of documents instead of packed windows
    fingerprint: str = ""  # the expected fingerprint of the text; "" accepts any

    def __post_init__(self):
        check_range("task.window", self.window, 2, 10**6)
        fingerprint = self.prepared.fingerprint
        if self.fingerprint and fingerprint != self.fingerprint:
            raise UserError(
                f"task.tokens {self.tokens!r} has the fingerprint {fingerprint}, expected "
                f"{self.fingerprint}. Prepare that text again, or start a new run with "
                "task.fingerprint='', which accepts any text."
            )
        for name in PARTS:
            span = self.prepared.part(name)
            if span.stop - span.start < self._row_length or span.last == span.first:
                raise UserError(
                    f"the {name} part of {self.tokens or 'the chain'} has {span.stop - span.start} "
                    f"tokens, and an example needs {self._row_length}: use a longer text, a larger "
                    "share of it (jaxformer prepare), or a smaller task.window."
                )

    @property
    def prepared(self) -> Tokens:
        """The opened token files."""
        return open_prepared(self.tokens, self.has_reversed_chain)

    @property
    def has_reversed_chain(self) -> bool:
        """True if the packaged chain has two classes: forwards and backwards."""
        return False

    @property
    def vocab_size(self) -> int:
        return self.prepared.vocab_size

    @property
    def length(self) -> int:
        return self.window

    @property
    def n_scored(self) -> int:
        return self.window

    @property
    @abstractmethod
    def _row_length(self) -> int:
        """The number of tokens of a row."""

    @property
    def _stride(self) -> int:
        """The number of tokens from one window to the next."""
        return self.window

    def count(self, part: int) -> int:
        span = self.prepared.part(PARTS[part])
        if self.documents:
            return span.last - span.first
        return max((span.stop - span.start) // self._stride - 1, 1)

    def rows(self, part: int, index_B: np.ndarray, shift_B: np.ndarray) -> np.ndarray:
        """Returns windows of tokens, or documents as int32 followed by their lengths."""
        span = self.prepared.part(PARTS[part])
        if self.documents:
            tokens, lengths = self.prepared.documents(span.first + index_B, self._row_length)
            return np.concatenate([tokens.astype(np.int32), lengths[:, None]], 1)
        # The start of the first window moves with the epoch, so that windows end elsewhere.
        covered = self._row_length + (self.count(part) - 1) * self._stride
        n_starts = min(span.stop - span.start - covered + 1, self._stride)
        start_B = span.start + shift_B % n_starts + index_B * self._stride
        return self.prepared.windows(start_B, self._row_length)

    def split(self, rows_BxR: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Returns (B, R) tokens and (B, R) booleans: False for padding."""
        tokens_BxR = rows_BxR[:, : self._row_length].astype(jnp.int32)
        if not self.documents:
            return tokens_BxR, jnp.ones(tokens_BxR.shape, bool)
        return tokens_BxR, jnp.arange(self._row_length)[None] < rows_BxR[:, self._row_length :]


@dataclass(frozen=True)
class NextToken(PreparedText):
    """Prediction of the next token at every position.

    Each window begins with the tokenizer's start token, if there is one, as Llama's and Gemma's.
    """

    # The papers' log perplexity averages the mean losses of batches of this size; 0 omits it.
    batch_of: int = 0
    vocab: int = 0  # the model's vocabulary size, if larger than the tokenizer's; 0: the same

    def __post_init__(self):
        super().__post_init__()
        if self.vocab and self.vocab < self.prepared.vocab_size:
            check_range("task.vocab", self.vocab, self.prepared.vocab_size)

    @property
    def vocab_size(self) -> int:
        return self.vocab or self.prepared.vocab_size

    @property
    def _row_length(self) -> int:
        # Without a start token, the first token of a row is only seen.
        return self.window + (self.prepared.start < 0)

    @property
    def chosen_by(self) -> str:
        return "loss"

    @property
    def means_of_batches(self) -> dict[str, tuple[str, int]]:
        return {"log_perplexity": ("loss", self.batch_of)} if self.batch_of else {}

    def batch(self, rows_BxR: jax.Array, keys_B: jax.Array) -> Batch:
        tokens_BxR, is_text_BxR = self.split(rows_BxR)
        if self.prepared.start >= 0:
            first = ((0, 0), (1, 0))
            tokens_BxR = jnp.pad(tokens_BxR, first, constant_values=self.prepared.start)
            is_text_BxR = jnp.pad(is_text_BxR, first, constant_values=True)
        scored = (is_text_BxR[:, 1:] & is_text_BxR[:, :-1]) * 1.0
        return Batch(tokens_BxR[:, :-1], tokens_BxR[:, 1:], scored)

    def metrics(self, logits_BxKxV, batch: Batch) -> dict[str, Scores]:
        """Returns token scores, and bits per byte of text to compare tokenizers."""
        scores = token_metrics(logits_BxKxV, batch)
        loss, weight = scores["loss"]
        bytes_V = jnp.asarray(self.prepared.bytes_of_token, batch.weights.dtype)
        bytes_B = (bytes_V[batch.targets] * batch.weights).sum(-1)
        bits_B = loss * weight / jnp.log(2.0).astype(loss.dtype)
        return scores | {"bits_per_byte": Scores(bits_B / jnp.maximum(bytes_B, 1e-9), bytes_B)}

    def baselines(self, batch: Batch) -> dict[str, float]:
        """Returns scores of n-gram predictors of order 1 to 3.

        They are fitted on at most the first 5,000,000 training tokens (`ngrams.MAX_TOKENS`).
        """
        scored = np.asarray(batch.weights) > 0
        inputs, targets = np.asarray(batch.inputs), np.asarray(batch.targets)
        # The token before each input; -1 before the first input.
        previous = np.concatenate([np.full((len(inputs), 1), -1), inputs[:, :-1]], 1)
        fitted = fit_ngrams(self.prepared)
        targets_N = targets[scored]  # N scored tokens
        p_of_order = fitted.probabilities(previous[scored], inputs[scored], targets_N)
        n_bytes = self.prepared.bytes_of_token[targets_N].sum()
        return {
            "best_constant": most_frequent(targets_N, np.ones_like(targets_N)),
            "bigram_accuracy": float((fitted.best_after()[inputs[scored]] == targets_N).mean()),
            **{f"{name}_loss": float(-np.log(p_N).mean()) for name, p_N in p_of_order.items()},
            **{
                f"{name}_bits_per_byte": float(-np.log2(p_N).sum() / n_bytes)
                for name, p_N in p_of_order.items()
            },
        }


@dataclass(frozen=True)
class MaskedTokens(PreparedText):
    """Prediction of masked tokens; each is masked with probability `rate` (tasks/masking.py).

    The mask is that of the tokenizer, as BERT's has one, or a token more. Where the tokenizer has a
    start token, a window lies between start and end token, which are never masked.
    """

    rate: float = 0.15  # probability of masking a token
    masking: str = "plain"  # shows the mask at every masked token; "bert" at 80 % of them
    vocab: int = 0  # the model's vocabulary size, if larger than the tokenizer's; 0: the same

    def __post_init__(self):
        super().__post_init__()
        n_framing = self.window - self._row_length
        check_range("task.window", self.window, 2 + n_framing)
        check_masking(self.rate, self.masking)
        if self.vocab and self.vocab < self._n_tokens:
            check_range("task.vocab", self.vocab, self._n_tokens)

    @property
    def vocab_size(self) -> int:
        return self.vocab or self._n_tokens

    @property
    def _n_tokens(self) -> int:
        return self.prepared.vocab_size + (self.prepared.mask < 0)

    @property
    def _row_length(self) -> int:
        return self.window - 2 * (self.prepared.start >= 0)

    @property
    def _stride(self) -> int:
        return self._row_length

    @property
    def chosen_by(self) -> str:
        return "loss"

    def batch(self, rows_BxR: jax.Array, keys_B: jax.Array) -> Batch:
        prepared = self.prepared
        tokens_BxT, is_text_BxT = self.split(rows_BxR)
        if prepared.start >= 0:
            tokens_BxT = jnp.pad(
                tokens_BxT,
                ((0, 0), (1, 1)),
                constant_values=((0, 0), (prepared.start, prepared.end)),
            )
            is_text_BxT = jnp.pad(is_text_BxT, ((0, 0), (1, 1)), constant_values=False)
        draws = jax.vmap(lambda key: jax.random.uniform(key, (3, self.window), jnp.float32))(keys_B)
        draws_3xBxT = jnp.moveaxis(draws, 1, 0)
        mask_id = prepared.mask if prepared.mask >= 0 else prepared.vocab_size
        shown_BxT, masked_BxT = mask_tokens(
            tokens_BxT, draws_3xBxT, mask_id, self.rate, self.masking, prepared.vocab_size
        )
        scored_BxT = masked_BxT & is_text_BxT
        return Batch(jnp.where(scored_BxT, shown_BxT, tokens_BxT), tokens_BxT, scored_BxT * 1.0)

    def metrics(self, logits_BxKxV: jax.Array, batch: Batch) -> dict[str, Scores]:
        nats_V = -np.log(fit_ngrams(self.prepared).unigram_V)
        return with_gap_to_unigram(super().metrics(logits_BxKxV, batch), nats_V, batch)

    def baselines(self, batch: Batch) -> dict[str, float]:
        """Returns scores of the best constant and of the unigram predictor."""
        targets_N = np.asarray(batch.targets)[np.asarray(batch.weights) > 0]  # N scored tokens
        return {
            "best_constant": most_frequent(targets_N, np.ones_like(targets_N)),
            "unigram_loss": float(-np.log(fit_ngrams(self.prepared).unigram_V[targets_N]).mean()),
        }


def open_prepared(name: str, has_reversed_chain: bool) -> Tokens:
    """Opens the prepared text of a folder, or the packaged text for the name ""."""
    return open_tokens(name) if name else packaged(has_reversed_chain)


@cache
def fit_ngrams(prepared: Tokens) -> ngrams.Ngrams:
    """Fits n-grams to at most the first `ngrams.MAX_TOKENS` training tokens."""
    span = prepared.part("train")
    tokens = prepared.tokens(span.start, min(span.stop, span.start + ngrams.MAX_TOKENS))
    return ngrams.fit(tokens, prepared.vocab_size)
