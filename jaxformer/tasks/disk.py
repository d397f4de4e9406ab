"""Examples that lie on a disk: rows are read on the host and become a batch inside the step.

A `DiskTask` counts the rows of a part, reads some of them as whole numbers, and makes a batch of
them in compiled code. `OnDisk` is its `Data`, and `DiskFeed` brings the rows of many steps to the
devices at once, while the steps before are computed. Nothing that is read is a constant of the
program, and what a step reads follows from the seed and the step alone.
"""

import functools
import time
from abc import abstractmethod
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxformer.core.errors import UserError
from jaxformer.core.sharding import BATCH_AXES
from jaxformer.data.protocols import HeldOut
from jaxformer.tasks.task import TEST, TRAIN, VALIDATION, Batch, Task

AT_ONCE = 2**21  # bytes that a feed reads at once
STEPS = 100  # and the most steps


class DiskTask(Task):
    """The base of tasks whose examples are rows of a file."""

    @abstractmethod
    def count(self, part: int) -> int:
        """How many rows there are for TRAIN, VALIDATION or TEST."""

    @abstractmethod
    def rows(self, part: int, index_B: np.ndarray, shift_B: np.ndarray) -> np.ndarray:
        """(B, R) rows, read here and now. `shift` is a large number that is new in each epoch: it
        may move where rows begin."""

    @abstractmethod
    def batch(self, rows_BxR: jax.Array, keys_B: jax.Array) -> Batch:
        """The examples of these rows, inside jit; the keys are for what is drawn."""

    def example(self, key: jax.Array, index: jax.Array) -> Batch:
        raise UserError(f"{type(self).__name__} reads its examples from a disk; see tasks/disk.py.")


class Members(Protocol):
    """What a feed asks of a population: one key a member, seeds the fastest."""

    @property
    def seeds(self) -> tuple[int, ...]: ...

    def data_keys(self) -> jax.Array: ...


@dataclass(frozen=True)
class OnDisk:
    """The data of a task on a disk; implements `data.protocols.Data`."""

    task: DiskTask
    key: jax.Array  # of what is drawn for the held-out sets
    batch_size: int
    train_size: int  # rows of a finite training set; 0 takes all there are
    test_size: int
    validation_size: int

    def heldout(self) -> HeldOut:
        """Evenly spaced rows of the test and the validation part, at most all of them."""
        test = self._spaced(TEST, self.test_size)
        return HeldOut(test, self._spaced(VALIDATION, self.validation_size), jnp.zeros(1, "uint32"))

    def batch_at(self, member_key: jax.Array, step: Any, avoid: jax.Array) -> Batch:
        """The training batch of a step that is a number; inside jit a `DiskFeed` is needed."""
        if isinstance(step, Tracer):
            raise UserError("rows of a disk are not read inside jit: see DiskFeed.")
        rows = self.read(Order(member_key), range(int(step), int(step) + 1))[0]
        return self.task.batch(jnp.asarray(rows), _keys(member_key, step, self.batch_size))

    def unseen(self, member_key: jax.Array, batch: Batch) -> None:
        """The parts of a file never overlap: nobody has to look."""

    def read(self, order: "Order", steps: range, part: slice = slice(None)) -> np.ndarray:
        """(steps, B, R) the rows of some steps, or a part of each step's."""
        n = self.task.count(TRAIN)
        size = min(self.train_size or n, n)
        places_SxB = (
            np.arange(self.batch_size)[None, part] + self.batch_size * np.array(steps)[:, None]
        )
        index, shift = order.visit(places_SxB.ravel(), size)
        rows = self.task.rows(TRAIN, index * n // size, shift)
        return rows.reshape(*places_SxB.shape, *rows.shape[1:])

    def _spaced(self, part: int, wanted: int) -> Batch:
        n = self.task.count(part)
        index = np.arange(min(wanted, n)) * n // min(wanted, n)
        rows = self.task.rows(part, index, np.zeros_like(index))
        keys = _keys(jax.random.fold_in(self.key, part), 0, len(index))
        return jax.jit(self.task.batch)(jnp.asarray(rows), keys)


class DiskFeed:
    """The batches of all members, for `loop.fit`. Members of one seed share what is read."""

    def __init__(self, data: OnDisk, members: Members, mesh: Mesh):
        self.data, self.mesh = data, mesh
        seeds = len(members.seeds)
        with jax.ensure_compile_time_eval():  # numbers, also where shapes alone are asked for
            self.keys = members.data_keys()
            self.orders = [Order(key) for key in self.keys[:seeds]]
        self.sharers = np.arange(len(self.keys)) % seeds  # which seed each member has
        row = data.task.rows(TRAIN, np.zeros(1, np.int64), np.zeros(1, np.int64))[0]
        self.shape, self.kind = (seeds, data.batch_size, *row.shape), row.dtype
        size = int(np.prod(self.shape)) * row.itemsize
        self.most = int(np.clip(AT_ONCE // size, 1, STEPS))
        self.waited = 0.0  # seconds in which nothing was there to compute with
        self.held: tuple[int, jax.Array] | None = None  # what was read last, and its number
        self.next: dict[int, Future] = {}

    def __call__(self, step: Any) -> Batch:
        """The batch of a step that is a number."""
        if isinstance(step, Tracer):
            raise UserError("rows of a disk are not read inside jit: give the feed to loop.fit.")
        return self.take(self._load(int(step), 1), step)

    def left(self, step: int) -> int:
        """For how many steps what is read at `step` lasts."""
        return self.most - step % self.most

    def read(self, step: int) -> jax.Array:
        """The rows of the steps around `step`, on the devices; each of them is read once."""
        began, wanted = time.perf_counter(), step // self.most
        if self.held is None or self.held[0] != wanted:
            found = self.next.pop(wanted, None)
            self.next.clear()
            first = wanted * self.most
            self.held = wanted, found.result() if found else self._load(first, self.most)
        self.waited += time.perf_counter() - began
        return self.held[1]

    def ahead(self, step: int) -> None:
        """Begins to read what comes after, beside what is computed now."""
        coming = step // self.most + 1
        if coming not in self.next:
            self.next[coming] = _reader().submit(self._load, coming * self.most, self.most)

    def take(self, rows: jax.Array, step: Any) -> Batch:
        """Inside jit: the batch of all members at a step."""
        seeds, n = self.shape[0], self.shape[1]
        keys_SxB = jax.vmap(lambda key: _keys(key, step, n))(self.keys[:seeds])
        batch = jax.vmap(self.data.task.batch)(rows[step % len(rows)], keys_SxB)
        if len(self.keys) == seeds:
            return batch
        return jax.tree.map(lambda x: x[self.sharers], batch)

    def _load(self, first: int, steps: int) -> jax.Array:
        shape = (steps, *self.shape)
        if self.mesh.size == 1:
            return jnp.asarray(self._rows(shape, first, (slice(None),) * len(shape)))
        spec = PartitionSpec(None, None, BATCH_AXES)
        # Each process reads what its own devices hold.
        read: Any = functools.partial(self._rows, shape, first)
        return jax.make_array_from_callback(shape, NamedSharding(self.mesh, spec), read)

    def _rows(self, shape: tuple[int, ...], first: int, index: tuple[slice, ...]) -> np.ndarray:
        steps = range(first, first + shape[0])[index[0]]
        rows = [self.data.read(order, steps, index[2]) for order in self.orders[index[1]]]
        return np.stack(rows, 1)


class Order:
    """The order in which a member visits rows: every row once an epoch, each epoch anew."""

    def __init__(self, key: jax.Array):
        self.words = np.asarray(jax.random.key_data(key)).tolist()

    def visit(self, places_B: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
        """(B,) which of `size` rows stands at each place of the endless visit, (B,) a large
        number that all rows of an epoch share."""
        epoch_B, index_B = np.divmod(places_B, size)
        shift_B = np.empty_like(index_B)
        for epoch in np.unique(epoch_B):
            words = np.random.SeedSequence([*self.words, int(epoch)]).generate_state(5)
            mine = epoch_B == epoch
            index_B[mine] = _permuted(index_B[mine], size, words[:4])
            shift_B[mine] = words[4]
        return index_B, shift_B


def _permuted(x_B: np.ndarray, size: int, words: np.ndarray) -> np.ndarray:
    """A permutation of 0..size-1 without a table: `hashes.shuffled` on the host, in 64 bits."""
    half = max(((size - 1).bit_length() + 1) // 2, 1)
    mask, out = np.uint64(2**half - 1), x_B.astype(np.uint64)
    outside = np.ones(len(out), bool)
    while outside.any():
        left, right = out[outside] >> np.uint64(half), out[outside] & mask
        for word in words:
            left, right = right, left ^ (_scramble(right + np.uint64(word)) & mask)
        out[outside] = (left << np.uint64(half)) | right
        outside[outside] = out[outside] >= size
    return out.astype(np.int64)


def _scramble(x: np.ndarray) -> np.ndarray:
    """A bijection of 64-bit words that spreads every bit (the finaliser of MurmurHash3)."""
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return x ^ (x >> np.uint64(33))


def _keys(key: jax.Array, step: Any, n: int) -> jax.Array:
    """(n,) a key for each place of a step."""
    return jax.random.split(jax.random.fold_in(jax.random.fold_in(key, TRAIN), step), n)


@functools.cache
def _reader() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="reader")
