"""Data on disk: the host reads rows of integers, and the compiled step makes batches of them.

A row has the integers of one example. A `DiskTask` counts and reads the rows of a part (training,
validation or test) and turns rows into a batch inside jit. `OnDisk` implements `Data` for it.
`DiskFeed` reads the rows of many steps ahead while earlier steps run. The rows of a step depend on
the seed and the step only.
"""

import functools
import time
from abc import abstractmethod
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxformer.core.errors import UserError
from jaxformer.core.sharding import BATCH_AXES
from jaxformer.data.protocols import HeldOut
from jaxformer.tasks.task import TEST, TRAIN, VALIDATION, Batch, Task

MAX_READ_BYTES = 2**21  # bytes that a feed reads ahead
MAX_READ_STEPS = 100


class DiskTask(Task):
    """A task whose examples are rows of a file."""

    @abstractmethod
    def count(self, part: int) -> int:
        """Returns the number of rows of the TRAIN, VALIDATION or TEST part."""

    @abstractmethod
    def rows(self, part: int, index_B: np.ndarray, shift_B: np.ndarray) -> np.ndarray:
        """Reads rows from disk.

        Args:
            part: TRAIN, VALIDATION or TEST.
            index_B: the numbers of the rows.
            shift_B: a large number that is new in each epoch; a task may shift its rows by it.

        Returns:
            (B, R) integers, R per row.
        """

    @abstractmethod
    def batch(self, rows_BxR: jax.Array, keys_B: jax.Array) -> Batch:
        """Returns the examples of rows. Called inside jit; keys_B serve random masking."""

    @property
    def has_disjoint_parts(self) -> bool:
        """Whether no example of one part is in another, as in a prepared text."""
        return True

    def is_among(self, batch: Batch, index_N: np.ndarray) -> np.ndarray:
        """Returns (B,) booleans: whether the inputs are those of one of these training rows."""
        del index_N
        return np.zeros(len(batch.inputs), bool)  # the parts are disjoint

    def example(self, key: jax.Array, index: jax.Array) -> Batch:
        raise UserError(f"{type(self).__name__} reads its examples from disk; see tasks/disk.py.")


class Members(Protocol):
    """The part of a population that a feed needs.

    `data_keys` returns one key for each member (a seed at a learning rate), seeds varying fastest.
    """

    @property
    def seeds(self) -> tuple[int, ...]: ...

    def data_keys(self) -> jax.Array: ...


@dataclass(frozen=True)
class OnDisk:
    """The data of a task on disk. Implements `data.protocols.Data`."""

    task: DiskTask
    key: jax.Array  # for random masking of the held-out sets
    batch_size: int
    train_size: int  # rows of the training set; 0 takes all
    test_size: int
    validation_size: int

    def heldout(self) -> HeldOut:
        """Returns the examples of evenly spaced rows, without fingerprints to avoid in training."""
        test = self._spaced_examples(TEST, self.test_size)
        return HeldOut(
            test, self._spaced_examples(VALIDATION, self.validation_size), jnp.zeros(1, "uint32")
        )

    def batch_at(self, member_key: jax.Array, step: Any, avoid: jax.Array) -> Batch:
        """Returns the training batch of a step outside jit. Inside jit use a `DiskFeed`."""
        if isinstance(step, Tracer):
            raise UserError("rows on disk cannot be read inside jit: use a DiskFeed.")
        rows = self.read(Order(member_key), range(int(step), int(step) + 1))[0]
        return self.batch_of_rows(jnp.asarray(rows), member_key, step)

    def batch_of_rows(self, rows_BxR: jax.Array, member_key: jax.Array, step: Any) -> Batch:
        """Returns the training batch of a step from its rows. It may be called inside jit."""
        return self.task.batch(rows_BxR, _example_keys(member_key, step, self.batch_size))

    def unseen(self, member_key: jax.Array, batch: Batch) -> jax.Array | None:
        """Returns (B,) booleans: True for examples that training does not contain; None if all."""
        del member_key  # all members train on the same rows
        if self.task.has_disjoint_parts:
            return None
        rows = self._training_rows(np.arange(self._n_training))
        return jnp.asarray(~self.task.is_among(batch, rows))

    def read(self, order: "Order", steps: range, examples: slice = slice(None)) -> np.ndarray:
        """Returns the rows of these examples of the batches of some steps, (steps, B, R)."""
        visits = (  # (steps, B)
            np.arange(self.batch_size)[None, examples] + self.batch_size * np.array(steps)[:, None]
        )
        index, shift = order.visit(visits.ravel(), self._n_training)
        rows = self.task.rows(TRAIN, self._training_rows(index), shift)
        return rows.reshape(*visits.shape, *rows.shape[1:])

    @property
    def _n_training(self) -> int:
        """The number of rows of the training set."""
        n = self.task.count(TRAIN)
        return min(self.train_size or n, n)

    def _training_rows(self, index: np.ndarray) -> np.ndarray:
        """The rows of these examples: a smaller training set has evenly spaced rows of the part."""
        return index * self.task.count(TRAIN) // self._n_training

    def _spaced_examples(self, part: int, max_rows: int) -> Batch:
        """Returns the examples of evenly spaced rows of a part."""
        count = self.task.count(part)
        n = min(max_rows, count)
        index = np.arange(n) * count // n
        rows = self.task.rows(part, index, np.zeros_like(index))
        keys = _example_keys(jax.random.fold_in(self.key, part), 0, len(index))
        return jax.jit(self.task.batch)(jnp.asarray(rows), keys)


class Rows(NamedTuple):
    """Rows of which a compiled step makes its batch: arguments of its program, not constants."""

    rows: jax.Array  # (steps, seeds, B, R), of a block of steps
    key_words: np.ndarray  # (seeds, words), the keys of the training data


class DiskFeed:
    """The batches of all members, for `loop.fit`. Members with the same seed share rows."""

    def __init__(self, data: OnDisk, members: Members, mesh: Mesh):
        self.data, self.mesh = data, mesh
        seeds = len(members.seeds)
        with jax.ensure_compile_time_eval():  # concrete keys even under eval_shape
            self.keys = members.data_keys()
            self.orders = [Order(key) for key in self.keys[:seeds]]
            self.key_words = np.asarray(jax.random.key_data(self.keys[:seeds]))
        self.seed_of_member = np.arange(len(self.keys)) % seeds
        row = data.task.rows(TRAIN, np.zeros(1, np.int64), np.zeros(1, np.int64))[0]
        # The shape and the dtype of the rows of one step, (seeds, B, R).
        self.shape, self.dtype = (seeds, data.batch_size, *row.shape), row.dtype
        step_bytes = int(np.prod(self.shape)) * row.itemsize
        self.steps_per_read = int(np.clip(MAX_READ_BYTES // step_bytes, 1, MAX_READ_STEPS))
        self.waited = 0.0  # seconds that training waited for rows
        self.current: tuple[int, jax.Array] | None = None  # number and rows of a block of steps
        self.pending: dict[int, Future] = {}  # {number of a block: its rows}

    def __call__(self, step: Any) -> Batch:
        """Returns the batch of a step outside jit."""
        if isinstance(step, Tracer):
            raise UserError("rows on disk cannot be read inside jit: give the feed to loop.fit.")
        return self.batch(Rows(self._load(int(step), 1), self.key_words), step)

    def batch_shapes(self) -> Batch:
        """Returns the shapes of a batch; rows are neither read nor put on the devices."""
        rows = jax.ShapeDtypeStruct((1, *self.shape), self.dtype)
        return jax.eval_shape(lambda rows: self.batch(Rows(rows, self.key_words), 0), rows)

    def steps_left(self, step: int) -> int:
        """Returns the number of steps from `step` to the end of its block."""
        return self.steps_per_read - step % self.steps_per_read

    def read(self, step: int) -> Rows:
        """Returns the rows of the block of steps that contains `step`, on the devices."""
        began = time.perf_counter()
        block = step // self.steps_per_read
        if self.current is None or self.current[0] != block:
            future = self.pending.pop(block, None)
            self.pending.clear()
            first = block * self.steps_per_read
            rows = future.result() if future else self._load(first, self.steps_per_read)
            self.current = block, rows
        self.waited += time.perf_counter() - began
        return Rows(self.current[1], self.key_words)

    def prefetch(self, step: int) -> None:
        """Starts to read the next block of steps in the background."""
        block = step // self.steps_per_read + 1
        if block not in self.pending:
            first = block * self.steps_per_read
            self.pending[block] = _reader_thread().submit(self._load, first, self.steps_per_read)

    def batch(self, read: Rows, step: Any) -> Batch:
        """Returns the batch of all members at a step. Called inside jit.

        Args:
            read: the rows of a block of steps.
            step: the number of the step.
        """
        seeds, n = self.shape[0], self.shape[1]
        keys = jax.random.wrap_key_data(
            jnp.asarray(read.key_words), impl=jax.random.key_impl(self.keys)
        )
        seed_keys = jax.vmap(lambda key: _example_keys(key, step, n))(keys)
        batch = jax.vmap(self.data.task.batch)(read.rows[step % len(read.rows)], seed_keys)
        if len(self.keys) == seeds:
            return batch
        return jax.tree.map(lambda x: x[self.seed_of_member], batch)

    def _load(self, first: int, steps: int) -> jax.Array:
        """Returns the rows of the steps from `first` on, (steps, seeds, B, R), on the devices."""
        shape = (steps, *self.shape)
        if self.mesh.size == 1:
            return jnp.asarray(self._read_rows(shape, first, (slice(None),) * len(shape)))
        spec = PartitionSpec(None, None, BATCH_AXES)
        # Each process reads the rows of its own devices.
        read: Any = functools.partial(self._read_rows, shape, first)
        return jax.make_array_from_callback(shape, NamedSharding(self.mesh, spec), read)

    def _read_rows(
        self, shape: tuple[int, ...], first: int, index: tuple[slice, ...]
    ) -> np.ndarray:
        """Returns a slice of the rows of a block of steps.

        Args:
            shape: the shape of all rows of the block, (steps, seeds, B, R).
            first: the first step of the block.
            index: the slice of each axis.
        """
        steps = range(first, first + shape[0])[index[0]]
        rows = [self.data.read(order, steps, index[2]) for order in self.orders[index[1]]]
        return np.stack(rows, 1)


class Order:
    """The visiting order of a member: every row once in each epoch, reshuffled by epoch."""

    def __init__(self, key: jax.Array):
        self.key_words = np.asarray(jax.random.key_data(key)).tolist()

    def visit(self, visits_B: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns (B,) the row of each visit, and (B,) an integer that is new in each epoch.

        Args:
            visits_B: numbers of visits, counted from 0 over all epochs.
            size: the number of rows.
        """
        epoch_B, index_B = np.divmod(visits_B, size)
        shift_B = np.empty_like(index_B)
        for epoch in np.unique(epoch_B):
            # Four round keys of the permutation, and the shift of the epoch.
            words = np.random.SeedSequence([*self.key_words, int(epoch)]).generate_state(5)
            in_epoch = epoch_B == epoch
            index_B[in_epoch] = _permuted(index_B[in_epoch], size, words[:4])
            shift_B[in_epoch] = words[4]
        return index_B, shift_B


def _permuted(x_B: np.ndarray, size: int, round_keys: np.ndarray) -> np.ndarray:
    """Permutes 0..size-1 without a table, like `hashes.shuffled`, but on the host in 64 bits."""
    half_bits = max(((size - 1).bit_length() + 1) // 2, 1)
    mask, out = np.uint64(2**half_bits - 1), x_B.astype(np.uint64)
    # The permutation is applied again to values that are not yet below `size`.
    outside = np.ones(len(out), bool)
    while outside.any():
        left, right = out[outside] >> np.uint64(half_bits), out[outside] & mask
        for round_key in round_keys:
            left, right = right, left ^ (scramble(right + np.uint64(round_key)) & mask)
        out[outside] = (left << np.uint64(half_bits)) | right
        outside[outside] = out[outside] >= size
    return out.astype(np.int64)


def scramble(x: np.ndarray) -> np.ndarray:
    """Mixes the bits of 64-bit words bijectively (the finaliser of MurmurHash3)."""
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return x ^ (x >> np.uint64(33))


def _example_keys(key: jax.Array, step: Any, n: int) -> jax.Array:
    """Returns (n,) a key for each example of a step."""
    return jax.random.split(jax.random.fold_in(jax.random.fold_in(key, TRAIN), step), n)


@functools.cache
def _reader_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="reader")
