"""What a run would take, in words: operations, memory and time, counted or measured.

Counted, one training step and one evaluation are compiled and nothing is run; the time is then a
guess. Measured, a few steps and one validation are run as the run itself would, and what they took
is multiplied.
"""

import io
import math
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from jaxformer.core.settings import TrainSettings
from jaxformer.core.text_format import duration
from jaxformer.io.checkpoint_writer import Checkpoints
from jaxformer.training import cost, curves, flops
from jaxformer.training.loop import Hook, fit
from jaxformer.training.session import evaluation
from jaxformer.training.setup import Phase

GUESSED_SHARE = 0.4  # of the rate of a large product, where nothing was measured
MEASURE_SECONDS = 2.0  # about as long are steps timed
SAVES = 10  # checkpoints of a run
IMPORTED = time.perf_counter()


class Plan(NamedTuple):
    """Numbers of a run that has not begun."""

    step_flops: float  # matrix products of a step of all members
    memory: float  # bytes at the peak, of a device; of the whole process on a CPU
    seconds: float  # from the command to the result, if no target ends it before
    step_seconds: float
    measured: bool


def print_plan(phases: Sequence[Phase], settings: TrainSettings, measured: bool = False) -> None:
    """Operations, memory and time of a run."""
    setup = phases[0].setup
    seeds, rates, mesh = setup.members.seeds, setup.members.rates, setup.mesh
    print(f"members: {len(setup.members.members)} (seeds {seeds} x learning rates {rates})")
    plan = measure(phases, settings) if measured else count(phases, settings)
    share = f", {plan.step_flops / mesh.size:.3g} a device" * (mesh.size > 1)
    print(f"FLOPs a step: {plan.step_flops:.3g} (matrix products of all members{share})")
    whose = "of this process" if jax.local_devices()[0].platform == "cpu" else "on a device"
    print(f"memory: about {cost.size(int(plan.memory))} {whose} at its peak")
    how = "measured" if measured else "a guess; --measure runs a few steps"
    print(
        f"time: about {duration(plan.seconds)} for {settings.steps:,} steps on this machine, "
        f"{plan.step_seconds:.3g} s each ({how})"
    )


def count(phases: Sequence[Phase], settings: TrainSettings) -> Plan:
    """From compiled programs that are not run."""
    setup, heldout = phases[0].setup, phases[-1].setup.data.heldout()
    state, batch = jax.eval_shape(setup.create), cost.batch_shapes(setup)
    traced = jax.jit(setup.step(), donate_argnums=0).trace(state, batch)
    operations, step = flops.of(traced.jaxpr.jaxpr), traced.lower().compile()
    evaluate = evaluation(phases[-1].setup)
    scored = evaluate.lower(state.trainable, state.frozen, heldout.validation).compile()
    _save_and_draw({"step": jax.numpy.zeros(())}, 1)  # what a run imports at its end takes memory
    memory = max(cost.program_bytes(step), cost.program_bytes(scored)) + cost.heldout_bytes(
        setup.data
    )
    if jax.local_devices()[0].platform == "cpu":
        memory = memory * min(setup.mesh.size, jax.local_device_count()) + cost.peak_memory()
    per_step = operations / setup.mesh.size / (GUESSED_SHARE * cost.matmul_rate())
    seconds = lived() + settings.steps * per_step
    return Plan(operations, memory, seconds, per_step, False)


def measure(phases: Sequence[Phase], settings: TrainSettings) -> Plan:
    """From a few steps, a validation and a test as the run itself would compute them."""
    setup, last, seen, timed = phases[0].setup, phases[-1].setup, [], []
    state, heldout = setup.create(), last.data.heldout()

    def is_enough(state: Any, step: int) -> bool:
        return len(timed) > 2 and sum(seconds for _, seconds in timed[1:]) > MEASURE_SECONDS

    # The first dispatch, which compiles, is a single step: nobody knows yet how long one takes.
    first = Hook(lambda step: settings.steps if step else 1, lambda state, step: None)
    state = fit(
        state,
        setup.step(),
        setup.batch_at(heldout.fingerprints),
        steps=settings.steps,
        record=lambda first, metrics: None,
        hooks=[first, Hook(0, is_enough)],
        align=settings.log_every,
        timed=lambda steps, seconds, waited: timed.append((steps, seconds)),
        traced=lambda program: seen.append(flops.of(program)),
    )
    # The second dispatch was short too: its length was chosen by the time of compiling.
    counted = timed[2:] or timed[1:] or timed
    per_step = sum(seconds for _, seconds in counted) / sum(steps for steps, _ in counted)
    evaluate = evaluation(last)
    jax.block_until_ready(evaluate(state.trainable, state.frozen, heldout.validation))
    again = time.perf_counter()
    jax.block_until_ready(evaluate(state.trainable, state.frozen, heldout.validation))
    validation = time.perf_counter() - again
    jax.block_until_ready(evaluate(state.trainable, state.frozen, heldout.test))
    last.task.baselines(jax.device_get(heldout.test))
    saving = _save_and_draw(state, len(last.members.members))
    left = settings.steps - sum(steps for steps, _ in timed)
    validations = math.ceil(settings.steps / settings.eval_every) - 2
    seconds = lived() + left * per_step + validations * validation + (SAVES - 2) * saving
    return Plan(seen[0], float(cost.peak_memory()), seconds, per_step, True)


def _save_and_draw(state: Any, members: int) -> float:
    """Seconds of the second of two saves to a folder that goes; also draws a picture."""
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


def lived() -> float:
    """Seconds since this process began; since this module was imported where nobody says."""
    try:
        fields = Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()
        began = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return time.clock_gettime(time.CLOCK_BOOTTIME) - began
    except (OSError, AttributeError):
        return time.perf_counter() - IMPORTED
