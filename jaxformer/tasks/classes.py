"""Classification of documents of a prepared text, for example by sentiment.

tokens="" is the packaged chain: texts of one class are written forwards, of the other backwards.
"""

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError
from jaxformer.data.tokens import Tokens
from jaxformer.tasks.language import PreparedText
from jaxformer.tasks.task import TRAIN, VALIDATION, Batch, most_frequent

if TYPE_CHECKING:
    from jaxformer.tasks.word_regression import WordRegression

MAX_BAG_OF_WORDS_DOCUMENTS = 20_000


@dataclass(frozen=True)
class DocumentClass(PreparedText):
    """Predicts the class of a document from its first `window` tokens, padded with end tokens."""

    documents: bool = True  # must be True: a class belongs to a document

    def __post_init__(self):
        super().__post_init__()
        if not self.documents:
            raise UserError("a class belongs to a document: leave task.documents at True.")
        if len(self.prepared.labels) < 2:
            raise UserError(
                f"the documents of {self.tokens} have no classes: prepare them with --label=FIELD."
            )

    @property
    def has_reversed_chain(self) -> bool:
        return True

    @property
    def n_scored(self) -> int:
        return 1

    @property
    def answers(self) -> int:
        return len(self.prepared.labels)

    @property
    def sizes(self) -> dict[str, int]:
        return super().sizes | {"classes": self.answers, "pad": self.prepared.end}

    @property
    def _row_length(self) -> int:
        return self.window

    def rows(self, part: int, index_B: np.ndarray, shift_B: np.ndarray) -> np.ndarray:
        """Returns the tokens of each document, its length and its class."""
        rows = super().rows(part, index_B, shift_B)
        first_document = self.prepared.part(("train", "validation", "test")[part]).first
        labels_B = self.prepared.labels_of(first_document + index_B)
        if (labels_B < 0).any():  # older versions kept documents without a class
            raise UserError(
                f"{(labels_B < 0).sum()} of {len(labels_B)} documents of {self.tokens} have no "
                "class: leave them out and prepare the text again."
            )
        return np.concatenate([rows, labels_B[:, None]], 1)

    def batch(self, rows_BxR: jax.Array, keys_B: jax.Array) -> Batch:
        label_Bx1 = rows_BxR[:, self.window + 1 :]
        return Batch(rows_BxR[:, : self.window], label_Bx1, jnp.ones(label_Bx1.shape))

    def baselines(self, batch: Batch) -> dict[str, float]:
        """Returns the accuracies of the most frequent class and of predictors that ignore order.

        `bag_of_words` is naive Bayes on tokens, `word_regression` logistic regression on words. The
        packaged chain, whose words are spelled backwards in one class, has no regression.
        """
        targets = np.asarray(batch.targets)[:, 0]
        log_p_BxC = bag_of_words(self)[np.asarray(batch.inputs)].sum(1)
        baselines = {
            "best_constant": most_frequent(targets, np.ones_like(targets)),
            "bag_of_words": float((log_p_BxC.argmax(-1) == targets).mean()),
        }
        if self.tokens:
            predicted = regression(self).predict(self.texts(np.asarray(batch.inputs)))
            baselines["word_regression"] = float((predicted == targets).mean())
        return baselines

    def texts(self, tokens_BxT: np.ndarray) -> list[str]:
        """Returns the texts of rows of tokens without their padding."""
        decode, end = self.prepared.tokenizer.decode, self.prepared.end
        return [decode(tokens_T[tokens_T != end].tolist()) for tokens_T in tokens_BxT]

    def documents_of(self, part: int, max_documents: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the tokens and classes of evenly spaced documents of a part."""
        count = self.count(part)
        n = min(count, max_documents)
        rows = self.rows(part, np.arange(n) * count // n, np.zeros(n, np.int64))
        return rows[:, : self.window], rows[:, -1]


@cache
def regression(task: DocumentClass) -> "WordRegression":
    """Returns the regression on the words that a model sees, the first `window` tokens."""
    # Imported late because its parts of SciPy take a quarter of a second to import.
    from jaxformer.tasks import word_regression

    parts = [task.documents_of(part, MAX_BAG_OF_WORDS_DOCUMENTS) for part in (TRAIN, VALIDATION)]
    train, validation = ((task.texts(tokens), labels) for tokens, labels in parts)
    return word_regression.fit(train, validation, task.answers)


@cache
def bag_of_words(task: DocumentClass) -> np.ndarray:
    """Returns (V, C) log p(token | class) for C classes with add-one smoothing; 0 for padding."""
    prepared: Tokens = task.prepared
    tokens, labels = task.documents_of(TRAIN, MAX_BAG_OF_WORDS_DOCUMENTS)
    counts = np.ones((prepared.vocab_size, task.answers))
    for c in range(task.answers):
        counts[:, c] += np.bincount(tokens[labels == c].ravel(), minlength=prepared.vocab_size)
    counts[prepared.end] = 0
    p = counts / counts.sum(0)
    return np.log(np.where(p > 0, p, 1))
