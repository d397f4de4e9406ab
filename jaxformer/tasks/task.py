"""The base class of tasks: frozen values that draw examples and score predictions.

A task makes one example from a key and an index. All its methods are pure functions. So a batch is
made inside the compiled step, a run resumes from the number of a step, and all variants see the
same data. Tokens are int32 whether x64 is on or not.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxformer.core import layouts
from jaxformer.data.protocols import TEST as TEST
from jaxformer.data.protocols import TRAIN as TRAIN
from jaxformer.data.protocols import VALIDATION as VALIDATION
from jaxformer.data.protocols import Batch as Batch
from jaxformer.tasks import trivial
from jaxformer.tasks.chunked_loss import DeferredLogits
from jaxformer.tasks.cross_entropy import cross_entropy


class Scores(NamedTuple):
    """One number for each example and its weight in the mean over examples."""

    value: jax.Array  # (B,)
    weight: jax.Array  # (B,)


class Declared(NamedTuple):
    """The names of all scores and baselines that a task reports."""

    scores: tuple[str, ...]
    baselines: tuple[str, ...]


TOKEN_SCORES = ("loss", "accuracy", "exact_match")  # the scores of `token_metrics`
# A kind with fewer different examples occurs in every set (see `Task.is_common`).
MIN_EXAMPLES_OF_A_KIND = 1000


@dataclass(frozen=True)
class Task(ABC):
    """A task. Subclasses define sizes and `example`, and may add baselines and metrics."""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """The number of different tokens."""

    @property
    @abstractmethod
    def length(self) -> int:
        """The length of the longest sequence with answer and padding.

        It is the size of the model's position table. Inputs may be shorter.
        """

    @property
    @abstractmethod
    def n_scored(self) -> int:
        """The largest number of scored positions in an example. Logits are computed only there."""

    @property
    def answers(self) -> int:
        """The number of logits of an answer: one for each token or class."""
        return self.vocab_size

    @property
    def sizes(self) -> dict[str, int]:
        """The fields of a model's spec that follow from the task."""
        return {"vocab_size": self.vocab_size, "length": self.length}

    @property
    def chosen_by(self) -> str:
        """The validation score that chooses the learning rate: "accuracy" or "loss"."""
        return "accuracy"

    @property
    def means_of_batches(self) -> dict[str, tuple[str, int]]:
        """Maps the name of a further score to (score, n).

        The further score averages over batches of n examples, where each batch has the mean of
        `score` over its examples.
        """
        return {}

    @property
    def size(self) -> int:
        """The number of examples if the index enumerates them, else 0."""
        return 0

    @property
    def held_out(self) -> bool:
        """True if an enumerated task has a test set. Otherwise it is scored on its training set."""
        return False

    def blank(self) -> jax.Array:
        """Returns an input for initialising a model; its values do not matter."""
        return jnp.zeros((1, 1), jnp.int32)

    @abstractmethod
    def example(self, key: jax.Array, index: jax.Array) -> Batch:
        """Returns one example.

        Args:
            key: the key of the example; enumerated tasks ignore it.
            index: the number of the example; sampled tasks ignore it.
        """

    @property
    def remark(self) -> str:
        """A line about these options that a run prints, or ""."""
        return ""

    def part(self, stream: int) -> "Task":
        """Returns the task restricted to the TRAIN, VALIDATION or TEST part of its data.

        Most tasks draw all three alike. A text task reserves a section of its file for each.
        Training draws from the TRAIN part only, and so do the trivial predictors. A task that
        enumerates its examples (`size`) has no parts of its own: the sizes of the held-out sets
        say how its table is divided.
        """
        return self

    def is_common(self, example: Batch) -> jax.Array:
        """Returns True if too few examples of this kind exist to split them between the sets.

        Such examples occur in every set. Scores on unseen examples leave them out.
        """
        return jnp.zeros((), bool)

    def metrics(self, logits_BxKxV: jax.Array, batch: Batch) -> dict[str, Scores]:
        """Returns scores of each example by name.

        Training minimises "loss", and validation reads "accuracy": both must be present.

        Args:
            logits_BxKxV: the logits at the K scored positions; with train.loss_chunk they are
                `DeferredLogits`.
            batch: the examples, with targets and weights at these positions only, (B, K).
        """
        return token_metrics(logits_BxKxV, batch)

    def groups(self, batch: Batch) -> dict[str, jax.Array]:
        """Returns named groups of examples, such as "pairs=4", as (B,) booleans.

        The scores named in `grouped` are also reported by group, as "accuracy/pairs=4".
        """
        return {}

    @property
    def grouped(self) -> tuple[str, ...]:
        """The names of the scores that are reported by group."""
        return ("accuracy",)

    def baselines(self, batch: Batch) -> dict[str, float]:
        """Scores of trivial predictors on this batch: the chance levels of the task.

        By default they know how often each answer occurs, and nothing of an example. Return those
        that see more too, such as a guess among the tokens of the input: a network that ends at
        their score has learned no more than they know. Predictors are fitted on separate examples
        (tasks/trivial.py). Names that end in "_loss" are in nats; other scores are accuracies. A
        run that ends above `unigram_loss` warns.
        """
        fit, batch = trivial.fitting_examples(self), jax.device_get(batch)
        return {
            "best_constant": trivial.best_constant(fit, batch),
            "unigram_loss": trivial.unigram_loss(fit, batch),
        }

    @property
    def declared(self) -> Declared | None:
        """The names of all scores and baselines; None if they are known only after a run."""
        return None

    def summary(self, means: dict[str, float], trainable: int) -> dict[str, float]:
        """Returns numbers derived from mean scores and the number of trained parameters."""
        return {}


@dataclass(frozen=True)
class OneAnswer(Task):
    """A task with one scored position in each example."""

    @property
    def n_scored(self) -> int:
        return 1


def token_metrics(logits_BxKxV: jax.Array | DeferredLogits, batch: Batch) -> dict[str, Scores]:
    """Returns loss (nats) and accuracy by scored token, and exact_match by sequence."""
    # The loss has the precision of the weights, even if the model computes in less.
    if isinstance(logits_BxKxV, DeferredLogits):
        nats_BxK, best_BxK = logits_BxKxV.scores(batch.targets, batch.weights.dtype)
    else:
        nats_BxK = cross_entropy(logits_BxKxV.astype(batch.weights.dtype), batch.targets)
        best_BxK = jnp.argmax(logits_BxKxV, -1)
    # A position with the weight 0 may have any target. One without a logit, such as -100 among 12
    # tokens, has nan nats, and 0 x nan is nan.
    nats_BxK = jnp.where(batch.weights > 0, nats_BxK, 0)
    correct_BxK = best_BxK == batch.targets
    scored_B = batch.weights.sum(-1)
    wrong_B = ((batch.weights > 0) & ~correct_BxK).any(-1)
    return {
        "loss": over_scored(nats_BxK, batch.weights),
        "accuracy": over_scored(correct_BxK, batch.weights),
        "exact_match": Scores((~wrong_B).astype(scored_B.dtype), (scored_B > 0) * 1.0),
    }


def most_likely(logits_BxKxV: jax.Array | DeferredLogits, batch: Batch) -> jax.Array:
    """Returns the (B, K) most likely tokens."""
    if isinstance(logits_BxKxV, DeferredLogits):
        return logits_BxKxV.scores(batch.targets, batch.weights.dtype)[1]
    return jnp.argmax(logits_BxKxV, -1)


def over_scored(x_BxK: jax.Array, weights_BxK: jax.Array) -> Scores:
    """Returns the weighted mean over the tokens of each example, and the sum of its weights."""
    scored_B = weights_BxK.sum(-1)
    return Scores((x_BxK * weights_BxK).sum(-1) / jnp.maximum(scored_B, 1e-9), scored_B)


def with_gap_to_unigram(
    scores: dict[str, Scores], nats_V: np.ndarray, batch: Batch
) -> dict[str, Scores]:
    """Adds `loss_above_unigram`: the loss of each example minus that of token frequencies.

    Hard examples are hard for both, so this difference has a far smaller error on a test set than
    the loss itself. Compare a loss with `unigram_loss` by it.

    Args:
      scores: the scores of `token_metrics`.
      nats_V: the loss of each token under the frequencies of the training text.
      batch: the examples at the scored positions.
    """
    loss = scores["loss"]
    # The table has no mask token, which is never a target.
    unigram = over_scored(jnp.asarray(nats_V, loss.value.dtype)[batch.targets], batch.weights)
    return scores | {"loss_above_unigram": Scores(loss.value - unigram.value, loss.weight)}


def scored_positions(batch: Batch, n_scored: int) -> tuple[jax.Array | None, Batch]:
    """Gathers the scored positions of a batch.

    Returns:
        (positions (B, K), the gathered batch), or (None, batch) if every position may be scored.
    """
    if n_scored >= batch.weights.shape[1]:
        return None, batch
    if layouts.mesh_of(batch.weights) is None:
        _, positions_BxK = jax.lax.top_k(batch.weights, n_scored)
    else:  # argsort gives the same positions; for top_k XLA gathers the batch on every device
        order_BxT = jnp.argsort(-batch.weights, axis=1, stable=True)
        positions_BxK = order_BxT[:, :n_scored].astype(jnp.int32)
    gathered = (jnp.take_along_axis(x, positions_BxK, axis=1) for x in batch[1:])
    return positions_BxK, Batch(batch.inputs, *gathered)


def most_frequent(targets: npt.ArrayLike, weights: npt.ArrayLike) -> float:
    """Returns the accuracy of the best constant answer."""
    counts = np.bincount(np.asarray(targets).ravel(), np.asarray(weights, float).ravel())
    return float(counts.max() / counts.sum())


def ranges(highest: int, lowest: int = 1, groups: int = 12) -> list[tuple[int, int]]:
    """Splits lowest..highest into at most `groups` ranges of equal size: (low, high), inclusive."""
    size = math.ceil((highest - lowest + 1) / groups)
    return [(low, min(low + size - 1, highest)) for low in range(lowest, highest + 1, size)]


def by_range(name: str, value_B: jax.Array, bounds: list[tuple[int, int]]) -> dict[str, jax.Array]:
    """Returns groups of examples by an integer: "pairs=4", or "pairs=5-8" for a range.

    Args:
        name: the name of the integer, such as "pairs".
        value_B: its value in each example.
        bounds: the smallest and the largest value of each group, as `ranges` returns them.

    Returns:
        {name of the group: booleans (B,)}.
    """
    return {
        range_name(name, low, high): (low <= value_B) & (value_B <= high) for low, high in bounds
    }


def range_name(name: str, low: int, high: int) -> str:
    """Returns "name=3" for one value and "name=3-5" for a range."""
    return f"{name}={low}" if low == high else f"{name}={low}-{high}"
