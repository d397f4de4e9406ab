"""Batches of tasks whose examples are drawn: held-out sets, endless streams, finite training sets.

All batches are functions of a key and a step. Training and held-out examples are separated by one
of two methods:

redraw  Held-out sets are drawn first. A training stream redraws each example whose inputs equal a
        held-out one. A kind with few examples, such as short strings, may then occur in the
        held-out sets only.
hash    A hash of the inputs assigns an example to a set, so that all sets have the distribution of
        the task. Kinds with too few examples to split (`Task.is_common`) occur in every set.

A finite training set is visited in a new order each epoch. Scores are reported on the whole test
set and on its examples that training does not contain.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import (
    UserError,
    check_choice,
    check_range,
    is_users,
    setting,
    users_code,
)
from jaxformer.core.settings import DataSettings
from jaxformer.data.protocols import Data, HeldOut
from jaxformer.tasks.disk import DiskTask, OnDisk
from jaxformer.tasks.hashes import fingerprints, shuffled, unit
from jaxformer.tasks.task import TEST, TRAIN, VALIDATION, Batch, Task

__all__ = ["Data", "HeldOut", "Source", "batch_positions", "examples", "make_source"]

SHUFFLE = 3  # random stream of the visiting order; 0 to 2 are TRAIN, VALIDATION and TEST
# Enough for a task of which 98 % is held out: all redraws then fail once in a billion. A task of
# which more is held out is refused (`tasks.heldout`), since the last redraw is taken in any case.
MAX_REDRAWS = 1024
PROBE, PROBED = 4, 2048  # random stream and number of the draws that measure `rejected_share`
SPLITS = ("redraw", "hash")
SPLIT_PARTS = {"test": TEST, "validation": VALIDATION}  # the fields of HeldOut
PART_NAMES = {"TRAIN": TRAIN, "VALIDATION": VALIDATION, "TEST": TEST}
COIN_STREAM = 2**31  # far from the small numbers that example() may fold into the same key


@dataclass(frozen=True)
class Source:
    """The data of a run for tasks whose examples are drawn or enumerated."""

    task: Task
    key: jax.Array  # common to all members of a population
    batch_size: int
    train_size: int  # 0: an endless stream
    test_size: int
    validation_size: int
    shares: tuple[float, float] | None = None  # validation and test shares of a split by hash

    def heldout(self) -> HeldOut:
        """Returns the test set and the validation set, which have no example in common.

        There are two exceptions. Both sets of an enumerated task without a held-out part contain
        all examples. Sets of a split by hash may share common examples (`Task.is_common`).
        They are drawn once; a second call returns the same arrays.
        """
        return self._drawn_heldout

    @cached_property
    def _drawn_heldout(self) -> HeldOut:
        heldout, is_filled = jax.jit(self._checked_heldout)()
        for name, part in SPLIT_PARTS.items():
            low, high = self._hash_bounds(part)
            if not is_filled.get(name, True):
                raise UserError(
                    f"the task has too few different examples for {setting('data.split')} = "
                    f"'hash': none is in the {name} share of {high - low:g}. Take a larger share "
                    "or a larger task."
                )
        return heldout

    def _checked_heldout(self) -> tuple[HeldOut, dict[str, jax.Array]]:
        """Returns the held-out sets, and for a split by hash whether each is filled.

        A set is filled if all its examples belong to its part or are common. If a part of the
        split has no examples, the last redraw is an example of another part.
        """
        heldout = self._heldout()
        if not self.shares or self.task.size:
            return heldout, {}
        is_filled = {}
        for name, part in SPLIT_PARTS.items():
            low, high = self._hash_bounds(part)
            batch = getattr(heldout, name)
            u = unit(fingerprints(batch.inputs))
            belongs = (u >= low) & (u < high) | jax.vmap(self.task.is_common)(batch)
            is_filled[name] = belongs.all()
        return heldout, is_filled

    def _heldout(self) -> HeldOut:
        if self.task.size:
            n = self._n_reserved  # 0: both sets contain all entries
            entries = self._entries(jnp.arange(n or self.task.size))
            test, validation = entries, entries
            if n:
                test = jax.tree.map(lambda x: x[: self.test_size], entries)
                validation = jax.tree.map(lambda x: x[self.test_size :], entries)
            return HeldOut(test, validation, jnp.zeros(1, jnp.uint32))
        test_key, validation_key = (jax.random.fold_in(self.key, s) for s in (TEST, VALIDATION))
        if self.shares:
            test = self._of_part(TEST, test_key, jnp.arange(self.test_size))
            validation = self._of_part(VALIDATION, validation_key, jnp.arange(self.validation_size))
            return HeldOut(test, validation, jnp.zeros(1, jnp.uint32))
        test = examples(self.task.part(TEST), test_key, jnp.arange(self.test_size))
        test_fingerprints = jnp.sort(fingerprints(test.inputs))
        task = self.task.part(VALIDATION)
        validation = jax.vmap(
            lambda position: _draw_avoiding(task, validation_key, position, test_fingerprints)
        )(jnp.arange(self.validation_size))
        heldout_fingerprints = jnp.concatenate([test_fingerprints, fingerprints(validation.inputs)])
        return HeldOut(test, validation, jnp.sort(heldout_fingerprints))

    def batch_at(self, member_key: jax.Array, step: jax.Array, avoid: jax.Array) -> Batch:
        """Returns the training batch of a step; redraws examples with a fingerprint in `avoid`."""
        positions_B = batch_positions(step, self.batch_size)
        key, order_key = (jax.random.fold_in(member_key, i) for i in (TRAIN, SHUFFLE))
        if self.task.size:
            n_left = self.task.size - self._n_reserved
            size = min(self.train_size or n_left, n_left)
            index_B = jax.vmap(lambda position: shuffled(order_key, position, size))(positions_B)
            return self._entries(self._n_reserved + index_B)
        if self.train_size:  # the first examples of the stream, shuffled in each epoch
            positions_B = jax.vmap(lambda p: shuffled(order_key, p, self.train_size))(positions_B)
        if self.shares:
            return self._of_part(TRAIN, key, positions_B)
        return self._training_examples(key, positions_B, avoid)

    @cached_property
    def rejected_share(self) -> float:
        """The share of the task's draws that training rejects, because they are held out.

        It is 0 where training has a part of the task for itself: an enumerated task, and a split by
        hash.
        """
        if self.shares or self.task.size:
            return 0.0
        heldout = np.asarray(self.heldout().fingerprints)
        # Sets without repeated examples are a small part of the task: two draws rarely meet.
        if len(np.unique(heldout)) > 0.95 * len(heldout):
            return 0.0
        task, key = self.task.part(TRAIN), jax.random.fold_in(self.key, PROBE)
        draws = jax.jit(lambda i: fingerprints(examples(task, key, i).inputs))(jnp.arange(PROBED))
        return float(np.isin(np.asarray(draws), heldout).mean())

    @property
    def _n_reserved(self) -> int:
        """The number of entries of an enumerated task reserved for test and validation."""
        return self.test_size + self.validation_size if self.task.held_out else 0

    def _entries(self, positions_B: jax.Array) -> Batch:
        """Returns entries of an enumerated task in a fixed random order."""
        order_key = jax.random.fold_in(self.key, SHUFFLE)
        positions_B = positions_B.astype(jnp.uint32)
        index_B = jax.vmap(lambda position: shuffled(order_key, position, self.task.size))(
            positions_B
        )
        return examples(self.task, self.key, index_B)

    def unseen(self, member_key: jax.Array, batch: Batch) -> jax.Array | None:
        """Returns (B,) booleans: True for examples that training does not contain.

        With a split by hash these are all examples but common ones (`Task.is_common`). With a
        finite training set these are the examples outside it. Returns None for an endless stream.
        """
        return jax.jit(self._unseen)(member_key, batch)

    def _unseen(self, member_key: jax.Array, batch: Batch) -> jax.Array | None:
        if self.shares and not self.task.size:
            return ~jax.vmap(self.task.is_common)(batch)
        if not self.train_size:
            return None
        if self.task.size:
            n_left = self.task.size - self._n_reserved
            train = self._entries(self._n_reserved + jnp.arange(min(self.train_size, n_left)))
        else:
            key, positions = jax.random.fold_in(member_key, TRAIN), jnp.arange(self.train_size)
            train = self._training_examples(key, positions, self._heldout().fingerprints)
        train_fingerprints = jnp.sort(fingerprints(train.inputs))
        return ~jax.vmap(lambda x: _contains(train_fingerprints, x))(fingerprints(batch.inputs))

    def _training_examples(self, key: jax.Array, positions_B: jax.Array, avoid: jax.Array) -> Batch:
        """Returns the training examples at these positions, none of them in `avoid`."""
        task = self.task.part(TRAIN)
        return jax.vmap(lambda position: _draw_avoiding(task, key, position, avoid))(positions_B)

    def _of_part(self, part: int, key: jax.Array, positions_B: jax.Array) -> Batch:
        """Returns examples of a part of the hash split, with the distribution of the task."""
        task, (low, high) = self.task.part(part), self._hash_bounds(part)
        # A draw is rejected with probability 1 - share: all redraws fail once in a billion.
        redraws = math.ceil(-math.log(1e-9) / (high - low))

        def draw(position):
            def is_rejected(example, draw_key):
                u = unit(fingerprints(example.inputs[None])[0])
                # Common examples are accepted at random: always accepting them would make them
                # too frequent.
                coin_key = jax.random.fold_in(draw_key, COIN_STREAM)
                coin = jax.random.uniform(coin_key, (), jnp.float32)
                u = jnp.where(task.is_common(example), coin, u)
                return (u < low) | (u >= high)

            return _redrawn(task, key, position, is_rejected, redraws)

        return jax.vmap(draw)(positions_B)

    def _hash_bounds(self, part: int) -> tuple[float, float]:
        validation, test = self.shares or (0.0, 0.0)
        return {
            TEST: (0.0, test),
            VALIDATION: (test, test + validation),
            TRAIN: (test + validation, 1.0),
        }[part]


def make_source(task: Task, sizes: DataSettings, batch_size: int) -> Source | OnDisk:
    """Returns the data of a task, and checks that the sizes fit together.

    Args:
        task: the task, whose examples are drawn or read from disk.
        sizes: the sizes of the sets, the split and the seed of the held-out sets.
        batch_size: examples per step.
    """
    check_range(setting("train.batch_size"), batch_size, 1)
    n_reserved = sizes.test_size + sizes.validation_size
    if task.held_out and n_reserved >= task.size:
        raise UserError(
            f"{setting('data.test_size')} + {setting('data.validation_size')} = {n_reserved} leave "
            f"no training examples: the task has {task.size} examples."
        )
    check_parts(task)
    check_choice(setting("data.split"), sizes.split, SPLITS)
    shares = (sizes.validation_share, sizes.test_share) if sizes.split == "hash" else None
    if shares and not (min(shares) > 0 and sum(shares) < 1):
        raise UserError(
            f"{setting('data.test_share')} and {setting('data.validation_share')} must be positive "
            f"with a sum below 1, got {sizes.test_share:g} and {sizes.validation_share:g}."
        )
    counts = (sizes.train_size, sizes.test_size, sizes.validation_size)
    if isinstance(task, DiskTask):
        return OnDisk(task, jax.random.key(sizes.seed), batch_size, *counts)
    return Source(task, jax.random.key(sizes.seed), batch_size, *counts, shares)


def check_parts(task: Task) -> None:
    """Raises unless `Task.part` returns tasks, and none where the table itself is divided."""
    name = type(task).__name__
    if isinstance(task, DiskTask):  # it reads the rows of a part instead
        return
    for part_name, stream in PART_NAMES.items():
        with users_code(f"{name}.part", is_users(task)):
            part = task.part(stream)
        if not isinstance(part, Task):
            raise UserError(
                f"{name}.part({part_name}) must return a Task, such as the task itself with other "
                f"fields; got {type(part).__name__}."
            )
        if task.size and part is not task:
            raise UserError(
                f"{name} enumerates {task.size:,} examples (size), and {name}.part({part_name}) "
                "returns another task, which would not be used: test_size and validation_size "
                "divide the table. Leave out part, or size."
            )


def batch_positions(step: jax.Array, batch_size: int) -> jax.Array:
    """Returns the positions in the stream of the examples of a step's batch."""
    positions_B = jnp.arange(batch_size, dtype=jnp.uint32)
    return jnp.asarray(step, jnp.uint32) * batch_size + positions_B


def check_stream(data: Data, steps: int) -> None:
    """Raises unless `batch_positions` can number the examples of this many steps."""
    if isinstance(data, Source) and steps * data.batch_size > 2**32:
        raise UserError(
            f"{setting('train.steps')} = {steps:,} with {setting('train.batch_size')} = "
            f"{data.batch_size:,} read more than "
            f"{2**32:,} examples, after which the stream of training examples repeats: lower one "
            "of them."
        )


def examples(task: Task, key: jax.Array, index_B: jax.Array) -> Batch:
    """Returns one example for each index. Each has its own key.

    Args:
        key: the key of a stream of examples.
        index_B: numbers of examples in the stream.

    Returns:
        A batch of B examples.
    """
    return jax.vmap(lambda i: task.example(jax.random.fold_in(key, i), i))(index_B)


def _draw_avoiding(task: Task, key: jax.Array, position: jax.Array, avoid: jax.Array) -> Batch:
    """Returns the example at a position, redrawn while its fingerprint is in `avoid`."""

    def is_rejected(example, _):
        return _contains(avoid, fingerprints(example.inputs[None])[0])

    return _redrawn(task, key, position, is_rejected, MAX_REDRAWS)


def _redrawn(
    task: Task,
    key: jax.Array,
    position: jax.Array,
    is_rejected: Callable[[Batch, jax.Array], jax.Array],
    redraws: int,
) -> Batch:
    """Returns the example at a position, redrawn while it is rejected."""
    key = jax.random.fold_in(key, position)

    def needs_redraw(carry):
        attempt, rejected, _ = carry
        return rejected & (attempt < redraws)

    def draw(carry):
        attempt, _, _ = carry
        draw_key = jax.random.fold_in(key, attempt)
        example = task.example(draw_key, position)
        return attempt + 1, is_rejected(example, draw_key), example

    # The first draw is inside the loop too, so that an example is compiled once.
    shapes = jax.eval_shape(lambda: task.example(key, position))
    empty = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    start = (jnp.zeros((), jnp.int32), jnp.ones((), bool), empty)
    return jax.lax.while_loop(needs_redraw, draw, start)[2]


def _contains(sorted_values: jax.Array, value: jax.Array) -> jax.Array:
    sorted_values = jnp.asarray(sorted_values)
    position = jnp.searchsorted(sorted_values, value)
    return sorted_values[jnp.minimum(position, sorted_values.shape[0] - 1)] == value
