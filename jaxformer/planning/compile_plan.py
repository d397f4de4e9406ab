"""Compiles a step for a target and reads its plan from the program.

Nothing is run or allocated on the target, which may be absent.
"""

import math
import re
import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.extend.core as jex

from jaxformer.core import sharding
from jaxformer.core.errors import UserError
from jaxformer.core.partition import Partition
from jaxformer.core.settings import DeviceSettings
from jaxformer.planning import hlo, roofline
from jaxformer.planning.cards import CARDS
from jaxformer.planning.collectives import collectives
from jaxformer.planning.operations import operations
from jaxformer.planning.plan import Plan
from jaxformer.planning.settings_to_try import options, savings
from jaxformer.planning.targets import Target, devices_of
from jaxformer.training.cost.flops import flops_by_dtype, inner_programs, used_program
from jaxformer.training.cost.memory import batch_shapes, free_host_memory
from jaxformer.training.setup import Setup

LARGEST_BUFFERS = 5
# With these options, matrix products on NVIDIA GPUs call a library. Otherwise XLA would choose
# among its own kernels by timing them on the GPU, which may be absent.
COMPILER_OPTIONS = {"cuda": {"xla_gpu_enable_triton_gemm": False, "xla_gpu_autotune_level": 0}}
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def plan_step(setup: Setup, devices: DeviceSettings, target: Target) -> Plan:
    """Compiles the training step of a setup for a target and returns its plan.

    Args:
      setup: the parts of the run; its mesh is replaced by one of the target.
      devices: the sizes of the mesh axes.
      target: the machine.
    """
    setup = on_devices(setup, devices, devices_of(target))
    step = jax.jit(setup.step(), donate_argnums=0)
    return compiled_plan(
        step,
        placed_shapes(setup),
        setup.mesh,
        target,
        options_of=lambda: options(setup),
        savings_of=lambda program, card: savings(setup, program, card),
    )


def plan_inference(setup: Setup, devices: DeviceSettings, target: Target) -> Plan:
    """Compiles the logits of a batch for a target and returns the plan.

    Args:
        setup: the parts of a run; its data define the batch size.
        devices: the sizes of the mesh axes on the target.
        target: the machine.
    """
    setup = on_devices(setup, devices, devices_of(target))
    state, batch = placed_shapes(setup)
    # Training keeps trained parameters of half precision in float32, but a loaded model does not.
    stored, _ = setup.partition.split(setup.shapes())
    trainable = jax.tree.map(lambda x, own: x.update(dtype=own.dtype), state.trainable, stored)

    def logits(trainable, frozen, inputs):
        def of_member(trainable, frozen, inputs):
            params = Partition.merge(trainable, frozen)
            return setup.model.apply({"params": params}, inputs, None)

        return jax.vmap(of_member)(trainable, frozen, inputs)

    arguments = (trainable, state.frozen, batch.inputs)
    return compiled_plan(jax.jit(logits), arguments, setup.mesh, target)


def placed_shapes(setup: Setup) -> tuple[Any, Any]:
    """Returns the shapes of the state and of a batch with their shardings on the mesh."""
    state_shapes = setup.state_shapes()
    state_shardings = sharding.state_sharding(state_shapes, setup.tx, setup.mesh)
    state = jax.tree.map(_with_sharding, state_shapes, state_shardings)
    member_axis = "members" if setup.mesh.shape["members"] > 1 else None
    batch_sharding = jax.NamedSharding(setup.mesh, jax.P(member_axis, sharding.BATCH_AXES))
    batch = jax.tree.map(lambda shape: _with_sharding(shape, batch_sharding), batch_shapes(setup))
    return state, batch


def on_devices(setup: Setup, devices: DeviceSettings, target_devices: Sequence[Any]) -> Setup:
    """Returns the setup with a mesh of other devices."""
    batch_size = setup.data.batch_size
    mesh = sharding.make_mesh(
        **vars(devices),
        batch_size=batch_size,
        population=len(setup.population.members),
        devices=target_devices,
    )
    sharding.check_batch(batch_size, mesh.shape, setup.accumulate)
    return setup._replace(mesh=mesh)


def compiled_plan(
    function: Any,
    arguments: tuple[Any, ...],
    mesh: Any,
    target: Target,
    is_calibrated: bool = True,
    options_of: Any = lambda: (),
    savings_of: Any = lambda program, card: (),
) -> Plan:
    """Compiles a jitted function for a target and returns its plan.

    Args:
      function: the jitted function.
      arguments: shapes with shardings on the mesh.
      mesh: the devices of the target.
      target: the machine.
      is_calibrated: whether the rates of a CPU are measured, which takes a second.
      options_of: returns the settings that would lower the peak.
      savings_of: returns the settings that would avoid a part of the time, from the operations of
        the program and the card.
    """
    card = CARDS.get(target.card)
    capacity = card.memory if card else (free_host_memory() or 0) // target.devices
    began = time.perf_counter()
    traced = function.trace(*arguments)
    flops = flops_by_dtype(used_program(traced.jaxpr.jaxpr))
    try:
        compiled = traced.lower().compile(COMPILER_OPTIONS.get(target.platform))
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise UserError(
                f"the compiler of {target.name} failed: {str(error).splitlines()[0][:300]}"
            ) from None
        return Plan(
            target=target.name,
            mesh=dict(mesh.shape),
            fits=False,
            capacity=capacity,
            peak=_needed_bytes(str(error)),
            flops=sum(flops.values()),
            largest=_largest_traced(traced.jaxpr.jaxpr),
            to_try=options_of(),
            compile_seconds=time.perf_counter() - began,
        )
    compile_seconds = time.perf_counter() - began
    program = hlo.parse(str(compiled.as_text()))
    memory: Any = compiled.memory_analysis()
    # Results that reuse the memory of an argument count once.
    results = memory.output_size_in_bytes - memory.alias_size_in_bytes
    in_and_out = memory.argument_size_in_bytes + results
    peak = max(memory.peak_memory_in_bytes, in_and_out + memory.temp_size_in_bytes)
    per_host = card.devices_per_host if card else 0
    exchanges, traffic = collectives(program, mesh, per_host), hlo.traffic(program)
    seconds, classes, faster = None, (), ()
    if card is None and is_calibrated:
        card = roofline.measured_cpu(target.devices)
    if card is not None:
        flops_of_device = {dtype: count / mesh.size for dtype, count in flops.items()}
        seconds = roofline.seconds(card, flops_of_device, traffic, exchanges)
        if target.platform != "cpu":
            steps = operations(program)
            classes = roofline.class_times(card, steps, seconds["links"])
            faster = savings_of(steps, card)
    fits = not capacity or peak <= capacity
    is_tight = bool(capacity) and peak > capacity / 2
    return Plan(
        target=target.name,
        mesh=dict(mesh.shape),
        fits=fits,
        capacity=capacity,
        arguments=memory.argument_size_in_bytes,
        temporary=memory.temp_size_in_bytes,
        peak=peak,
        flops=sum(flops.values()),
        traffic=traffic,
        exchanges=tuple(exchanges),
        seconds=seconds,
        largest=_largest_buffers(program),
        to_try=options_of() if is_tight else (),
        classes=classes,
        savings=faster,
        compile_seconds=compile_seconds,
    )


def _with_sharding(shape: Any, sharding: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=sharding)


def _largest_buffers(program: hlo.Program) -> tuple[tuple[int, str], ...]:
    """Returns (bytes, description) of the largest arrays that the program computes."""
    sizes: dict[str, int] = {}
    for _, instruction, _ in program.executed():
        if instruction.opcode in hlo.FREE:
            continue
        for shape in instruction.shapes:
            array = f"{shape.dtype}[{','.join(map(str, shape.sizes))}]"
            name = f"{array} {instruction.source}".strip()
            sizes[name] = max(sizes.get(name, 0), shape.bytes)
    return _largest(sizes)


def _needed_bytes(message: str) -> int:
    """Returns the bytes that a program needs, from a compiler's message on missing memory."""
    sizes = re.findall(r"([\d.]+)([KMGT]?)(?=\) exceeds| of [\d.]+[KMGT]? )", message)
    return int(max((float(number) * UNITS[unit] for number, unit in sizes), default=0))


def _largest_traced(program: jex.Jaxpr) -> tuple[tuple[int, str], ...]:
    """Returns (bytes, description) of the largest arrays of a traced step, before sharding."""
    sizes: dict[str, int] = {}
    pending = [program]
    while pending:
        for equation in pending.pop().eqns:
            pending += inner_programs(equation)
            for variable in equation.outvars:
                array: Any = variable.aval
                name = f"{array.str_short()} of all devices, {equation.primitive.name}"
                sizes[name] = math.prod(array.shape) * getattr(array.dtype, "itemsize", 8)
    return _largest(sizes)


def _largest(sizes: dict[str, int]) -> tuple[tuple[int, str], ...]:
    names = sorted(sizes, key=lambda name: -sizes[name])[:LARGEST_BUFFERS]
    return tuple((sizes[name], name) for name in names)
