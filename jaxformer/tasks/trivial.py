"""Trivial predictors: chance levels that use little of each example.

Predictors are fitted on examples drawn for this purpose and scored on the set that the network is
scored on. Fitted on the scored set they would learn its noise: an accuracy of .71 instead of .69 on
500 k-hop sequences. The fitting examples are the same in every run.

A scored position counts by its weight, in the fit and in the score, as it does in the loss and the
scores of a network. Otherwise a network would be compared with a predictor of another question.
"""

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import is_users
from jaxformer.data.protocols import TRAIN, Batch

N_FITTING_EXAMPLES = 40_000
DRAW_BATCH_SIZE = 1000
FITTING_SEED = 2026  # no data stream of a run uses it
# {id of a task: (task, its fitting examples)} within `drawn_once`.
_drawn_here: contextvars.ContextVar[dict[int, tuple[Any, Batch]] | None] = contextvars.ContextVar(
    "fitting examples", default=None
)


class Drawing(Protocol):
    """The part of a `Task` that draws examples."""

    @property
    def size(self) -> int: ...

    def part(self, stream: int, /) -> "Drawing": ...

    def example(self, key: jax.Array, index: jax.Array, /) -> Batch: ...


def fitting_examples(task: Drawing) -> Batch:
    """Returns the fitting examples, drawn from the training part, as numpy arrays.

    Examples of a task that enumerates them are drawn at random, with repetitions. Those of our own
    tasks are kept, because their fields fix them. Those of a user's task are drawn anew, since its
    code may read something that has changed; only within `drawn_once` are they drawn once.
    """
    if not is_users(task):
        return _kept_examples(task)
    drawn = _drawn_here.get()
    if drawn is None:
        return _drawn_examples(task)
    if id(task) not in drawn:
        drawn[id(task)] = task, _drawn_examples(task)  # a task that is kept has its id for itself
    return drawn[id(task)][1]


@contextlib.contextmanager
def drawn_once() -> Iterator[None]:
    """Within it, the fitting examples of a task are drawn once."""
    token = _drawn_here.set({})
    try:
        yield
    finally:
        _drawn_here.reset(token)


@functools.lru_cache(maxsize=2)
def _kept_examples(task: Drawing) -> Batch:
    return _drawn_examples(task)


def _drawn_examples(task: Drawing) -> Batch:
    training = task.part(TRAIN)

    def draw(i):
        key = jax.random.fold_in(jax.random.key(FITTING_SEED), i)
        index = jax.random.randint(key, (), 0, task.size, jnp.int32) if task.size else i
        return training.example(key, index)

    with jax.enable_x64(False):
        draw_all = jax.jit(lambda i: jax.lax.map(draw, i, batch_size=DRAW_BATCH_SIZE))
        return jax.device_get(draw_all(jnp.arange(N_FITTING_EXAMPLES)))


def best_by(groups: Callable[[Batch], tuple], fit: Batch, test: Batch) -> float:
    """Returns the accuracy of the most frequent answer of each group of positions.

    Args:
        groups: maps a batch to integer arrays of its shape (B, T). Two positions are in
            one group if every array has equal values at both. A group without fitting examples
            gets the most frequent answer.
        fit: the fitting examples.
        test: the scored examples.
    """
    is_right = _predicted_answers(groups, fit, test) == _scored_values(test, test.targets)
    return _weighted_mean(is_right, test)


def best_constant(fit: Batch, test: Batch) -> float:
    """Returns the accuracy of the most frequent answer."""
    return best_by(lambda batch: (), fit, test)


def unigram_loss(fit: Batch, test: Batch) -> float:
    """Returns the loss of predicting each answer with its frequency, in nats per scored token."""
    fit_answers, test_answers = _scored_values(fit, fit.targets), _scored_values(test, test.targets)
    # Adding 1/2 to each count gives tokens without fitting examples a finite loss.
    counts_V = 0.5 + _counts(fit_answers, fit, n=test_answers.max() + 1)
    nats = np.log(counts_V[test_answers] / counts_V.sum())
    return 0 - _weighted_mean(nats, test)  # never -0


def _predicted_answers(groups: Callable[[Batch], tuple], fit: Batch, test: Batch) -> np.ndarray:
    """Returns the predicted answer at each scored position of the test set."""
    columns = [
        (_scored_values(fit, fit_values), _scored_values(test, test_values))
        for fit_values, test_values in zip(groups(fit), groups(test), strict=True)
    ]
    # The number of a group has the values of the arrays as its digits.
    fit_group, test_group, n_groups = 0, 0, 1
    for fit_column, test_column in columns:
        base = int(max(fit_column.max(), test_column.max())) + 1
        fit_group = fit_group * base + fit_column
        test_group = test_group * base + test_column
        n_groups *= base
    targets = _scored_values(fit, fit.targets)
    n_answers = int(targets.max()) + 1
    counts = _counts(fit_group * n_answers + targets, fit, n=n_groups * n_answers)
    counts_GxV = counts.reshape(n_groups, n_answers)
    has_examples_G = counts_GxV.sum(1) > 0
    best_G = np.where(has_examples_G, counts_GxV.argmax(1), counts_GxV.sum(0).argmax())
    # Without arrays there is a single group, and test_group is the number 0.
    return best_G[np.broadcast_to(test_group, _scored_values(test, test.targets).shape)]


def _scored_values(batch: Batch, values) -> np.ndarray:
    """Returns the values at the scored positions of a batch."""
    return np.asarray(values)[np.asarray(batch.weights) > 0]


def _relative_weights(batch: Batch) -> np.ndarray:
    """The weights of the scored positions, whose mean is 1.

    So a count of examples keeps its size if all weights are multiplied by a number, and a
    pseudo-count its share.
    """
    weights = _scored_values(batch, batch.weights).astype(np.float64)
    return weights / weights.mean()


def _counts(values: np.ndarray, batch: Batch, n: int) -> np.ndarray:
    """The weight of each of 0 to n - 1 (or the largest) at scored positions."""
    return np.bincount(values, _relative_weights(batch), minlength=n)


def _weighted_mean(values: np.ndarray, batch: Batch) -> float:
    """The mean over scored positions as a network's scores have it, by weight."""
    weights = _relative_weights(batch)
    return float((values * weights).sum() / weights.sum())


class Bigram:
    """Predicts an answer from the input token at its position, by counts of both.

    Only pairs that occur are stored, because a vocabulary of 50,000 has too many for a table.
    """

    def __init__(self, fit: Batch, n_answers: int):
        self.n_answers = n_answers
        tokens, answers = _scored_values(fit, fit.inputs), _scored_values(fit, fit.targets)
        # One pseudo-count for each token, spread as the answers are, so that no loss is infinite.
        self.unigram_V = 0.5 + _counts(answers, fit, n=n_answers)
        self.unigram_V /= self.unigram_V.sum()
        self.of_token = _counts(tokens, fit, n=int(tokens.max()) + 1)
        self.pairs, pair = np.unique(self._pairs(tokens, answers), return_inverse=True)
        self.counts = _counts(pair, fit, n=len(self.pairs))

    def _pairs(self, tokens: np.ndarray, answers: np.ndarray) -> np.ndarray:
        return tokens.astype(np.int64) * self.n_answers + answers

    def loss(self, test: Batch) -> float:
        """The loss in nats for each scored token."""
        tokens, answers = _scored_values(test, test.inputs), _scored_values(test, test.targets)
        pairs = self._pairs(tokens, answers)
        place = np.minimum(np.searchsorted(self.pairs, pairs), len(self.pairs) - 1)
        counts = np.where(self.pairs[place] == pairs, self.counts[place], 0)
        known = np.minimum(tokens, len(self.of_token) - 1)
        totals = np.where(tokens < len(self.of_token), self.of_token[known], 0)
        p = (counts + self.unigram_V[answers]) / (totals + 1)
        return -_weighted_mean(np.log(p), test)

    def accuracy(self, test: Batch) -> float:
        """The accuracy of the most frequent answer after each token."""
        order = np.lexsort((self.pairs, -self.counts))  # the most frequent pair of a token is first
        tokens, first = np.unique(self.pairs[order] // self.n_answers, return_index=True)
        best = np.full(int(tokens.max()) + 2, self.unigram_V.argmax())  # the last: an unseen token
        best[tokens] = self.pairs[order][first] % self.n_answers
        test_tokens = np.minimum(_scored_values(test, test.inputs), len(best) - 1)
        is_right = best[test_tokens] == _scored_values(test, test.targets)
        return _weighted_mean(is_right, test)
