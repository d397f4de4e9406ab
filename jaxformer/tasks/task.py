"""What a task is: a frozen value that makes one example from a key and an index, and scores it.

Everything is a pure function, so that a batch is made inside the compiled step, a run resumes from
one integer and all variants see the same data. Draws are int32 whether x64 is on or not.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from jaxformer.tasks.chunked_loss import LateLogits


class Batch(NamedTuple):
    """Tokens, the next token at each position, and how much that position counts.

    Without the leading axis it is one example. Scored at K gathered positions, targets and weights
    have the shape (B, K).
    """

    inputs: jax.Array  # (B, T) int32
    targets: jax.Array  # (B, T) int32
    weights: jax.Array  # (B, T) float


class Scores(NamedTuple):
    """One number an example and the weight with which it enters the mean."""

    value: jax.Array  # (B,)
    weight: jax.Array  # (B,)


TRAIN, VALIDATION, TEST = range(3)  # the sets that a task has examples for


class Declared(NamedTuple):
    """What a task says it reports: rules of the ledger may ask for these and no others."""

    scores: tuple[str, ...]
    baselines: tuple[str, ...]


TOKEN_SCORES = ("loss", "accuracy", "exact_match")  # of `token_metrics`
FEW = 1000  # different examples of one kind: a share of fewer is not of their law


@dataclass(frozen=True)
class Task(ABC):
    """The base: subclasses give sizes, `example` and `baselines`, and may add metrics."""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Number of different tokens."""

    @property
    @abstractmethod
    def length(self) -> int:
        """Tokens of the longest whole sequence, with answer and padding: the size of the model's
        tables. Inputs may be shorter."""

    @property
    @abstractmethod
    def n_scored(self) -> int:
        """The most positions that count in an example: the head is applied only there."""

    @property
    def answers(self) -> int:
        """Logits of an answer: one a token, or one a class of what is classified."""
        return self.vocab_size

    @property
    def sizes(self) -> dict[str, int]:
        """The numbers of a model that follow from the task."""
        return {"vocab_size": self.vocab_size, "length": self.length}

    @property
    def chosen_by(self) -> str:
        """The score that chooses a learning rate in validation: accuracy, or the lowest loss."""
        return "accuracy"

    @property
    def means_of_batches(self) -> dict[str, tuple[str, int]]:
        """{name: (score, n)}: the mean over batches of n examples of each batch's mean score."""
        return {}

    @property
    def size(self) -> int:
        """Number of different examples if they are enumerated by the index, else 0."""
        return 0

    @property
    def held_out(self) -> bool:
        """Does an enumerated task keep a test set? If not, it is scored on what it trains on."""
        return False

    def blank(self) -> jax.Array:
        """An input to initialise a model with; its values do not matter."""
        return jnp.zeros((1, 1), jnp.int32)

    @abstractmethod
    def example(self, key: jax.Array, index: jax.Array) -> Batch:
        """One example; enumerated tasks use the index, sampled ones the key folded with it."""

    @property
    def remark(self) -> str:
        """What a user should know of these options, or ""; a run prints it."""
        return ""

    def part(self, stream: int) -> "Task":
        """The task whose examples are for training, validation or testing (tasks.source).

        Most tasks draw all three alike; a text keeps parts of itself for each.
        """
        return self

    def is_common(self, example: Batch) -> jax.Array:
        """Are there too few examples of this one's kind to share them out among the sets?

        Then every set has them, and scores on what was never seen leave them out.
        """
        return jnp.zeros((), bool)

    def metrics(self, logits_BxKxV: jax.Array, batch: Batch) -> dict[str, Scores]:
        """Per-example scores by name; `batch` may be gathered at the scored positions."""
        return token_metrics(logits_BxKxV, batch)

    def groups(self, batch: Batch) -> dict[str, jax.Array]:
        """Kinds of examples by name, (B,) booleans each: "pairs=4".

        The scores of `grouped` are reported for each of them, as "accuracy/pairs=4".
        """
        return {}

    @property
    def grouped(self) -> tuple[str, ...]:
        """The scores that are reported by group."""
        return ("accuracy",)

    @abstractmethod
    def baselines(self, batch: Batch) -> dict[str, float]:
        """Accuracies of trivial predictors on this very set: what chance level means here.

        What they must know of the data they know from examples of their own (tasks.trivial). A name
        that ends in "_loss" is one in nats; a run that ends above `unigram_loss` says so.
        """

    @property
    def declared(self) -> Declared | None:
        """The names of all scores and baselines, known without a run; None: nobody has said."""
        return None

    def summary(self, means: dict[str, float], trainable: int) -> dict[str, float]:
        """Numbers that follow from the means and the count of trained parameters, if any."""
        return {}


@dataclass(frozen=True)
class OneAnswer(Task):
    """The base of tasks that ask one thing of an example."""

    @property
    def n_scored(self) -> int:
        return 1


def token_metrics(logits_BxKxV: jax.Array | LateLogits, batch: Batch) -> dict[str, Scores]:
    """loss (nats) and accuracy a scored token, exact_match a sequence."""
    # The loss is taken in the precision of the weights, also when the model computes in less.
    if isinstance(logits_BxKxV, LateLogits):
        nats_BxK, best_BxK = logits_BxKxV.scores(batch.targets, batch.weights.dtype)
    else:
        logp_BxKxV = jax.nn.log_softmax(logits_BxKxV.astype(batch.weights.dtype))
        nats_BxK = -jnp.take_along_axis(logp_BxKxV, batch.targets[..., None], axis=-1)[..., 0]
        best_BxK = jnp.argmax(logits_BxKxV, -1)
    correct_BxK = best_BxK == batch.targets
    scored_B = batch.weights.sum(-1)
    wrong_B = ((batch.weights > 0) & ~correct_BxK).any(-1)
    return {
        "loss": over_scored(nats_BxK, batch.weights),
        "accuracy": over_scored(correct_BxK, batch.weights),
        "exact_match": Scores((~wrong_B).astype(scored_B.dtype), (scored_B > 0) * 1.0),
    }


def most_likely(logits_BxKxV: jax.Array | LateLogits, batch: Batch) -> jax.Array:
    """(B, K) tokens."""
    if isinstance(logits_BxKxV, LateLogits):
        return logits_BxKxV.scores(batch.targets, batch.weights.dtype)[1]
    return jnp.argmax(logits_BxKxV, -1)


def over_scored(x_BxK: jax.Array, weights_BxK: jax.Array) -> Scores:
    """The mean over the scored tokens of each example."""
    scored_B = weights_BxK.sum(-1)
    return Scores((x_BxK * weights_BxK).sum(-1) / jnp.maximum(scored_B, 1e-9), scored_B)


def scored_positions(batch: Batch, n_scored: int) -> tuple[jax.Array | None, Batch]:
    """(positions (B, K), the batch gathered there); (None, batch) if every position may count."""
    if n_scored >= batch.weights.shape[1]:
        return None, batch
    _, positions_BxK = jax.lax.top_k(batch.weights, n_scored)
    gathered = (jnp.take_along_axis(x, positions_BxK, axis=1) for x in batch[1:])
    return positions_BxK, Batch(batch.inputs, *gathered)


def most_frequent(targets: npt.ArrayLike, weights: npt.ArrayLike) -> float:
    """Accuracy of the best constant answer."""
    counts = np.bincount(np.asarray(targets).ravel(), np.asarray(weights, float).ravel())
    return float(counts.max() / counts.sum())


def ranges(most: int, least: int = 1, groups: int = 12) -> list[tuple[int, int]]:
    """least..most in at most `groups` ranges of equal size: (low, high), both included."""
    size = -(-(most - least + 1) // groups)
    return [(low, min(low + size - 1, most)) for low in range(least, most + 1, size)]


def by_range(name: str, value_B: jax.Array, bounds: list[tuple[int, int]]) -> dict[str, jax.Array]:
    """Groups of examples by a number of theirs: "pairs=4", or "pairs=5-8" for a range."""
    return {
        range_name(name, low, high): (low <= value_B) & (value_B <= high) for low, high in bounds
    }


def range_name(name: str, low: int, high: int) -> str:
    return f"{name}={low}" if low == high else f"{name}={low}-{high}"
