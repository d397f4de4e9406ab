"""The interfaces between texts, data and training.

`Corpus` describes the texts that `data.preparation` tokenizes. `Batch`, `HeldOut` and `Data` are
what training needs. This module imports nothing from data or tasks, so both packages can import it.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import jax

if TYPE_CHECKING:
    from jaxformer.data.readers import Piece


class TextSource(NamedTuple):
    """A file or a split of a corpus. Reading can begin at the end of any piece."""

    name: str
    part: str  # the part of the prepared text: train, validation or test
    size: int  # bytes of a file, or records of a split; `Piece.after` counts in the same unit
    bytes: int  # approximate size of its text
    read: "Callable[[int], Iterator[Piece]]"  # yields the pieces from a start to the end


class Corpus(NamedTuple):
    """A text that can be prepared."""

    sources: tuple[TextSource, ...]  # in reading order
    labels: tuple[str, ...] = ()  # the names of the classes of its documents
    files: tuple[Path, ...] = ()

    @property
    def bytes(self) -> int:
        return sum(source.bytes for source in self.sources)

    @property
    def summary(self) -> list[list[Any]]:
        """Returns the name, part and size of each source. A resumed preparation compares them."""
        return [[source.name, source.part, source.size] for source in self.sources]


TRAIN, VALIDATION, TEST = range(3)  # the parts of a task's data


class Batch(NamedTuple):
    """Tokens, the target at each position, and the weight of each position in the loss.

    Without the leading axis it is one example. If K scored positions were gathered, targets and
    weights have the shape (B, K).
    """

    inputs: jax.Array  # (B, T) int32, or (B, T, n) vectors if the task has no vocabulary
    targets: jax.Array  # (B, T) int32
    weights: jax.Array  # (B, T) float


class HeldOut(NamedTuple):
    """The examples that no training example may equal."""

    test: Batch  # scores are reported on it
    validation: Batch  # learning rates are chosen on it
    fingerprints: jax.Array  # sorted fingerprints of the inputs of both sets


class Data(Protocol):
    """The data of a run. A batch depends on the key and the step alone, so a run can resume."""

    @property
    def batch_size(self) -> int:
        """The number of examples in a batch of one member (a seed at a learning rate)."""
        ...

    def heldout(self) -> HeldOut:
        """Returns the test and validation sets, which all members share."""
        ...

    def batch_at(self, member_key: jax.Array, step: jax.Array, avoid: jax.Array, /) -> Batch:
        """Returns the training batch of a step. Called inside jit.

        Args:
            member_key: the key of the member's data.
            step: the number of the step.
            avoid: the fingerprints of the held-out examples.
        """
        ...

    def unseen(self, member_key: jax.Array, batch: Batch, /) -> jax.Array | None:
        """Returns (B,) booleans: True for examples that the member does not train on.

        Returns None if all examples are unseen. This is the case if held-out examples are left out
        of an endless training stream, or if the stream cannot contain them.
        """
