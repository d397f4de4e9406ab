"""What a run would cost, before it starts: operations, memory, time."""

import functools
import math
import resource
import sys
import timeit
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from jaxformer.core import sharding
from jaxformer.core.errors import UserError
from jaxformer.core.partition import Partition
from jaxformer.tasks.source import Data, Source
from jaxformer.tasks.task import Batch
from jaxformer.training.population import Population
from jaxformer.training.setup import Phase, Setup
from jaxformer.training.step import task_scores, token_weighted

# How often a state is held at once: before and after a step; on a CPU also where a checkpoint is
# written from, twice (measured with 300 and 900 members: 3.4 times).
COPIES = {False: 2, True: 4}
MOST_EXAMPLES = 2**31 - 1  # of a set: an int32 counts them


def check_memory(phases: Sequence[Phase]) -> str:
    """What the population will hold, in words; refuses one that does not fit. Compiles nothing."""
    setup = max((phase.setup for phase in phases), key=state_bytes)
    check_data(setup.data)
    held, free, device = state_bytes(setup), free_memory(), jax.local_devices()[0]
    kept, moving = heldout_bytes(setup.data), 0
    need = COPIES[device.platform == "cpu"] * held + kept
    if free is None or need <= free:  # else it is refused at once: this takes time of its own
        moving = step_bytes(setup)
    need += moving
    if device.platform == "cpu":  # all of them share one memory
        need *= min(setup.mesh.size, jax.local_device_count())
    n = len(setup.members.members)
    words = (
        f"memory: about {size(need)} for {n} member{'s' * (n > 1)} at its peak "
        f"({size(held)} parameters and moments; {size(moving)} gradient and activations, "
        f"{'side by side' if setup.members_by == 'vmap' else 'one member at a time'}; "
        f"{size(kept)} held-out examples), "
        f"{size(free)} free"
    )
    if free is None or need <= free:
        return words
    side_by_side = "train.members=map, " if setup.members_by == "vmap" and n > 1 else ""
    raise UserError(
        f"a population of {n} needs about {size(need)}, {size(free)} are free on this "
        f"{device.platform}: take {side_by_side}fewer seeds (n_seeds) or learning rates, a smaller "
        "train.batch_size, model.remat=True, or more devices (devices.fsdp)."
    )


def heldout_bytes(data: Data) -> int:
    """Of the test and the validation set; 0 of data of one's own, which nobody has drawn yet."""
    if not isinstance(data, Source):
        return 0
    return (data.test_size + data.validation_size) * _example_bytes(data)


def _example_bytes(data: Source) -> int:
    key = jax.random.key(0)
    return _tree_bytes(jax.eval_shape(lambda: data.task.example(key, jnp.int32(0))))


def check_data(data: Data) -> None:
    """Refuses sets of examples that do not fit: they are drawn whole. Draws nothing."""
    if not isinstance(data, Source):
        return
    drawn = {"test_size": data.test_size, "validation_size": data.validation_size}
    if not data.task.size:
        drawn["train_size"] = data.train_size
    need, free = sum(drawn.values()) * _example_bytes(data), free_memory()
    if (free is not None and need > free) or max(drawn.values()) > MOST_EXAMPLES:
        said = ", ".join(f"data.{name} = {size}" for name, size in drawn.items())
        raise UserError(
            f"the examples that are kept need about {size(need)}, {size(free)} are free and "
            f"{MOST_EXAMPLES:,} can be counted: take fewer ({said})."
        )


def state_bytes(setup: Setup) -> int:
    """Parameters, moments and counts of the members of one device."""
    apart = setup.mesh.shape["members"]
    first = Population(tuple(range(apart)), setup.members.rates[:1])
    shapes = jax.eval_shape(setup._replace(members=first).create)
    places = sharding.state_sharding(shapes, setup.tx, setup.mesh)
    parts = jax.tree.map(lambda x, s: _bytes(s.shard_shape(x.shape), x.dtype), shapes, places)
    return len(setup.members.members) // apart * sum(jax.tree.leaves(parts))


def step_bytes(setup: Setup) -> int:
    """The gradient, and what the backward pass keeps of the forward pass, on one device.

    Of all members at once under "vmap", of one under "map". XLA may keep a little less (it fuses)
    or more (copies): tests hold it to a factor of two. A model with remat keeps the inputs of its
    blocks, and all of one block at a time.
    """
    spec = getattr(setup.model, "spec", None)
    if spec is not None and getattr(spec, "remat", False):
        plain = setup._replace(model=setup.model.clone(spec=replace(spec, remat=False)))
        return _kept_bytes(setup) + _kept_bytes(plain) // spec.layers
    return _kept_bytes(setup)


def _kept_bytes(setup: Setup) -> int:
    trainable, frozen = setup.partition.split(setup.shapes())
    batch = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), batch_shapes(setup))

    def kept(trainable, frozen, batch):
        def loss(trainable):
            params = Partition.merge(trainable, frozen)
            return token_weighted(task_scores(setup.apply, setup.task, params, batch)["loss"])

        return jax.vjp(loss, trainable)[1]  # a tree of everything the backward pass needs

    residuals = jax.eval_shape(kept, trainable, frozen, batch)
    # The parameters are among them; the gradient is as large as its half of them.
    gradient, params = _tree_bytes(trainable), _tree_bytes(trainable) + _tree_bytes(frozen)
    activations = max(_tree_bytes(residuals) - params, 0)
    cut = math.prod(setup.mesh.shape[axis] for axis in sharding.BATCH_AXES)
    together = len(setup.members.members) // setup.mesh.shape["members"]
    together = together if setup.members_by == "vmap" else 1
    return together * (gradient + activations // cut)


def free_memory() -> int | None:
    """Bytes free on a device: its own if it says so, else the machine's, None if nobody knows."""
    stats = jax.local_devices()[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0)
    free = []
    for file, word, unit in (
        ("/proc/meminfo", "MemAvailable:", 1024),
        ("/sys/fs/cgroup/memory.max", "", 1),
    ):
        try:
            lines = Path(file).read_text().splitlines()
        except OSError:
            continue
        found = [x.removeprefix(word).split()[0] for x in lines if x.startswith(word)]
        free += [int(x) * unit for x in found if x.isdigit()]
    return min(free) if free else None


def _tree_bytes(tree) -> int:
    return sum(_bytes(x.shape, x.dtype) for x in jax.tree.leaves(tree))


def _bytes(shape, dtype) -> int:
    # A typed random key has no itemsize of its own kind; it is 8 bytes.
    return math.prod(shape) * getattr(dtype, "itemsize", 8)


def size(n: int | None) -> str:
    if n is None:
        return "an unknown amount"
    return f"{n / 2**30:,.1f} GiB" if n >= 2**30 else f"{n / 2**20:,.1f} MiB"


def peak_memory() -> int:
    """The most bytes held so far: on the first accelerator, or by this process on a CPU."""
    stats = jax.local_devices()[0].memory_stats()
    if stats and "peak_bytes_in_use" in stats:
        return stats["peak_bytes_in_use"]
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def program_bytes(program: Any) -> float:
    """Bytes while a compiled program runs: what goes in, what comes out beside it, and between."""
    memory = program.memory_analysis()
    if memory is None:
        return 0.0
    out = memory.output_size_in_bytes - memory.alias_size_in_bytes
    return memory.argument_size_in_bytes + out + memory.temp_size_in_bytes


def without_repeats(setup: Setup) -> Setup:
    """The setup that computes the same, and nothing twice to save memory."""
    spec = getattr(setup.model, "spec", None)
    if spec is not None and getattr(spec, "remat", False):
        setup = setup._replace(model=setup.model.clone(spec=replace(spec, remat=False)))
    return setup._replace(loss_chunk=0) if setup.loss_chunk else setup


def batch_shapes(setup: Setup) -> Batch:
    """The shapes of a batch of all members."""
    avoid = jax.ShapeDtypeStruct((1,), jnp.uint32)
    return jax.eval_shape(lambda avoid: setup.batch_at(avoid)(0), avoid)


@functools.lru_cache
def matmul_rate(dtype: Any = float) -> float:
    """FLOPs a second of a large product on one device here, by default in float32."""
    n = 1024 if jax.local_devices()[0].platform == "cpu" else 8192
    x = jnp.ones((n, n), dtype)
    product = jax.jit(lambda x: x @ x)
    product(x).block_until_ready()
    return 2 * n**3 / min(timeit.repeat(lambda: product(x).block_until_ready(), number=1, repeat=3))
