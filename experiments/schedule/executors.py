"""Where the runs go that a command starts: processes of this machine, or jobs of a cluster.

--executor=slurm        arrays of Slurm; the same command watches them, and goes on with them
--slurm=FILE.toml       time, partition, GPUs and the rest of each job (configs/slurm/)
--status                how far each run is, and nothing else; starts nothing
"""

import dataclasses
import functools
import shutil
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.markup import escape
from rich.table import Table

from experiments.cli import describe
from experiments.schedule import devices
from experiments.schedule.devices import Place
from experiments.schedule.jobs import Job
from experiments.schedule.slurm import launcher, options
from experiments.schedule.slurm.queue import Queue, State
from jaxformer.core.errors import UserError, check_choice

EXECUTORS = ("local", "slurm")


class Executor(NamedTuple):
    """Places of runs, and what starts them there; None is `launch.Launcher`."""

    places: Sequence[Place]
    launch: Callable[..., Any] | None = None


def add_flags(parser: ArgumentParser) -> None:
    devices.add_flags(parser)
    parser.add_argument("--executor", default="local")
    parser.add_argument("--slurm", default="")
    parser.add_argument("--status", action="store_true")


def asked_for(asked: Namespace, root: Path) -> Executor:
    """What the flags ask for; a cluster is not asked before something starts."""
    check_choice("executor", asked.executor, EXECUTORS)
    if asked.executor == "local":
        if asked.slurm:
            raise UserError("--slurm=FILE needs --executor=slurm.")
        return Executor(devices.asked_places(asked))
    wanted = options.read(asked.slurm)
    if asked.processes:
        wanted = dataclasses.replace(wanted, at_once=asked.processes)
    if asked.devices_per_run:
        wanted = dataclasses.replace(wanted, gpus=asked.devices_per_run)
    places = [Place("node")] * min(wanted.at_once, devices.MOST)
    return Executor(places, functools.partial(launcher.SlurmLauncher, wanted, root))


def show_status(jobs: Sequence[Job], root: Path) -> None:
    """A row for each run that has not finished, and how many there are of each kind."""
    queue = Queue(root)
    ids = queue.ids()
    states = queue.states() if ids and shutil.which("squeue") else {}
    table = Table("run", "state", "step", "where", box=None, pad_edge=False)
    counted: dict[str, int] = {}
    for job in jobs:
        name = ids.get(job.workdir.name, "")
        state, where = status(job, name, states.get(name))
        counted[state] = counted.get(state, 0) + 1
        steps = job.steps()
        if state != "finished":
            far = f"{steps[0]} of {steps[1]}" if steps else "-"
            table.add_row(escape(job.name), state, far, escape(where))
    if table.row_count:
        describe.show(table, width=140)
    print(f"{len(jobs)} runs: {', '.join(f'{n} {state}' for state, n in counted.items())}")


def status(job: Job, name: str, state: State | None) -> tuple[str, str]:
    """(what a run does, where or why); `name` and `state` are those of its job in a queue."""
    if job.is_finished():
        return "finished", ""
    if state is not None:
        return state.state.lower(), f"job {name}: {state.where}"
    if job.is_held():
        return "running", "in a process"
    said = job.last_words(0) if job.log().exists() else ""
    if "error: " in job.tail():
        return "failed", f"{said} ({job.log()})"
    return ("stopped" if job.is_started() else "waiting"), f"last job {name}" * bool(name)
