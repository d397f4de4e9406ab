"""A training run: restore, train phase by phase, save, stop and report.

    trained = train_phases(phases, settings, workdir)
    trained.exit_code()          0 if the run is finished
    trained.result()             its scores

A run in a folder with a checkpoint resumes from it. Its result is bitwise equal to that of a run
without interruption.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

import jax

from jaxformer.core import identity, sharding
from jaxformer.core.errors import UserError
from jaxformer.core.partition import Partition
from jaxformer.core.settings import TrainSettings
from jaxformer.io.checkpoint_writer import (
    Checkpoints,
    check_same_arrays,
    flatten_state,
    unflatten_state,
)
from jaxformer.io.run_folder import Workdir
from jaxformer.models.model import current_arrays
from jaxformer.models.own_model import initial_identity, is_users_code
from jaxformer.runtime.processes import barrier, on_host
from jaxformer.runtime.progress import Interrupt, Progress, Stopwatch
from jaxformer.tasks import heldout
from jaxformer.tasks.example_checks import check_answers_are_hidden
from jaxformer.tasks.heldout import Drawn
from jaxformer.training.callbacks import Callback
from jaxformer.training.cost import memory
from jaxformer.training.loop import fit
from jaxformer.training.phases import Phase, phase_of_checkpoint, repartition, trained_share
from jaxformer.training.result import Result
from jaxformer.training.session import Session
from jaxformer.training.setup import Setup
from jaxformer.training.step import TrainState


class Trained(NamedTuple):
    """A run after its last step, or after it was stopped."""

    state: TrainState
    session: Session
    phases: Sequence[Phase]

    @property
    def params(self) -> Any:
        """The parameters of all members, along a leading axis."""
        return Partition.merge(self.state.trainable, self.state.frozen)

    def exit_code(self) -> int:
        """Returns 0 if the run is finished, 1 if a callback ended it, else 128 + the signal."""
        return self.session.exit_code(self.state)

    def result(self) -> Result:
        """Returns the test scores and the settings of the run."""
        share = trained_share(self.phases, int(self.state.step))
        return self.session.result(self.state, share)


def train_phases(
    phases: Sequence[Phase],
    settings: TrainSettings,
    workdir: Workdir,
    *,
    callbacks: Sequence[Callback] = (),
    announce: Callable[[Setup], None] | None = None,
    progress: bool = True,
    drawn: Drawn | None = None,
) -> Trained:
    """Trains until the last phase ends, the target is reached or a signal stops the run.

    Args:
      phases: the setups in order, each with the step at which it ends. The task, model and data of
        the last phase are scored.
      settings: length and intervals of the run.
      workdir: the folder of the run. Without a path nothing is saved.
      callbacks: called before the session's callbacks (`jaxformer.training.callbacks`).
      announce: called with the setup of the first phase and of each phase with other rules.
      progress: show a progress line.
      drawn: the held-out sets of the last phase, if the caller has drawn them.
    """
    last, setup = phases[-1].setup, phases[0].setup
    drawn = drawn or heldout.draw(last.task, last.data)
    check_answers_are_hidden(last.task, drawn.sets.test, last.model.spec.causal)
    _check_same_code(workdir, drawn)
    memory_line = memory.check_memory(phases)
    if announce:
        announce(setup)
        print(memory_line)
        if idle := jax.device_count() - setup.mesh.size:
            print(
                f"note: {idle} of {jax.device_count()} devices are not used; the fields of "
                "config.devices set the sizes of the mesh."
            )
    with ExitStack() as stack:
        folder = workdir / "ckpt" if workdir.path else None
        checkpoints = stack.enter_context(Checkpoints(folder)) if folder else None
        interrupt = stack.enter_context(Interrupt())
        state = setup.create()
        drawn = drawn.identified_by(_initial_identity(setup, state))
        _check_same_code(workdir, drawn)
        stopwatch = Stopwatch()
        saved = checkpoints and checkpoints.restore(
            check_note=lambda note: (
                _foreign(workdir, drawn, note) or workdir.rows_difference(note.get("rows"))
            )
        )
        _note_code(workdir, drawn, is_resumed=saved is not None)
        if saved is not None:
            setup, state = _restored(saved, phases, folder)
            stopwatch.before = saved.note["seconds"]
            print(f"resuming from step {saved.step}")
        workdir.resume_rows(saved and saved.note.get("rows"), int(state.step))
        barrier()  # no process reads the rows before process 0 has cut them to the checkpoint
        session = Session(
            setup=last._replace(partition=setup.partition, tx=setup.tx),
            settings=settings,
            workdir=workdir,
            checkpoints=checkpoints,
            stopwatch=stopwatch,
            interrupt=interrupt,
            progress=Progress(settings.steps, int(state.step), progress),
            drawn=drawn,
        )
        all_callbacks = [*callbacks, *session.callbacks()]
        for callback in all_callbacks:
            callback.on_start(session)
            if callback.at_start and not int(state.step):
                callback.on_step(state, 0)
        if not settings.steps and saved is None:  # no step of an untrained network saves it
            session.save(state, 0)
        for phase in phases:
            if session.is_finished(int(state.step)) or int(state.step) >= phase.end:
                continue
            if phase.setup.partition.rules != session.setup.partition.rules:
                state = repartition(state, phase.setup.create())
                session.setup = last._replace(partition=phase.setup.partition, tx=phase.setup.tx)
                if announce:
                    announce(phase.setup)
            state = fit(
                state,
                phase.setup.step(),
                phase.setup.batch_at(session.heldout.fingerprints),
                steps=phase.end,
                callbacks=all_callbacks,
                align=settings.log_every,
                donate=saved is None,  # restored arrays may share the memory of their file
            )
            if int(state.step) < phase.end:
                break
        session.close(state)
        return Trained(state, session, phases)


def _check_same_code(workdir: Workdir, drawn: Drawn) -> None:
    """Refuses the folder of a run whose task or model did something else.

    The config names the class of a task and its fields, and both stay the same when its code, or a
    function that it calls, is edited.
    """
    before = workdir.read("config.json").get("identity")
    if before and (why := identity.difference(before, drawn.identity)):
        raise UserError(
            f"the workdir {workdir.path} has a run of another task or model ({why}): its code "
            "was edited. Take the edit back, or give another workdir."
        )


def _initial_identity(setup: Setup, state: TrainState) -> dict[str, float]:
    """The identity of the initial parameters of the first member."""
    if not is_users_code(setup.model):  # then nothing is copied to the host
        return {}
    population = Partition.merge(state.trainable, state.frozen)
    params = jax.tree.map(lambda leaf: on_host(leaf)[0], population)
    return initial_identity(setup.model, params)


def _note_code(workdir: Workdir, drawn: Drawn, is_resumed: bool) -> None:
    """Notes what the task and the model do, unless the folder says so.

    A run of an older version has noted less, or nothing. That is said once.
    """
    stored = workdir.read("config.json")
    before = stored.get("identity", {})
    missing = identity.not_compared(before, drawn.identity)
    if before and not missing:
        return
    if is_resumed:
        what = "its task did"
        if before:
            names = {
                "initial": "initial parameters",
                "training": "training examples",
                "weighted": "weighted baselines",
            }
            what = " and ".join(sorted(names.get(kind, kind) for kind in missing)) + " it had"
        print(
            f"warning: {workdir.path} does not say what {what}, because an older version wrote it: "
            "an edit since then would not be noticed.",
            file=sys.stderr,
        )
    now = identity.merged(before, drawn.identity)
    workdir.write("config.json", {**stored, "identity": now})


def _foreign(workdir: Workdir, drawn: Drawn, note: Mapping[str, Any]) -> str:
    """Why a checkpoint is not one of this run, or ""; an older version did not note its run."""
    is_known = note.get("run") in (None, workdir.run_hash(drawn.identity["examples"]))
    return "" if is_known else "it is a checkpoint of another run"


def _restored(saved: Any, phases: Sequence[Phase], folder: Any) -> tuple[Setup, TrainState]:
    """Returns the setup of the phase that wrote a checkpoint, and the state in it."""
    setup = phase_of_checkpoint(saved.note["rules"], phases, folder).setup
    state = setup.create()
    arrays = current_arrays(setup.model, saved.arrays)
    check_same_arrays(arrays, flatten_state(state), f"the checkpoint of step {saved.step}")
    return setup, sharding.put_like(unflatten_state(arrays, state), state)
