"""Trains a population (learning rates x seeds), chooses the rate on validation, reports the test.

build -> init or restore -> fit, phase by phase -> evaluate -> record
"""

from collections.abc import Callable
from typing import Any

from experiments.shared import describe, plots
from jaxformer import sharding
from jaxformer.checkpoint import Checkpoints, compare, flatten_state, unflatten_state
from jaxformer.processes import agree, is_writer
from jaxformer.records import Workdir
from jaxformer.training import cost, progress
from jaxformer.training.loop import fit
from jaxformer.training.session import Session
from jaxformer.training.setup import phase_of, phases, regroup

Finish = Callable[[Workdir, dict[str, Any]], dict[str, Any]]


def run(config, workdir: Workdir, finish: Finish | None = None) -> int:
    """`finish` adds to the result, when the last checkpoint is whole and before it is written."""
    stages = phases(config)
    built = stages[0].built
    describe.print_labels(built.partition, built.shapes())
    if built.task.remark:
        print(f"note: {built.task.remark}")
    cost.check_memory(built)
    with Checkpoints(workdir / "ckpt") as checkpoints, progress.Interrupt() as interrupt:
        state, clock = built.create(), progress.Stopwatch()
        if (found := checkpoints.restore()) is not None:
            built = phase_of(found.note["rules"], stages, checkpoints.folder).built
            state = built.create()
            compare(found.arrays, flatten_state(state), f"the checkpoint of step {found.step}")
            state = sharding.place(unflatten_state(found.arrays, state), state)
            clock.add(found.note["seconds"])
            print(f"resuming from step {found.step}")
        workdir.cut(int(state.step))
        agree(0)  # nobody reads the rows before they are cut
        session = Session(config, built, workdir, checkpoints, interrupt, clock)
        for stage in stages:
            if session.finished(int(state.step)) or int(state.step) >= stage.end:
                continue
            if stage.built.partition.rules != session.built.partition.rules:
                state = regroup(state, stage.built.create())
                session.built = stage.built
                describe.print_labels(stage.built.partition, stage.built.shapes())
            state = fit(
                state,
                stage.built.step(),
                stage.built.batch_at(session.heldout.fingerprints),
                steps=stage.end,
                record=session.record,
                hooks=session.hooks(int(state.step)),
                align=config.train.log_every,
                agree=agree,
            )
            if int(state.step) < stage.end:
                break
        checkpoints.wait()
        if code := session.stopped(state):
            return code
        result = session.result(state)
    chosen = {config.name: [member["chosen"] for member in result["members"]]}
    runs = {config.name: workdir.rows()}
    if is_writer():
        plots.curves(workdir / "curves.png", runs, result["baselines"], chosen)
    if finish is not None:
        result = finish(workdir, result)
    workdir.write("result.json", result)
    agree(0)  # nobody reads the record before it is whole
    report(workdir)
    return 0


report = describe.print_result


def dry_run(config) -> None:
    """Prints what a run would train, compute, hold and take."""
    built = phases(config)[0].built
    describe.print_labels(built.partition, built.shapes())
    cost.print_cost(built, config.train.steps)
