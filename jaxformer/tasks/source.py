"""Where batches come from: held-out sets, endless streams, finite sets. All are functions of a key.

Of a task whose examples are drawn, the sets are kept apart in one of two ways.

redraw  Held-out sets are drawn first, and a stream redraws every example whose inputs equal one of
        them. Those of which there are few, such as short strings, are then in the test set alone.
hash    A hash of the inputs says which set an example belongs to, whatever its length, so that all
        sets have the law of the task. Examples of which a task says that there are too few to share
        out (`is_common`) are in every set, each as often as the law wants it.

A finite set is visited in a new order each epoch and is scored both whole and on the part of the
test set that it does not contain.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxformer.core.errors import UserError, check_choice, check_range
from jaxformer.core.settings import DataSettings
from jaxformer.data.protocols import Data, HeldOut
from jaxformer.tasks.disk import DiskTask, OnDisk
from jaxformer.tasks.hashes import fingerprints, shuffled, unit
from jaxformer.tasks.task import TEST, TRAIN, VALIDATION, Batch, Task

__all__ = ["Data", "HeldOut", "Source", "batch_places", "examples", "make_source"]

SHUFFLE = 3  # beside the sets: the stream of an order
MAX_REDRAWS = 64
SPLITS = ("redraw", "hash")
LOT = 2**31  # a split of the same key has small numbers, and would give the same bits


@dataclass(frozen=True)
class Source:
    """The data of a run. `train_size=0` streams; `key` is common to all members of a population."""

    task: Task
    key: jax.Array
    batch_size: int
    train_size: int
    test_size: int
    validation_size: int
    shares: tuple[float, float] | None = None  # of validation and test: split by a hash

    def heldout(self) -> HeldOut:
        """The test set, and validation examples that are not in it.

        Of an enumerated task both are the whole set, unless it keeps some of its entries back.
        """
        held = jax.jit(self._heldout)()
        if self.shares and not self.task.size:
            self._check_parts(held)
        return held

    def _heldout(self) -> HeldOut:
        if self.task.size:
            n = self._kept_back
            everything = self._entries(jnp.arange(n or self.task.size))
            test, validation = everything, everything
            if n:
                test = jax.tree.map(lambda x: x[: self.test_size], everything)
                validation = jax.tree.map(lambda x: x[self.test_size :], everything)
            return HeldOut(test, validation, jnp.zeros(1, jnp.uint32))
        test_key, validation_key = (jax.random.fold_in(self.key, s) for s in (TEST, VALIDATION))
        if self.shares:
            test = self._of_part(TEST, test_key, jnp.arange(self.test_size))
            validation = self._of_part(VALIDATION, validation_key, jnp.arange(self.validation_size))
            return HeldOut(test, validation, jnp.zeros(1, jnp.uint32))
        test = examples(self.task.part(TEST), test_key, jnp.arange(self.test_size))
        known = jnp.sort(fingerprints(test.inputs))
        task = self.task.part(VALIDATION)
        validation = jax.vmap(lambda place: _fresh(task, validation_key, place, known))(
            jnp.arange(self.validation_size)
        )
        both = jnp.concatenate([known, fingerprints(validation.inputs)])
        return HeldOut(test, validation, jnp.sort(both))

    def batch_at(self, member_key: jax.Array, step: jax.Array, avoid: jax.Array) -> Batch:
        """The training batch of a step; pure, for use inside jit.

        `avoid` is for what is drawn anew where it equals a held-out example.
        """
        places_B = batch_places(step, self.batch_size)
        key, order_key = (jax.random.fold_in(member_key, i) for i in (TRAIN, SHUFFLE))
        if self.task.size:
            rest = self.task.size - self._kept_back
            size = min(self.train_size or rest, rest)
            index_B = jax.vmap(lambda place: shuffled(order_key, place, size))(places_B)
            return self._entries(self._kept_back + index_B)
        if self.train_size:  # the first examples of the stream, in another order each epoch
            places_B = jax.vmap(lambda p: shuffled(order_key, p, self.train_size))(places_B)
        if self.shares:
            return self._of_part(TRAIN, key, places_B)
        return self._avoiding(key, places_B, avoid)

    @property
    def _kept_back(self) -> int:
        """How many entries of an enumerated task are for test and validation."""
        return self.test_size + self.validation_size if self.task.held_out else 0

    def _entries(self, places_B: jax.Array) -> Batch:
        """Entries of an enumerated task in an order drawn once, so that any split is random."""
        order_key = jax.random.fold_in(self.key, SHUFFLE)
        places_B = places_B.astype(jnp.uint32)
        index_B = jax.vmap(lambda place: shuffled(order_key, place, self.task.size))(places_B)
        return examples(self.task, self.key, index_B)

    def unseen(self, member_key: jax.Array, batch: Batch) -> jax.Array | None:
        """(B,) booleans: which examples the finite training set does not contain."""
        if self.shares and not self.task.size:
            return ~jax.vmap(self.task.is_common)(batch)
        if not self.train_size:
            return None
        if self.task.size:
            rest = self.task.size - self._kept_back
            train = self._entries(self._kept_back + jnp.arange(min(self.train_size, rest)))
        else:
            key, places = jax.random.fold_in(member_key, TRAIN), jnp.arange(self.train_size)
            train = self._avoiding(key, places, self.heldout().fingerprints)
        known = jnp.sort(fingerprints(train.inputs))
        return ~jax.vmap(lambda x: _contains(known, x))(fingerprints(batch.inputs))

    def _avoiding(self, key: jax.Array, places_B: jax.Array, avoid: jax.Array) -> Batch:
        """The training examples of these places, none of them one to avoid."""
        return jax.vmap(lambda place: _fresh(self.task, key, place, avoid))(places_B)

    def _of_part(self, part: int, key: jax.Array, places_B: jax.Array) -> Batch:
        """Examples that the hash gives to a part, in the law of the task."""
        task, (low, high) = self.task.part(part), self._bounds(part)
        # A draw is refused with probability 1 - share: this many leave one in a billion.
        redraws = max(MAX_REDRAWS, math.ceil(-math.log(1e-9) / (high - low)))

        def draw(place):
            def refused(example, draw_key):
                u = unit(fingerprints(example.inputs[None])[0])
                # Were they always taken, common ones would be more frequent than in the law.
                lot = jax.random.uniform(jax.random.fold_in(draw_key, LOT), (), jnp.float32)
                u = jnp.where(task.is_common(example), lot, u)
                return (u < low) | (u >= high)

            return _redrawn(task, key, place, refused, redraws)

        return jax.vmap(draw)(places_B)

    def _bounds(self, part: int) -> tuple[float, float]:
        validation, test = self.shares or (0.0, 0.0)
        return {
            TEST: (0.0, test),
            VALIDATION: (test, test + validation),
            TRAIN: (test + validation, 1.0),
        }[part]

    def _check_parts(self, held: HeldOut) -> None:
        """A task with few examples may have none in a part."""
        for name, part, batch in (("test", TEST, held.test), ("validation", VALIDATION, held[1])):
            low, high = self._bounds(part)
            u = unit(fingerprints(batch.inputs))
            inside = (u >= low) & (u < high) | jax.vmap(self.task.is_common)(batch)
            if not bool(inside.all()):
                raise UserError(
                    f"the task has too few different examples for data.split = 'hash': none is in "
                    f"the {name} share of {high - low:g}. Take a larger share or a larger task."
                )


def make_source(task: Task, sizes: DataSettings, batch_size: int) -> Source | OnDisk:
    """The source of a task. The sizes have been checked one by one, not what they are together."""
    check_range("train.batch_size", batch_size, 1)
    kept = sizes.test_size + sizes.validation_size
    if task.held_out and kept >= task.size:
        raise UserError(
            f"data.test_size + data.validation_size = {kept} leave nothing to train on: the task "
            f"has {task.size} examples."
        )
    check_choice("data.split", sizes.split, SPLITS)
    shares = (sizes.validation_share, sizes.test_share) if sizes.split == "hash" else None
    if shares and not (min(shares) > 0 and sum(shares) < 1):
        raise UserError(
            "data.test_share and data.validation_share must be above 0 and leave something to "
            f"train on, got {sizes.test_share:g} and {sizes.validation_share:g}."
        )
    held = (sizes.train_size, sizes.test_size, sizes.validation_size)
    if isinstance(task, DiskTask):
        return OnDisk(task, jax.random.key(sizes.seed), batch_size, *held)
    return Source(task, jax.random.key(sizes.seed), batch_size, *held, shares)


def batch_places(step: jax.Array, batch_size: int) -> jax.Array:
    """Where the examples of a step's batch stand in the stream."""
    places_B = jnp.arange(batch_size, dtype=jnp.uint32)
    return jnp.asarray(step, jnp.uint32) * batch_size + places_B


def examples(task: Task, key: jax.Array, index_B: jax.Array) -> Batch:
    """One example for each index, with a key of its own."""
    return jax.vmap(lambda i: task.example(jax.random.fold_in(key, i), i))(index_B)


def _fresh(task: Task, key: jax.Array, place: jax.Array, avoid: jax.Array) -> Batch:
    """The example of a place, drawn again while it equals one to avoid."""

    def refused(example, _):
        return _contains(avoid, fingerprints(example.inputs[None])[0])

    return _redrawn(task, key, place, refused, MAX_REDRAWS)


def _redrawn(
    task: Task,
    key: jax.Array,
    place: jax.Array,
    refused: Callable[[Batch, jax.Array], jax.Array],
    redraws: int,
) -> Batch:
    """The example of a place, drawn again while it is refused."""
    key = jax.random.fold_in(key, place)

    def again(carry):
        attempt, is_refused, _ = carry
        return is_refused & (attempt < redraws)

    def draw(carry):
        attempt, _, _ = carry
        draw_key = jax.random.fold_in(key, attempt)
        example = task.example(draw_key, place)
        return attempt + 1, refused(example, draw_key), example

    # The first draw is in the loop too: an example is traced, and compiled, once.
    shapes = jax.eval_shape(lambda: task.example(key, place))
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    start = (jnp.zeros((), jnp.int32), jnp.ones((), bool), nothing)
    return jax.lax.while_loop(again, draw, start)[2]


def _contains(sorted_values: jax.Array, value: jax.Array) -> jax.Array:
    sorted_values = jnp.asarray(sorted_values)
    place = jnp.searchsorted(sorted_values, value)
    return sorted_values[jnp.minimum(place, sorted_values.shape[0] - 1)] == value
