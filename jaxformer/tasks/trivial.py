"""Trivial predictors: what knowing a little of each example scores.

    fit on examples of the task that are drawn for this alone, score on the very set that is scored

Fitted on the scored set itself a predictor learns its noise: on 500 k-hop sequences it seems to
score .71, on others it scores .69. The draws have a key of their own and are the same in every run.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.tasks.task import Batch, Task

DRAWS = 40_000  # examples that a predictor learns from
AT_ONCE = 1000
KEY = 20_26  # of the draws; no stream of a run has it


@functools.lru_cache(maxsize=2)
def fresh(task: Task) -> Batch:
    """Examples to learn from, as numpy arrays; of an enumerated task entries drawn at random."""

    def draw(i):
        key = jax.random.fold_in(jax.random.key(KEY), i)
        index = jax.random.randint(key, (), 0, task.size, jnp.int32) if task.size else i
        return task.example(key, index)

    with jax.enable_x64(False):
        lots = jax.jit(lambda i: jax.lax.map(draw, i, batch_size=AT_ONCE))
        return jax.device_get(lots(jnp.arange(DRAWS)))


def best_by(groups: Callable[[Batch], tuple], fit: Batch, test: Batch) -> float:
    """Accuracy of the answer that is commonest in each group of positions.

    `groups(batch)` gives arrays of whole numbers, one for each token of the batch: positions at
    which all of them agree are a group. A group that was never met gets the commonest answer.
    """
    return float(np.mean(_answers(groups, fit, test) == _scored(test, test.targets)))


def best_constant(fit: Batch, test: Batch) -> float:
    """Accuracy of the commonest answer."""
    return best_by(lambda batch: (), fit, test)


def unigram_loss(fit: Batch, test: Batch) -> float:
    """Nats a scored token of who knows how frequent each answer is, and nothing else."""
    answers, asked = _scored(fit, fit.targets), _scored(test, test.targets)
    counts_V = 0.5 + np.bincount(answers, minlength=asked.max() + 1)
    return float(-np.log(counts_V[asked] / counts_V.sum()).mean())


def _answers(groups: Callable[[Batch], tuple], fit: Batch, test: Batch) -> np.ndarray:
    """The answer to each scored position of the test set."""
    columns = [
        (_scored(fit, known), _scored(test, asked))
        for known, asked in zip(groups(fit), groups(test), strict=True)
    ]
    known, asked, size = 0, 0, 1  # the number of a position's group
    for fitted, tested in columns:
        base = int(max(fitted.max(), tested.max())) + 1
        known, asked, size = known * base + fitted, asked * base + tested, size * base
    targets = _scored(fit, fit.targets)
    n_answers = int(targets.max()) + 1
    counts = np.bincount(known * n_answers + targets, minlength=size * n_answers)
    counts_GxV = counts.reshape(size, n_answers)
    met = counts_GxV.sum(1) > 0
    best_G = np.where(met, counts_GxV.argmax(1), counts_GxV.sum(0).argmax())
    return best_G[np.broadcast_to(asked, _scored(test, test.targets).shape)]


def _scored(batch: Batch, values) -> np.ndarray:
    """The values at the scored positions of a batch."""
    return np.asarray(values)[np.asarray(batch.weights) > 0]
