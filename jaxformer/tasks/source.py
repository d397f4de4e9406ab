"""Where batches come from: held-out sets, endless streams, finite sets. All are functions of a key.

Held-out sets are drawn first. A stream redraws every example whose inputs equal a held-out one; a
finite set is visited in a new order each epoch and is scored both whole and on the part of the test
set that it does not contain.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp

from jaxformer.errors import UserError
from jaxformer.settings import DataSettings
from jaxformer.tasks.task import Batch, Task

TRAIN, VALIDATION, TEST, SHUFFLE = range(4)
MAX_REDRAWS = 64


class Heldout(NamedTuple):
    """What no training example may equal: the set to report on and the set to choose on."""

    test: Batch
    validation: Batch
    fingerprints: jax.Array  # sorted, of the inputs of both


class Data(Protocol):
    """What training asks of data. `Source` draws it; anything else that meets this may take its
    place. Resuming needs one integer, the step."""

    @property
    def batch_size(self) -> int:
        """Examples of a batch of one member."""
        ...

    def heldout(self) -> Heldout:
        """The sets that are common to all members."""
        ...

    def batch_at(self, member_key: jax.Array, step: jax.Array, avoid: jax.Array, /) -> Batch:
        """The training batch of a step, inside jit; `avoid` are the held-out fingerprints."""
        ...

    def unseen(self, member_key: jax.Array, batch: Batch, /) -> jax.Array | None:
        """(B,) booleans: which examples a member does not train on; None if nobody can know."""


@dataclass(frozen=True)
class Source:
    """The data of a run. `train_size=0` streams; `key` is common to all members of a population."""

    task: Task
    key: jax.Array
    batch_size: int
    train_size: int
    test_size: int
    validation_size: int

    def heldout(self) -> Heldout:
        """The test set, and validation examples that are not in it.

        Of an enumerated task both are the whole set, unless it keeps some of its entries back.
        """
        return jax.jit(self._heldout)()

    def _heldout(self) -> Heldout:
        if self.task.size:
            n = self._kept_back
            everything = self._entries(jnp.arange(n or self.task.size))
            test, validation = everything, everything
            if n:
                test = jax.tree.map(lambda x: x[: self.test_size], everything)
                validation = jax.tree.map(lambda x: x[self.test_size :], everything)
            return Heldout(test, validation, jnp.zeros(1, jnp.uint32))
        test_key, validation_key = (jax.random.fold_in(self.key, s) for s in (TEST, VALIDATION))
        test = examples(self.task.part(TEST), test_key, jnp.arange(self.test_size))
        known = jnp.sort(fingerprints(test.inputs))
        task = self.task.part(VALIDATION)
        validation = jax.vmap(lambda place: _fresh(task, validation_key, place, known))(
            jnp.arange(self.validation_size)
        )
        both = jnp.concatenate([known, fingerprints(validation.inputs)])
        return Heldout(test, validation, jnp.sort(both))

    def batch_at(self, member_key: jax.Array, step: jax.Array, avoid: jax.Array) -> Batch:
        """The training batch of a step; pure, for use inside jit. `avoid` is for streams."""
        places_B = batch_places(step, self.batch_size)
        key, order_key = (jax.random.fold_in(member_key, i) for i in (TRAIN, SHUFFLE))
        if self.task.size:
            rest = self.task.size - self._kept_back
            size = min(self.train_size or rest, rest)
            index_B = jax.vmap(lambda place: shuffled(order_key, place, size))(places_B)
            return self._entries(self._kept_back + index_B)
        if self.train_size:
            index_B = jax.vmap(lambda p: shuffled(order_key, p, self.train_size))(places_B)
            return examples(self.task, key, index_B)
        return jax.vmap(lambda place: _fresh(self.task, key, place, avoid))(places_B)

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
        if not self.train_size:
            return None
        key = jax.random.fold_in(member_key, TRAIN)
        train = examples(self.task, key, jnp.arange(self.train_size))
        known = jnp.sort(fingerprints(train.inputs))
        return ~jax.vmap(lambda x: _contains(known, x))(fingerprints(batch.inputs))


def make_source(task: Task, sizes: DataSettings, batch_size: int) -> Source:
    """The source of a task, its sizes checked."""
    for name in ("test_size", "validation_size"):
        if getattr(sizes, name) < 1:
            raise UserError(f"data.{name} must be at least 1, got {getattr(sizes, name)}.")
    if sizes.train_size < 0 or batch_size < 1:
        raise UserError(
            "data.train_size must be at least 0 (0 streams) and train.batch_size at least 1, got "
            f"{sizes.train_size} and {batch_size}."
        )
    kept = sizes.test_size + sizes.validation_size
    if task.held_out and kept >= task.size:
        raise UserError(
            f"data.test_size + data.validation_size = {kept} leave nothing to train on: the task "
            f"has {task.size} examples."
        )
    held = (sizes.train_size, sizes.test_size, sizes.validation_size)
    return Source(task, jax.random.key(sizes.seed), batch_size, *held)


def fingerprints(inputs_BxT: jax.Array) -> jax.Array:
    """A 32-bit hash of each row. A collision only redraws a sample that need not be."""
    place_T = _scramble(jnp.arange(inputs_BxT.shape[1], dtype=jnp.uint32) + 1)
    tokens_BxT = _scramble(inputs_BxT.astype(jnp.uint32) + 1)
    return _scramble(tokens_BxT + place_T[None]).sum(-1, dtype=jnp.uint32)


def shuffled(key: jax.Array, place: jax.Array, size: int) -> jax.Array:
    """The place-th index of an endless visit to 0..size-1, each epoch in an order of its own.

    A four-round Feistel network permutes the next power of four; values beyond the set are sent
    through again until they fall inside, so an epoch visits every index once with no table.
    """
    half_bits = max(((size - 1).bit_length() + 1) // 2, 1)
    mask = jnp.uint32(2**half_bits - 1)
    epoch, offset = place // jnp.uint32(size), place % jnp.uint32(size)
    round_keys = jax.random.bits(jax.random.fold_in(key, epoch), (4,), jnp.uint32)

    def permute(x):
        left, right = x >> half_bits, x & mask
        for k in round_keys:
            left, right = right, left ^ (_scramble(right + k) & mask)
        return (left << half_bits) | right

    index = jax.lax.while_loop(lambda x: x >= size, permute, permute(offset))
    return index.astype(jnp.int32)


def batch_places(step: jax.Array, batch_size: int) -> jax.Array:
    """Where the examples of a step's batch stand in the stream."""
    places_B = jnp.arange(batch_size, dtype=jnp.uint32)
    return jnp.asarray(step, jnp.uint32) * batch_size + places_B


def examples(task: Task, key: jax.Array, index_B: jax.Array) -> Batch:
    """One example for each index, with a key of its own."""
    return jax.vmap(lambda i: task.example(jax.random.fold_in(key, i), i))(index_B)


def _fresh(task: Task, key: jax.Array, place: jax.Array, avoid: jax.Array) -> Batch:
    """The example of a place, drawn again while it equals one to avoid."""
    key = jax.random.fold_in(key, place)

    def again(carry):
        attempt, repeated, _ = carry
        return repeated & (attempt < MAX_REDRAWS)

    def draw(carry):
        attempt, _, _ = carry
        example = task.example(jax.random.fold_in(key, attempt), place)
        return attempt + 1, _contains(avoid, fingerprints(example.inputs[None])[0]), example

    # The first draw is in the loop too: an example is traced, and compiled, once.
    shapes = jax.eval_shape(lambda: task.example(key, place))
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    start = (jnp.zeros((), jnp.int32), jnp.ones((), bool), nothing)
    return jax.lax.while_loop(again, draw, start)[2]


def _contains(sorted_values: jax.Array, value: jax.Array) -> jax.Array:
    sorted_values = jnp.asarray(sorted_values)
    place = jnp.searchsorted(sorted_values, value)
    return sorted_values[jnp.minimum(place, sorted_values.shape[0] - 1)] == value


def _scramble(x: jax.Array) -> jax.Array:
    """A bijection of 32-bit words that spreads every bit (the finaliser of MurmurHash3)."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)
