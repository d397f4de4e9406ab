"""Which class a document of prepared text is of: sentiment, or which way round it is written.

tokens="" is the packaged chain in two classes, forwards and backwards, which needs no file.
"""

from dataclasses import dataclass
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError
from jaxformer.data.tokens import Tokens
from jaxformer.tasks.language import PreparedText
from jaxformer.tasks.task import TRAIN, Batch, most_frequent

COUNTED = 20_000  # training documents that the bag of words is fitted on, at most


@dataclass(frozen=True)
class DocumentClass(PreparedText):
    """The class of a document, of which the first `window` tokens are shown, padded with ends."""

    documents: bool = True

    def __post_init__(self):
        super().__post_init__()
        if not self.documents:
            raise UserError("a class belongs to a document: leave task.documents at True.")
        if len(self.held.labels) < 2:
            raise UserError(
                f"the documents of {self.tokens} have no classes: prepare them with --label=FIELD."
            )

    @property
    def two_ways(self) -> bool:
        return True

    @property
    def n_scored(self) -> int:
        return 1

    @property
    def answers(self) -> int:
        return len(self.held.labels)

    @property
    def sizes(self) -> dict[str, int]:
        return super().sizes | {"classes": self.answers, "pad": self.held.end}

    @property
    def _row(self) -> int:
        return self.window

    def rows(self, part: int, index_B: np.ndarray, shift_B: np.ndarray) -> np.ndarray:
        """The tokens of documents, the length of each, its class."""
        rows = super().rows(part, index_B, shift_B)
        first = self.held.part(("train", "validation", "test")[part]).first
        labels_B = self.held.labels_of(first + index_B)
        if (labels_B < 0).any():  # of a text that was prepared before such rows were refused
            raise UserError(
                f"{(labels_B < 0).sum()} of {len(labels_B)} documents of {self.tokens} have no "
                "class: leave them out and prepare the text again."
            )
        return np.concatenate([rows, labels_B[:, None]], 1)

    def batch(self, rows_BxR: jax.Array, keys_B: jax.Array) -> Batch:
        label_Bx1 = rows_BxR[:, self.window + 1 :]
        return Batch(rows_BxR[:, : self.window], label_Bx1, jnp.ones(label_Bx1.shape))

    def baselines(self, batch: Batch) -> dict[str, float]:
        """The most frequent class, and naive Bayes on how often each token occurs."""
        targets = np.asarray(batch.targets)[:, 0]
        scores = bag_of_words(self)[np.asarray(batch.inputs)].sum(1)
        return {
            "best_constant": most_frequent(targets, np.ones_like(targets)),
            "bag_of_words": float((scores.argmax(-1) == targets).mean()),
        }


@cache
def bag_of_words(task: DocumentClass) -> np.ndarray:
    """(V, C) log p(token | class), smoothed by one; padding says nothing."""
    held: Tokens = task.held
    n = min(task.count(TRAIN), COUNTED)
    rows = task.rows(TRAIN, np.arange(n) * task.count(TRAIN) // n, np.zeros(n, np.int64))
    tokens, labels = rows[:, : task.window], rows[:, -1]
    counts = np.ones((held.vocab_size, task.answers))
    for c in range(task.answers):
        counts[:, c] += np.bincount(tokens[labels == c].ravel(), minlength=held.vocab_size)
    counts[held.end] = 0
    p = counts / counts.sum(0)
    return np.log(np.where(p > 0, p, 1))
