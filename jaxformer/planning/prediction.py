"""The operations, memory and time of a run on this machine, predicted before it starts."""

import io
import math
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxformer.core.settings import TrainSettings
from jaxformer.core.text_format import byte_size, duration
from jaxformer.io.checkpoint_writer import Checkpoints
from jaxformer.tasks.heldout import checked_sets
from jaxformer.training import curves
from jaxformer.training.callbacks import EVERY_DISPATCH, Callback, Dispatch
from jaxformer.training.cost.flops import matmul_rate, program_flops
from jaxformer.training.cost.memory import (
    batch_shapes,
    heldout_bytes,
    peak_memory,
    program_bytes,
)
from jaxformer.training.loop import fit
from jaxformer.training.phases import Phase
from jaxformer.training.session import CHECKPOINTS

ASSUMED_MATMUL_SHARE = 0.4  # speed of unmeasured steps, relative to a large matrix product
MEASURE_SECONDS = 2.0  # time spent on timed steps
IMPORTED_AT = time.perf_counter()


class Prediction(NamedTuple):
    """The predicted cost of a run."""

    step_flops: float  # matrix products of a step of all members
    memory: float  # bytes at the peak, of a device, or of the whole process on a CPU
    seconds: float  # from the command to the result, without early stopping (train.target)
    step_seconds: float
    is_measured: bool


def print_prediction(
    phases: Sequence[Phase], settings: TrainSettings, is_measured: bool = False
) -> None:
    """Prints the predicted operations, memory and time of a run.

    Args:
        phases: the phases of the run.
        settings: its steps and intervals.
        is_measured: whether some steps run and are timed; otherwise the step is only compiled.
    """
    setup = phases[0].setup
    seeds, rates, mesh = setup.population.seeds, setup.population.rates, setup.mesh
    print(f"members: {len(setup.population.members)} (seeds {seeds} x learning rates {rates})")
    predict = measured_prediction if is_measured else compiled_prediction
    prediction = predict(phases, settings)
    of_device = f", {prediction.step_flops / mesh.size:.3g} a device" if mesh.size > 1 else ""
    print(f"FLOPs a step: {prediction.step_flops:.3g} (matrix products of all members{of_device})")
    where = "of this process" if jax.local_devices()[0].platform == "cpu" else "on a device"
    print(f"memory: about {byte_size(int(prediction.memory))} {where} at its peak")
    how = "measured" if is_measured else "a guess; --measure runs a few steps"
    print(
        f"time: about {duration(prediction.seconds)} for {settings.steps:,} steps on this machine, "
        f"{prediction.step_seconds:.3g} s each ({how})"
    )


def compiled_prediction(phases: Sequence[Phase], settings: TrainSettings) -> Prediction:
    """Returns the prediction from a compiled step and evaluation, which do not run.

    The time is a guess from the rate of a large matrix product.
    """
    setup, last = phases[0].setup, phases[-1].setup
    heldout, _ = checked_sets(last.task, last.data)
    state, batch = setup.state_shapes(), batch_shapes(setup)
    traced = jax.jit(setup.step(), donate_argnums=0).trace(state, batch)
    step_flops = program_flops(traced.jaxpr.jaxpr)
    step = traced.lower().compile()
    evaluate = last.evaluation()
    evaluation = evaluate.lower(state.trainable, state.frozen, heldout.validation).compile()
    # Saving and drawing import modules that take memory. A run imports them at its end.
    _checkpoint_seconds({"step": jnp.zeros(())}, 1)
    memory = max(program_bytes(step), program_bytes(evaluation)) + heldout_bytes(setup.data)
    if jax.local_devices()[0].platform == "cpu":
        memory = memory * min(setup.mesh.size, jax.local_device_count()) + peak_memory()
    step_seconds = step_flops / setup.mesh.size / (ASSUMED_MATMUL_SHARE * matmul_rate())
    seconds = process_seconds() + settings.steps * step_seconds
    return Prediction(step_flops, memory, seconds, step_seconds, False)


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
        # The second dispatch is short too: the time of the first, which chose its length, includes
        # compiling.
        timed = self.dispatches[2:] or self.dispatches[1:] or self.dispatches
        return sum(d.seconds for d in timed) / sum(d.steps for d in timed)


def measured_prediction(phases: Sequence[Phase], settings: TrainSettings) -> Prediction:
    """Returns the prediction from running and timing the parts of a run.

    The parts are a few steps, a validation, a test, a checkpoint and a figure.
    """
    setup, last, timer = phases[0].setup, phases[-1].setup, _Timer()
    heldout, _ = checked_sets(last.task, last.data)
    state = fit(
        setup.create(),
        setup.step(),
        setup.batch_at(heldout.fingerprints),
        steps=settings.steps,
        callbacks=[timer],
        align=settings.log_every,
    )
    step_seconds = timer.step_seconds()
    evaluate = last.evaluation()
    jax.block_until_ready(evaluate(state.trainable, state.frozen, heldout.validation))
    began = time.perf_counter()
    jax.block_until_ready(evaluate(state.trainable, state.frozen, heldout.validation))
    validation_seconds = time.perf_counter() - began
    jax.block_until_ready(evaluate(state.trainable, state.frozen, heldout.test))
    last.task.baselines(jax.device_get(heldout.test))
    checkpoint_seconds = _checkpoint_seconds(state, len(last.population.members))
    seconds = process_seconds() + (settings.steps - int(state.step)) * step_seconds
    # The time of this process already includes two validations and two checkpoints.
    seconds += (math.ceil(settings.steps / settings.eval_every) - 2) * validation_seconds
    seconds += (CHECKPOINTS - 2) * checkpoint_seconds
    return Prediction(timer.step_flops, float(peak_memory()), seconds, step_seconds, True)


def _checkpoint_seconds(state: Any, members: int) -> float:
    """Returns the seconds of the second of two saves to a temporary folder.

    It also draws a figure, because a run does so at its end, and drawing takes memory.
    """
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
        # The start time of the process is field 22 of proc(5), and `fields` begins with field 3.
        began = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - began
    except (OSError, AttributeError):
        return time.perf_counter() - IMPORTED_AT
