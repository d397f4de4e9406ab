"""One training run, whoever asks for it: restore, train phase by phase, save, stop, report.

    trained = train_phases(phases, settings, workdir)
    trained.ended()              0: finished; else the exit code of a run that goes on later
    trained.result()             what it found

A run on the same folder goes on from its last checkpoint and ends with the same bits.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import jax

from jaxformer.core import sharding
from jaxformer.core.partition import Partition
from jaxformer.core.settings import TrainSettings
from jaxformer.io.checkpoint_writer import (
    Checkpoints,
    check_same_arrays,
    flatten_state,
    unflatten_state,
)
from jaxformer.io.run_folder import Workdir
from jaxformer.runtime.processes import barrier
from jaxformer.runtime.progress import Interrupt, Progress, Stopwatch
from jaxformer.training import cost
from jaxformer.training.loop import Hook, fit
from jaxformer.training.result import Result
from jaxformer.training.session import Session
from jaxformer.training.setup import Phase, Setup, phase_of, regroup, trained_share
from jaxformer.training.step import TrainState


class Trained(NamedTuple):
    """What is left when the steps are done, or when the run was stopped."""

    state: TrainState
    session: Session
    phases: Sequence[Phase]

    @property
    def params(self) -> Any:
        """The parameters of all members, along a leading axis."""
        return Partition.merge(self.state.trainable, self.state.frozen)

    def ended(self) -> int:
        """0 if the run is finished, else the exit code of one that goes on later."""
        return self.session.ended(self.state)

    def result(self) -> Result:
        share = trained_share(self.phases, int(self.state.step))
        return self.session.result(self.state, share)


def train_phases(
    phases: Sequence[Phase],
    settings: TrainSettings,
    workdir: Workdir,
    *,
    hooks: Callable[[Session], Sequence[Hook]] = lambda session: (),
    announce: Callable[[Setup], None] | None = None,
    progress: bool = True,
) -> Trained:
    """Trains until the last phase ends, the target is reached or somebody stops it.

    `hooks(session)` are called beside the session's own, before them; those with at_start also
    before the first step. `announce` is told what is trained, at the start and when it changes.
    The last phase's task, model and data say what is scored. Without a folder nothing is saved.
    """
    last, setup = phases[-1].setup, phases[0].setup
    memory = cost.check_memory(phases)
    if announce:
        announce(setup)
        print(memory)
        if idle := jax.device_count() - setup.mesh.size:
            print(f"note: {idle} of {jax.device_count()} devices have nothing to do (devices.*).")
    with ExitStack() as stack:
        folder = workdir.path and workdir / "ckpt"
        checkpoints = stack.enter_context(Checkpoints(folder)) if folder else None
        interrupt = stack.enter_context(Interrupt())
        state, stopwatch = setup.create(), Stopwatch()
        found = checkpoints and checkpoints.restore(
            check_note=lambda note: workdir.rows_difference(note.get("rows"))
        )
        if found is not None:
            setup = phase_of(found.note["rules"], phases, folder).setup
            state = setup.create()
            check_same_arrays(
                found.arrays, flatten_state(state), f"the checkpoint of step {found.step}"
            )
            state = sharding.place(unflatten_state(found.arrays, state), state)
            stopwatch.before = found.note["seconds"]
            print(f"resuming from step {found.step}")
        workdir.resume_rows(found and found.note.get("rows"), int(state.step))
        barrier()  # no process reads the rows before process 0 has cut them to the checkpoint
        shown = Progress(settings.steps, int(state.step), progress)
        mine = last._replace(partition=setup.partition, tx=setup.tx)
        session = Session(mine, settings, workdir, checkpoints, stopwatch, interrupt, shown)
        more = [*hooks(session), *session.looks()]
        for hook in more:
            if hook.at_start and not int(state.step):
                hook.call(state, 0)
        for phase in phases:
            if session.is_finished(int(state.step)) or int(state.step) >= phase.end:
                continue
            if phase.setup.partition.rules != session.setup.partition.rules:
                state = regroup(state, phase.setup.create())
                session.setup = last._replace(partition=phase.setup.partition, tx=phase.setup.tx)
                if announce:
                    announce(phase.setup)
            state = fit(
                state,
                phase.setup.step(),
                phase.setup.batch_at(session.heldout.fingerprints),
                steps=phase.end,
                record=session.record,
                hooks=[*more, *session.hooks()],
                align=settings.log_every,
                timed=session.timed,
                traced=session.speed.trace,
            )
            if int(state.step) < phase.end:
                break
        session.close(state)
        return Trained(state, session, phases)
