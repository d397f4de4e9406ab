"""The memory of a run, estimated from the shapes of its arrays, and the memory of a device."""

import math
import resource
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core import sharding
from jaxformer.core.errors import UserError, setting
from jaxformer.core.partition import Partition
from jaxformer.core.settings import MAX_EXAMPLES
from jaxformer.core.text_format import byte_size
from jaxformer.models.half_precision import wide
from jaxformer.tasks.disk import DiskFeed, OnDisk
from jaxformer.tasks.source import Data, Source
from jaxformer.tasks.task import TEST, TRAIN, VALIDATION, Batch
from jaxformer.training.phases import Phase
from jaxformer.training.setup import Setup
from jaxformer.training.step import task_scores, token_weighted

# Copies of the state in memory at a time: one before and one after a step. On a CPU a checkpoint is
# written from two more copies (measured with 300 and 900 members: 3.4 times the state).
STATE_COPIES = {"cpu": 4}
DEFAULT_STATE_COPIES = 2
CONTROL_GROUP = Path("/sys/fs/cgroup")  # in a container, the group of the container


def check_memory(phases: Sequence[Phase]) -> str:
    """Returns a line on the memory of a population; raises if it does not fit.

    It compares an estimate from shapes with the free memory of a device and compiles nothing.
    """
    setup = max((phase.setup for phase in phases), key=state_bytes)
    check_data(setup.data)
    # In bytes: `stored` are the state and the held-out sets, `step` is added by a running step.
    state, free = state_bytes(setup), free_memory()
    device = jax.local_devices()[0]
    heldout = heldout_bytes(setup.data)
    stored = STATE_COPIES.get(device.platform, DEFAULT_STATE_COPIES) * state + heldout
    is_too_big = free is not None and stored > free
    step = 0 if is_too_big else step_bytes(setup)  # tracing a step takes time
    need = stored + step
    if device.platform == "cpu":  # all devices of a CPU share one memory
        need *= min(setup.mesh.size, jax.local_device_count())
    n, is_vmap = len(setup.population.members), setup.member_loop == "vmap"
    if free is None or need <= free:
        return (
            f"memory: about {byte_size(need)} for {n} member{'s' * (n > 1)} at its peak "
            f"({byte_size(state)} parameters and moments; {byte_size(step)} gradient and "
            f"activations, {'side by side' if is_vmap else 'one member at a time'}; "
            f"{byte_size(heldout)} held-out examples), {byte_size(free)} free"
        )
    one_by_one = f"{setting('train.members')}=map, " if is_vmap and n > 1 else ""
    remat = "model.remat=True, " if getattr(setup.model.spec, "remat", True) is False else ""
    raise UserError(
        f"a population of {n} needs about {byte_size(need)}, {byte_size(free)} are free on this "
        f"{device.platform}: take {one_by_one}fewer seeds ({setting('n_seeds')}) or learning "
        f"rates, a smaller {setting('train.batch_size')}, {remat}or more devices "
        f"({setting('devices.fsdp')})."
    )


def check_data(data: Data) -> None:
    """Raises if the held-out sets and a finite training set do not fit into memory."""
    if not isinstance(data, Source):
        return
    sizes = {"test_size": data.test_size, "validation_size": data.validation_size}
    if not data.task.size:
        sizes["train_size"] = data.train_size
    need, free = sum(sizes.values()) * _example_bytes(data), free_memory()
    if (free is not None and need > free) or max(sizes.values()) > MAX_EXAMPLES:
        given = ", ".join(f"{setting(f'data.{name}')} = {n}" for name, n in sizes.items())
        raise UserError(
            f"the sets of examples need about {byte_size(need)}, {byte_size(free)} are free, and a "
            f"set has at most {MAX_EXAMPLES:,} examples: take fewer ({given})."
        )


def heldout_bytes(data: Data) -> int:
    """Returns the bytes of test and validation set; 0 for data of users."""
    if isinstance(data, OnDisk):
        sizes = {TEST: data.test_size, VALIDATION: data.validation_size}
        n = sum(min(size, data.task.count(part)) for part, size in sizes.items())
        return n * _tree_bytes(_example_shapes_on_disk(data))
    if isinstance(data, Source):
        return (data.test_size + data.validation_size) * _example_bytes(data)
    return 0


def _example_bytes(data: Source) -> int:
    return _tree_bytes(_example_shapes(data))


def _example_shapes(data: Source) -> Batch:
    task = data.task.part(TRAIN)
    return jax.eval_shape(lambda key: task.example(key, jnp.int32(0)), data.key)


def _example_shapes_on_disk(data: OnDisk) -> Batch:
    first_row = data.task.rows(TRAIN, np.zeros(1, np.int64), np.zeros(1, np.int64))
    keys_1 = jax.eval_shape(lambda key: jax.random.split(key, 1), data.key)
    return jax.eval_shape(data.task.batch, first_row, keys_1)


def state_bytes(setup: Setup) -> int:
    """Returns the bytes of the state on one device: parameters, moments and step counters."""
    # With `parts` members, each device has one. The result counts all members of a device.
    parts = setup.mesh.shape["members"]
    shapes = setup.state_shapes(parts)
    shardings = sharding.state_sharding(shapes, setup.tx, setup.mesh)
    sizes = jax.tree.map(
        lambda x, s: _array_bytes(s.shard_shape(x.shape), x.dtype), shapes, shardings
    )
    return len(setup.population.members) // parts * sum(jax.tree.leaves(sizes))


def step_bytes(setup: Setup) -> int:
    """Returns the bytes of gradient and stored activations of a step on one device.

    Under "vmap" all members count, under "map" one. XLA may store less (fusion) or more (copies):
    tests allow a factor of two. A model with remat stores the inputs of its blocks and everything
    inside one block. With `accumulate` the activations of one part of a batch count.
    """
    spec = getattr(setup.model, "spec", None)
    if spec is not None and getattr(spec, "remat", False):
        return _stored_bytes(setup) + _stored_bytes(without_remat(setup)) // spec.layers
    return _stored_bytes(setup)


def _stored_bytes(setup: Setup) -> int:
    """Returns the bytes of the gradient and of the activations that the backward pass reads."""
    trainable, frozen = setup.partition.split(setup.shapes())
    trainable = jax.eval_shape(lambda tree: jax.tree.map(wide, tree), trainable)
    batch = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), batch_shapes(setup))

    def residuals(trainable, frozen, batch):
        def loss(trainable):
            params = Partition.merge(trainable, frozen)
            return token_weighted(task_scores(setup.apply, setup.task, params, batch)["loss"])

        return jax.vjp(loss, trainable)[1]  # a tree of all arrays that the backward pass reads

    stored = _tree_bytes(jax.eval_shape(residuals, trainable, frozen, batch))
    gradient = _tree_bytes(trainable)
    activations = max(stored - gradient - _tree_bytes(frozen), 0)  # parameters are stored too
    batch_parts = math.prod(setup.mesh.shape[axis] for axis in sharding.BATCH_AXES)
    members = len(setup.population.members) // setup.mesh.shape["members"]
    members_at_once = members if setup.member_loop == "vmap" else 1
    gradient //= setup.mesh.shape["fsdp"] * setup.mesh.shape["tensor"]
    return members_at_once * (gradient + activations // (batch_parts * setup.accumulate))


def free_memory() -> int | None:
    """Returns the free bytes of the first accelerator, or of this machine if it has none."""
    stats = jax.local_devices()[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0)
    return free_host_memory()


def free_host_memory() -> int | None:
    """Returns the bytes that this process may use of the machine's memory.

    This is the smaller of the available memory and what the control group's limit leaves; None if
    neither can be determined.
    """
    available = _number_in(Path("/proc/meminfo"), "MemAvailable:")
    free = [] if available is None else [available * 1024]
    limit = _number_in(CONTROL_GROUP / "memory.max", "")
    used = _number_in(CONTROL_GROUP / "memory.current", "")
    if limit is not None and used is not None:
        reclaimable = _number_in(CONTROL_GROUP / "memory.stat", "inactive_file") or 0
        free.append(limit - used + reclaimable)
    return min(free, default=None)


def _number_in(file: Path, name: str) -> int | None:
    """Returns the whole number after `name` at the start of a line; None if there is none."""
    try:
        lines = file.read_text().splitlines()
    except OSError:
        return None
    values = [line.removeprefix(name).split()[0] for line in lines if line.startswith(name)]
    return int(values[0]) if values and values[0].isdigit() else None


def peak_memory() -> int:
    """Returns the peak bytes so far, of the first accelerator or of this process on a CPU."""
    stats = jax.local_devices()[0].memory_stats()
    if stats and "peak_bytes_in_use" in stats:
        return stats["peak_bytes_in_use"]
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def program_bytes(program: Any) -> float:
    """Returns the bytes of a running compiled program: arguments, results and temporaries."""
    memory = program.memory_analysis()
    if memory is None:
        return 0.0
    # Results that reuse the memory of an argument count once.
    results = memory.output_size_in_bytes - memory.alias_size_in_bytes
    return memory.argument_size_in_bytes + results + memory.temp_size_in_bytes


def batch_shapes(setup: Setup) -> Batch:
    """Returns the shapes of the batch of all members."""
    if isinstance(setup.data, Source):
        sizes = (len(setup.population.members), setup.data.batch_size)
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct((*sizes, *x.shape), x.dtype),
            _example_shapes(setup.data),
        )
    if isinstance(setup.data, OnDisk):
        return DiskFeed(setup.data, setup.population, setup.mesh).batch_shapes()
    fingerprints = jax.ShapeDtypeStruct((1,), jnp.uint32)
    return jax.eval_shape(lambda fingerprints: setup.batch_at(fingerprints)(0), fingerprints)


def without_remat(setup: Setup) -> Setup:
    """Returns the setup whose model stores all activations of its blocks."""
    spec = replace(setup.model.spec, remat=False)
    return setup._replace(model=setup.model.clone(spec=spec), model_shapes=None)


def _tree_bytes(tree: Any) -> int:
    return sum(_array_bytes(x.shape, x.dtype) for x in jax.tree.leaves(tree))


def _array_bytes(shape: Sequence[int], dtype: Any) -> int:
    # The dtype of a typed random key has no itemsize; a key has 8 bytes.
    return math.prod(shape) * getattr(dtype, "itemsize", 8)
