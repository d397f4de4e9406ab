"""Logistic regression on the words of documents: a trivial predictor of their class.

    score_c(document) = b_c + sum_w W_wc       over the different words w of the document
    loss = mean cross entropy in nats + penalty / 2 |W|^2

Words are compared without case, and must occur in MIN_DOCUMENTS documents. Validation chooses the
penalty among PENALTIES.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import optimize, sparse, special

PENALTIES = (1e-4, 3e-4, 1e-3, 3e-3)
MIN_DOCUMENTS = 2
MAX_ITERATIONS, GRADIENT_TOLERANCE = 100, 1e-4
WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


class WordRegression(NamedTuple):
    """A fitted regression of C classes on the presence of W words."""

    columns: dict[str, int]  # {word: its row of `weights`, and its column of `_presence`}
    weights: np.ndarray  # (W + 1, C); the last row holds the biases b

    def predict(self, texts: Sequence[str]) -> np.ndarray:
        """Returns (B,) the most likely classes of texts."""
        scores_BxC = _presence(texts, self.columns) @ self.weights
        return scores_BxC.argmax(1)


def fit(
    train: tuple[Sequence[str], np.ndarray],
    validation: tuple[Sequence[str], np.ndarray],
    n_classes: int,
) -> WordRegression:
    """Fits the regression to the training documents; validation chooses the penalty.

    Args:
        train: (texts, classes of shape (B,)) of the training documents.
        validation: (texts, classes) of the validation documents.
        n_classes: the number of classes, C.
    """
    counts = Counter(word for text in train[0] for word in {*_words(text)})
    frequent = sorted(word for word, n in counts.items() if n >= MIN_DOCUMENTS)
    columns = {word: column for column, word in enumerate(frequent)}
    x_train, x_validation = (_presence(texts, columns) for texts, _ in (train, validation))
    weights = np.zeros((len(columns) + 1, n_classes))
    fitted = []
    for penalty in sorted(PENALTIES, reverse=True):  # each fit starts from the previous one
        weights = _fit_weights(x_train, train[1], penalty, weights)
        loss = _loss_and_gradient(x_validation @ weights, validation[1])[0]
        fitted.append((loss, penalty, weights))
    return WordRegression(columns, min(fitted, key=lambda entry: entry[0])[2])


def _fit_weights(x: sparse.csr_array, classes: np.ndarray, penalty: float, start: np.ndarray):
    transposed = x.T.tocsr()

    def objective(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights = flat.reshape(start.shape)
        loss, gradient_BxC = _loss_and_gradient(x @ weights, classes)
        # The biases in the last row have no penalty.
        penalised = np.vstack([weights[:-1], np.zeros_like(weights[-1:])])
        gradient = transposed @ gradient_BxC + penalty * penalised
        return loss + penalty / 2 * (penalised**2).sum(), gradient.ravel()

    options = {"maxiter": MAX_ITERATIONS, "gtol": GRADIENT_TOLERANCE}
    result = optimize.minimize(
        objective, start.ravel(), jac=True, method="L-BFGS-B", options=options
    )
    return result.x.reshape(start.shape)


def _loss_and_gradient(scores_BxC: np.ndarray, classes_B: np.ndarray) -> tuple[float, np.ndarray]:
    """Returns the mean cross entropy in nats and its gradient with respect to the scores."""
    logp_BxC = special.log_softmax(scores_BxC, 1)
    rows = np.arange(len(classes_B))
    gradient_BxC = np.exp(logp_BxC)
    gradient_BxC[rows, classes_B] -= 1
    return -logp_BxC[rows, classes_B].mean(), gradient_BxC / len(classes_B)


def _presence(texts: Sequence[str], columns: dict[str, int]) -> sparse.csr_array:
    """Returns a (B, W + 1) matrix with ones where a text has a word, and in the last column."""
    columns_of_text = [
        [*sorted({columns[word] for word in _words(text) if word in columns}), len(columns)]
        for text in texts
    ]
    starts = np.cumsum([0, *map(len, columns_of_text)])
    entries = np.concatenate([np.asarray(row, np.int64) for row in columns_of_text])
    shape = (len(texts), len(columns) + 1)
    return sparse.csr_array((np.ones(len(entries)), entries, starts), shape=shape)


def _words(text: str) -> list[str]:
    return WORD.findall(text.casefold())
