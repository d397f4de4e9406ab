"""The cost of a run: floating-point operations, memory and time, before and after it.

    check_memory(phases)                  estimates memory by shapes; compiles nothing
    matmul_flops(function, *arguments)    counts the matrix products of a call
    print_plan(phases, settings)          predicts operations, memory and time of a run
    Throughput(setup, length)             measures a run while it trains

With `train.throughput` a run logs rows of `Throughput.numbers` in timing.jsonl, and its result.json
has the last of them as `timing`. Every result.json has the numbers of
`Throughput.performance`. They describe a machine: no verdict and no comparison reads them.

    {"step": 400, "throughput": {
        "tokens_per_second":  of all members together, without the first dispatch, which compiles
        "samples_per_second": the same in examples
        "model_flops":        matrix products of a step of all members, without recomputation
        "flops_per_second":   the same a second
        "share_of_matmul":    relative to one large matrix product on each of the devices
        "waiting_share":      fraction of the time in which the device waited for data
    }}
    "performance": {"tokens_per_second", "step_seconds", "share_of_matmul", "model_flops",
                    "peak_memory": bytes of one accelerator, or of this process on a CPU}
"""

import functools
import io
import math
import os
import resource
import sys
import tempfile
import time
import timeit
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.extend.core as jex
import jax.numpy as jnp

from jaxformer.core import sharding
from jaxformer.core.errors import UserError
from jaxformer.core.partition import Partition
from jaxformer.core.settings import MAX_EXAMPLES, TrainSettings
from jaxformer.core.text_format import byte_size, duration
from jaxformer.io.checkpoint_writer import Checkpoints
from jaxformer.tasks.source import Data, Source
from jaxformer.tasks.task import Batch
from jaxformer.training import curves
from jaxformer.training.callbacks import EVERY_DISPATCH, Callback, Dispatch
from jaxformer.training.loop import fit
from jaxformer.training.setup import Phase, Setup
from jaxformer.training.step import task_scores, token_weighted

# Copies of the state in memory at once: before and after a step. On a CPU a checkpoint is written
# from two more copies (measured with 300 and 900 members: 3.4 times the state).
STATE_COPIES = {"cpu": 4}
DEFAULT_STATE_COPIES = 2
ASSUMED_MATMUL_SHARE = 0.4  # of the rate of a large matrix product, for unmeasured steps
MEASURE_SECONDS = 2.0  # time spent on timed steps
CHECKPOINTS = 10  # saves of a run, at least
LOG_SECONDS = 10.0  # interval between two rows of throughput
IMPORTED_AT = time.perf_counter()


# Floating-point operations ------------------------------------------------------------------------


def matmul_flops(function: Any, *arguments: Any) -> float:
    """Returns the FLOPs of all matrix products of a call; arguments may be shapes."""
    return program_flops(jax.make_jaxpr(function)(*arguments).jaxpr)


def program_flops(program: jex.Jaxpr) -> float:
    """Returns the FLOPs of all matrix products of a jaxpr, 2 x rows x columns x inner each.

    A scan counts as often as it runs, and a loop of unknown length once. Products that the backward
    pass recomputes (remat) count too. Of the branches of a `cond` the most expensive one counts.
    """
    return sum(_equation_flops(equation) for equation in program.eqns)


def _equation_flops(equation: Any) -> float:
    if equation.primitive.name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        inner = math.prod(equation.invars[0].aval.shape[axis] for axis in contracted)
        return 2.0 * inner * math.prod(equation.outvars[0].aval.shape)
    inside = [program_flops(program) for program in inner_programs(equation)]
    if equation.primitive.name == "cond":
        return max(inside, default=0.0)
    repeats = equation.params["length"] if equation.primitive.name == "scan" else 1
    return repeats * sum(inside)


def inner_programs(equation: Any) -> list[jex.Jaxpr]:
    """Returns the jaxprs among the parameters of an equation, such as the body of a loop."""
    kinds = (jex.Jaxpr, jex.ClosedJaxpr)
    leaves = jax.tree.leaves(dict(equation.params), is_leaf=lambda x: isinstance(x, kinds))
    programs = [leaf for leaf in leaves if isinstance(leaf, kinds)]
    return [p.jaxpr if isinstance(p, jex.ClosedJaxpr) else p for p in programs]


# Memory -------------------------------------------------------------------------------------------


def check_memory(phases: Sequence[Phase]) -> str:
    """Returns a line on the memory of a population; raises if it does not fit.

    It compares shapes with the free memory of a device and compiles nothing.
    """
    setup = max((phase.setup for phase in phases), key=state_bytes)
    check_data(setup.data)
    state, free, device = state_bytes(setup), free_memory(), jax.local_devices()[0]
    heldout, step = heldout_bytes(setup.data), 0
    need = STATE_COPIES.get(device.platform, DEFAULT_STATE_COPIES) * state + heldout
    if free is None or need <= free:  # tracing the step takes time: skip it if the state is too big
        step = step_bytes(setup)
    need += step
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
    one_by_one = "train.members=map, " if is_vmap and n > 1 else ""
    raise UserError(
        f"a population of {n} needs about {byte_size(need)}, {byte_size(free)} are free on this "
        f"{device.platform}: take {one_by_one}fewer seeds (n_seeds) or learning rates, a smaller "
        "train.batch_size, model.remat=True, or more devices (devices.fsdp)."
    )


def check_data(data: Data) -> None:
    """Raises if the sets of examples, which are drawn whole, do not fit. Draws nothing."""
    if not isinstance(data, Source):
        return
    sizes = {"test_size": data.test_size, "validation_size": data.validation_size}
    if not data.task.size:
        sizes["train_size"] = data.train_size
    need, free = sum(sizes.values()) * _example_bytes(data), free_memory()
    if (free is not None and need > free) or max(sizes.values()) > MAX_EXAMPLES:
        given = ", ".join(f"data.{name} = {n}" for name, n in sizes.items())
        raise UserError(
            f"the sets of examples need about {byte_size(need)}, {byte_size(free)} are free, and a "
            f"set has at most {MAX_EXAMPLES:,} examples: take fewer ({given})."
        )


def heldout_bytes(data: Data) -> int:
    """Returns the bytes of test and validation set; 0 for user data, whose size is unknown."""
    if not isinstance(data, Source):
        return 0
    return (data.test_size + data.validation_size) * _example_bytes(data)


def _example_bytes(data: Source) -> int:
    return _tree_bytes(_example_shapes(data))


def _example_shapes(data: Source) -> Batch:
    return jax.eval_shape(lambda key: data.task.example(key, jnp.int32(0)), data.key)


def state_bytes(setup: Setup) -> int:
    """Returns the bytes of the training state on one device: parameters, moments and counts."""
    parts = setup.mesh.shape["members"]
    shapes = setup.state_shapes(parts)
    shardings = sharding.state_sharding(shapes, setup.tx, setup.mesh)
    sizes = jax.tree.map(lambda x, s: _bytes(s.shard_shape(x.shape), x.dtype), shapes, shardings)
    return len(setup.population.members) // parts * sum(jax.tree.leaves(sizes))


def step_bytes(setup: Setup) -> int:
    """Returns the bytes of gradient and stored activations of a step on one device.

    Under "vmap" all members count, under "map" one. XLA may store less (fusion) or more (copies):
    tests allow a factor of two. A model with remat stores the inputs of its blocks and everything
    inside one block.
    """
    spec = getattr(setup.model, "spec", None)
    if spec is not None and getattr(spec, "remat", False):
        return _stored_bytes(setup) + _stored_bytes(_without_remat(setup)) // spec.layers
    return _stored_bytes(setup)


def _stored_bytes(setup: Setup) -> int:
    trainable, frozen = setup.partition.split(setup.shapes())
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
    at_once = members if setup.member_loop == "vmap" else 1
    return at_once * (gradient + activations // batch_parts)


def free_memory() -> int | None:
    """Returns the free bytes of a device, or of the machine; None if they cannot be determined."""
    stats = jax.local_devices()[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0)
    free = []
    for file, prefix, unit in (
        ("/proc/meminfo", "MemAvailable:", 1024),
        ("/sys/fs/cgroup/memory.max", "", 1),
    ):
        try:
            lines = Path(file).read_text().splitlines()
        except OSError:
            continue
        values = [x.removeprefix(prefix).split()[0] for x in lines if x.startswith(prefix)]
        free += [int(value) * unit for value in values if value.isdigit()]
    return min(free, default=None)


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
    fingerprints = jax.ShapeDtypeStruct((1,), jnp.uint32)
    return jax.eval_shape(lambda fingerprints: setup.batch_at(fingerprints)(0), fingerprints)


def without_recomputation(setup: Setup) -> Setup:
    """Returns the setup of the same computation without remat and without a loss in chunks."""
    spec = getattr(setup.model, "spec", None)
    if spec is not None and getattr(spec, "remat", False):
        setup = _without_remat(setup)
    return setup._replace(loss_chunk=0) if setup.loss_chunk else setup


def _without_remat(setup: Setup) -> Setup:
    spec = replace(setup.model.spec, remat=False)
    return setup._replace(model=setup.model.clone(spec=spec))


def _tree_bytes(tree: Any) -> int:
    return sum(_bytes(x.shape, x.dtype) for x in jax.tree.leaves(tree))


def _bytes(shape: Sequence[int], dtype: Any) -> int:
    # The dtype of a typed random key has no itemsize; a key has 8 bytes.
    return math.prod(shape) * getattr(dtype, "itemsize", 8)


# Time of a run before it starts -------------------------------------------------------------------


class Plan(NamedTuple):
    """The predicted cost of a run."""

    step_flops: float  # matrix products of a step of all members
    memory: float  # bytes at the peak, of a device, or of the whole process on a CPU
    seconds: float  # from the command to the result, without early stopping (train.target)
    step_seconds: float
    is_measured: bool


def print_plan(phases: Sequence[Phase], settings: TrainSettings, is_measured: bool = False) -> None:
    """Prints the predicted operations, memory and time of a run."""
    setup = phases[0].setup
    seeds, rates, mesh = setup.population.seeds, setup.population.rates, setup.mesh
    print(f"members: {len(setup.population.members)} (seeds {seeds} x learning rates {rates})")
    plan = measured_plan(phases, settings) if is_measured else compiled_plan(phases, settings)
    share = f", {plan.step_flops / mesh.size:.3g} a device" * (mesh.size > 1)
    print(f"FLOPs a step: {plan.step_flops:.3g} (matrix products of all members{share})")
    where = "of this process" if jax.local_devices()[0].platform == "cpu" else "on a device"
    print(f"memory: about {byte_size(int(plan.memory))} {where} at its peak")
    how = "measured" if is_measured else "a guess; --measure runs a few steps"
    print(
        f"time: about {duration(plan.seconds)} for {settings.steps:,} steps on this machine, "
        f"{plan.step_seconds:.3g} s each ({how})"
    )


def compiled_plan(phases: Sequence[Phase], settings: TrainSettings) -> Plan:
    """Returns the plan from a compiled step and evaluation. Runs neither; the time is a guess."""
    setup, heldout = phases[0].setup, phases[-1].setup.data.heldout()
    state, batch = setup.state_shapes(), batch_shapes(setup)
    traced = jax.jit(setup.step(), donate_argnums=0).trace(state, batch)
    step_flops, step = program_flops(traced.jaxpr.jaxpr), traced.lower().compile()
    evaluate = phases[-1].setup.evaluation()
    scored = evaluate.lower(state.trainable, state.frozen, heldout.validation).compile()
    # Imports what a run imports at its end, because it takes memory.
    _checkpoint_seconds({"step": jnp.zeros(())}, 1)
    memory = max(program_bytes(step), program_bytes(scored)) + heldout_bytes(setup.data)
    if jax.local_devices()[0].platform == "cpu":
        memory = memory * min(setup.mesh.size, jax.local_device_count()) + peak_memory()
    step_seconds = step_flops / setup.mesh.size / (ASSUMED_MATMUL_SHARE * matmul_rate())
    seconds = process_seconds() + settings.steps * step_seconds
    return Plan(step_flops, memory, seconds, step_seconds, False)


class _Timer(Callback):
    """Records the FLOPs and seconds of dispatches and ends training after MEASURE_SECONDS."""

    def __init__(self) -> None:
        self.step_flops = 0.0
        self.dispatches: list[Dispatch] = []

    def on_program(self, program: Any) -> None:
        self.step_flops = program_flops(program)

    def on_dispatch(self, dispatch: Dispatch) -> None:
        self.dispatches.append(dispatch)

    def next_step(self, step: int) -> int:
        # The first dispatch, which compiles, is one step: no step has been timed yet.
        return EVERY_DISPATCH if step else 1

    def on_step(self, state: Any, step: int) -> bool:
        spent = sum(dispatch.seconds for dispatch in self.dispatches[1:])
        return len(self.dispatches) > 2 and spent > MEASURE_SECONDS

    def step_seconds(self) -> float:
        # The second dispatch is short too: its length was chosen by the time of compiling.
        timed = self.dispatches[2:] or self.dispatches[1:] or self.dispatches
        return sum(d.seconds for d in timed) / sum(d.steps for d in timed)


def measured_plan(phases: Sequence[Phase], settings: TrainSettings) -> Plan:
    """Returns the plan from a few steps, a validation, a test, a checkpoint and a figure."""
    setup, last, timer = phases[0].setup, phases[-1].setup, _Timer()
    heldout = last.data.heldout()
    state = fit(
        setup.create(),
        setup.step(),
        setup.batch_at(heldout.fingerprints),
        steps=settings.steps,
        callbacks=[timer],
        align=settings.log_every,
    )
    evaluate, step_seconds = last.evaluation(), timer.step_seconds()
    jax.block_until_ready(evaluate(state.trainable, state.frozen, heldout.validation))
    began = time.perf_counter()
    jax.block_until_ready(evaluate(state.trainable, state.frozen, heldout.validation))
    validation_seconds = time.perf_counter() - began
    jax.block_until_ready(evaluate(state.trainable, state.frozen, heldout.test))
    last.task.baselines(jax.device_get(heldout.test))
    checkpoint_seconds = _checkpoint_seconds(state, len(last.population.members))
    seconds = process_seconds() + (settings.steps - int(state.step)) * step_seconds
    # Two validations and two checkpoints are part of the time of this process already.
    seconds += (math.ceil(settings.steps / settings.eval_every) - 2) * validation_seconds
    seconds += (CHECKPOINTS - 2) * checkpoint_seconds
    return Plan(timer.step_flops, float(peak_memory()), seconds, step_seconds, True)


def _checkpoint_seconds(state: Any, members: int) -> float:
    """Returns the seconds of the second of two saves to a temporary folder; draws a figure too."""
    with tempfile.TemporaryDirectory() as folder, Checkpoints(folder) as checkpoints:
        for step in (1, 2):
            began = time.perf_counter()
            checkpoints.save(step, state, {"rules": [], "seconds": {}})
            checkpoints.wait()
        seconds = time.perf_counter() - began
    rows = [{"step": 1, "loss": [1.0] * members}]
    rows += [{"step": 1, "validation": {"accuracy": [1.0] * members}}]
    curves.curves({"run": rows}, {"chance": 0.5}).savefig(io.BytesIO(), dpi=150)
    return seconds


def process_seconds() -> float:
    """Returns the age of this process; outside Linux, the time since this module's import."""
    try:
        fields = Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()
        began = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - began
    except (OSError, AttributeError):
        return time.perf_counter() - IMPORTED_AT


@functools.lru_cache
def matmul_rate(dtype: Any = float) -> float:
    """Returns the FLOPs per second of a large matrix product on one device."""
    n = 1024 if jax.local_devices()[0].platform == "cpu" else 8192
    x = jnp.ones((n, n), dtype)
    product = jax.jit(lambda x: x @ x)
    product(x).block_until_ready()
    return 2 * n**3 / min(timeit.repeat(lambda: product(x).block_until_ready(), number=1, repeat=3))


# Throughput of a run while it trains --------------------------------------------------------------


class Throughput(Callback):
    """Measures the speed of the dispatches of a run.

    Args:
      setup: the setup of the run.
      length: tokens per example.
    """

    def __init__(self, setup: Setup, length: int):
        self.setup = setup
        self.samples = len(setup.population.members) * setup.data.batch_size  # per step
        self.tokens = self.samples * length
        self.flops = 0.0  # of a step of the program that runs
        self.flops_without_recomputation = 0.0  # 0: not computed yet
        self.steps, self.seconds, self.waiting_seconds = 0, 0.0, 0.0
        self.is_compiling = True  # the first dispatch of a program compiles and is not counted
        self.logged_at = time.monotonic()

    def on_program(self, program: Any) -> None:
        self.flops, self.is_compiling = program_flops(program), True

    def on_dispatch(self, dispatch: Dispatch) -> None:
        if not self.is_compiling:
            self.steps += dispatch.steps
            self.seconds += dispatch.seconds
            self.waiting_seconds += dispatch.waiting_seconds
        self.is_compiling = False

    def is_due(self) -> bool:
        """Returns whether it is time for the next row."""
        return self.steps > 0 and time.monotonic() - self.logged_at >= LOG_SECONDS

    def numbers(self) -> dict[str, float]:
        """Returns the numbers of a row since the start; {} before the second dispatch."""
        self.logged_at = time.monotonic()
        if not self.steps:
            return {}
        steps_per_second, model_flops = self.steps / self.seconds, self._model_flops()
        return {
            "tokens_per_second": self.tokens * steps_per_second,
            "samples_per_second": self.samples * steps_per_second,
            "model_flops": model_flops,
            "flops_per_second": model_flops * steps_per_second,
            "share_of_matmul": self._share_of_matmul(model_flops * steps_per_second),
            "waiting_share": self.waiting_seconds / self.seconds,
        }

    def performance(self) -> dict[str, float]:
        """Returns the entry `performance` of result.json."""
        model_flops = self._model_flops()
        performance = {"peak_memory": float(peak_memory()), "model_flops": model_flops}
        if self.steps:
            step_seconds = self.seconds / self.steps
            performance["step_seconds"] = step_seconds
            performance["tokens_per_second"] = self.tokens / step_seconds
            performance["share_of_matmul"] = self._share_of_matmul(model_flops / step_seconds)
        return performance

    def _model_flops(self) -> float:
        plain = without_recomputation(self.setup)
        if plain is self.setup and self.flops:
            return self.flops
        if not self.flops_without_recomputation:
            state = plain.state_shapes()
            self.flops_without_recomputation = matmul_flops(
                plain.step(), state, batch_shapes(plain)
            )
        return self.flops_without_recomputation

    def _share_of_matmul(self, flops_per_second: float) -> float:
        rate = matmul_rate(getattr(self.setup.model.spec, "dtype", float))
        return flops_per_second / (rate * self.setup.mesh.size) if rate else math.nan
