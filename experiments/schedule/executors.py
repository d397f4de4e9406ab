"""Runs jobs on this machine or a Slurm cluster, or prints their status or plan, as flags demand."""

import dataclasses
import functools
import math
import shutil
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.markup import escape
from rich.table import Table

from experiments.cli import describe
from experiments.schedule import devices, show_plan, show_runs
from experiments.schedule.devices import Slot
from experiments.schedule.executor import Executor
from experiments.schedule.jobs import Job, Outcome
from experiments.schedule.running import check_budget, parallel_seconds, run_all
from experiments.schedule.slurm import options
from experiments.schedule.slurm.executor import SlurmExecutor
from experiments.schedule.slurm.queue import Queue, State
from jaxformer.core.errors import UserError, check_choice
from jaxformer.core.text_format import duration

EXECUTORS = ("local", "slurm")


class ExecutorChoice(NamedTuple):
    """Slots, and a function of (slots, deadline) that returns an executor.

    `make_executor` is None for the local executor.
    """

    slots: Sequence[Slot]
    make_executor: Callable[..., Executor] | None = None


def add_flags(parser: ArgumentParser) -> None:
    """Adds the flags of slots and executors."""
    devices.add_flags(parser)
    parser.add_argument(
        "--executor",
        default="local",
        help="local: processes of this machine; slurm: jobs of Slurm. The same command finds the "
        "jobs again",
    )
    parser.add_argument(
        "--slurm",
        default="",
        metavar="FILE.toml",
        help="time limit, partition and devices of the jobs (configs/slurm/example.toml)",
    )
    parser.add_argument(
        "--status", action="store_true", help="print the progress of each run; start nothing"
    )


def executor_from_flags(args: Namespace, root: Path) -> ExecutorChoice:
    """Returns the executor for the flags. It does not contact a cluster yet."""
    check_choice("executor", args.executor, EXECUTORS)
    if args.executor == "local":
        if args.slurm:
            raise UserError("--slurm=FILE needs --executor=slurm.")
        return ExecutorChoice(devices.slots_from_flags(args))
    slurm_options = options.read(args.slurm)
    if args.processes:
        slurm_options = dataclasses.replace(slurm_options, at_once=args.processes)
    if args.devices_per_run:
        slurm_options = dataclasses.replace(slurm_options, gpus=args.devices_per_run)
    slots = [Slot("node")] * min(slurm_options.at_once, devices.MAX_PROCESSES)
    return ExecutorChoice(slots, functools.partial(SlurmExecutor, slurm_options, root))


def run_jobs(
    args: Namespace,
    jobs: Sequence[Job],
    root: Path,
    title: str,
    describe_success: Callable[[Outcome], str] | None = None,
    name: Callable[[Job], str] = lambda job: job.name,
) -> int | None:
    """Runs jobs in order as the flags demand, or prints their status or plan instead.

    Args:
        args: the flags of `add_flags`, --budget in seconds, and --dry-run.
        jobs: at least one job.
        root: the folder of the runs.
        title: the beginning of the line that counts the runs.
        describe_success: a function that returns the line to print for a successful job.
        name: a function that returns the name of a job in the error of a small budget.

    Returns:
        The exit code, or None if nothing was run.
    """
    if args.status:
        print_status(jobs, root)
        return None
    check_budget(args.budget, jobs, name)
    slots, make_executor = executor_from_flags(args, root)
    if make_executor and not math.isinf(args.budget):
        raise UserError("--budget is the time of this machine; jobs of Slurm have --slurm's time.")
    if args.dry_run:
        show_plan.print_queue(jobs, args.budget)
        return None
    limit = "" if math.isinf(args.budget) else f"; the budget is {duration(args.budget)}"
    total = duration(parallel_seconds(jobs, len(slots)))
    print(f"{title}: {len(jobs)}, about {total}, in {root}{limit}", flush=True)
    return run_all(jobs, slots, args.budget, describe_success, make_executor)


def print_status(jobs: Sequence[Job], root: Path) -> None:
    """Prints a row for each unfinished run and the number of runs in each state."""
    queue = Queue(root)
    ids = queue.ids()
    states = queue.states() if ids and shutil.which("squeue") else {}
    table = Table("run", "state", "step", "where", box=None, pad_edge=False)
    counts: dict[str, int] = {}
    for job in jobs:
        job_id = ids.get(job.workdir.name, "")
        state, detail = job_status(job, job_id, states.get(job_id))
        counts[state] = counts.get(state, 0) + 1
        if state != "finished":
            table.add_row(escape(job.name), state, show_runs.step_text(job), escape(detail))
    if table.row_count:
        describe.show(table, width=140)
    print(f"{len(jobs)} runs: {', '.join(f'{n} {state}' for state, n in counts.items())}")


def job_status(job: Job, job_id: str, state: State | None) -> tuple[str, str]:
    """Returns (state of a run, its node or the reason for the state).

    Args:
        job: the run.
        job_id: the id of its last Slurm job, or "".
        state: the state of that Slurm job, or None if it has ended.
    """
    if job.is_finished():
        return "finished", ""
    if state is not None:
        return state.state.lower(), f"job {job_id}: {state.where}"
    if job.is_locked():
        return "running", "in a process"
    if "error: " in job.log_tail():
        error = job.last_message(0)  # 0: no signal killed the run, so the log has the error
        return "failed", f"{error} ({job.log()})"
    state_name = "stopped" if job.is_started() else "waiting"
    return state_name, f"last job {job_id}" if job_id else ""
