"""Runs experiments at the papers' own settings, by a plan that is fixed first.

    python -m experiments.at_size plan    writes at_size/PLAN.json; commit it before any run
    python -m experiments.at_size draw    draws the random value of its seeds; commit that too
    python -m experiments.at_size run     makes the missing runs; the same command resumes
    python -m experiments.at_size show    prints each run with its state and its time

One run is made after the other, in the order of the plan and at the lowest priority. Each is
recorded beside the plan as it ends. A run that is killed continues from its last checkpoint, which
is a few minutes old at most. Some runs depend on what others found: they are made once it is known.
A second command on the same folder takes the runs that the first one does not have.

Run from a clone at a fixed commit: each record names the commit of its code.
"""

import math
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from experiments.at_size import plan, questions, runs
from experiments.cli import flags
from experiments.schedule import launch
from experiments.schedule.devices import SINGLE_THREAD, Slot
from experiments.schedule.jobs import Job, Outcome
from experiments.schedule.running import remaining_seconds, run_all
from jaxformer.core.errors import check_choice, unknown
from jaxformer.core.text_format import duration
from jaxformer.runtime.command_line import Parser, command, seconds

VERBS = ("plan", "draw", "run", "show")
NICENESS = 19  # runs give way to everything else on this machine


@command
def main(argv: Sequence[str]) -> int:
    parser = Parser(__doc__)
    add = parser.add_argument
    add("verb", metavar="VERB", help="plan, draw, run or show")
    add(
        "--plan",
        type=Path,
        default=flags.WORKSPACE / "at_size/PLAN.json",
        metavar="FILE",
        help="the plan; its records are beside it (default: %(default)s)",
    )
    add("--name", default="at-size-1", help="name of a new plan (default: %(default)s)")
    add("--only", default="", metavar="RUN", help="runs whose name begins with this")
    add(
        "--core",
        type=int,
        metavar="N",
        help="the processor core of the runs, as one thread (default: all cores)",
    )
    add(
        "--budget",
        type=seconds,
        default=math.inf,
        metavar="TIME",
        help="90s, 30m, 2h: stop after this time (default: no limit)",
    )
    add(
        "--runs",
        type=Path,
        default=flags.WORKSPACE / "runs/at_size",
        metavar="DIR",
        help="folder of the runs and their checkpoints (default: %(default)s)",
    )
    add(
        "--records",
        type=Path,
        metavar="DIR",
        help="folder of the records (default: `records` beside the plan)",
    )
    args = parser.parse_args(argv)
    check_choice("verb", args.verb, VERBS)
    args.records = args.records or args.plan.parent / "records"
    if args.verb == "plan":
        return make_plan(args)
    if args.verb == "draw":
        print(f"drew {plan.draw_value(args.plan)}; commit {args.plan.with_name(plan.VALUE)}")
        return 0
    planned = plan.read(args.plan)
    plan.check(planned)
    names = [name for name in planned.runs if name.startswith(args.only)]
    if not names:
        raise unknown("run of the plan", args.only, planned.runs)
    return make_runs(args, planned, names) if args.verb == "run" else show(args, planned, names)


def make_plan(args) -> int:
    """Writes the plan, and prints what it costs."""
    planned = plan.make(args.name, questions.all_runs(), questions.experiments())
    plan.write(planned, args.plan)
    print(f"wrote {args.plan}: {len(planned.runs)} runs")
    print(f"hash {planned.hash}")
    return 0


def make_runs(args, planned: plan.SizePlan, names: Sequence[str]) -> int:
    """Makes the runs that are due, one after the other, until none is left that can be made."""
    os.nice(NICENESS)
    slot = Slot()
    if args.core is not None:
        slot = Slot(f"core {args.core}", SINGLE_THREAD, (args.core,))
    ends = time.monotonic() + args.budget
    failed: set[str] = set()
    while True:
        # What is due can change with every record, so it is asked again after each run.
        state = runs.state_of(planned, args.records)
        due = [name for name in names if state.of_run[name] == runs.DUE and name not in failed]
        jobs = {name: runs.job_of(planned, name, state.rates, args.runs) for name in due}
        free = {name: job for name, job in jobs.items() if not job.is_locked()}
        if not free:
            return _say_what_is_left(jobs, failed)
        name = next(iter(free))
        left = ends - time.monotonic()
        if left <= 0:
            print(f"the budget is used up; {len(due)} runs are due. The same command resumes.")
            return 0
        code = make_run(free[name], args.records, name, slot, left)
        if code > 128:
            return code
        is_done = runs.state_of(planned, args.records).of_run[name] != runs.DUE
        if code and not is_done:
            failed.add(name)


def make_run(job: Job, records: Path, name: str, slot: Slot, budget: float) -> int:
    """Makes or continues one run and records it; returns the exit code of `run_all`."""
    if job.is_finished():  # it was killed between its end and its record
        print(f"{name}: recorded as {runs.write_record(job, records, name)}", flush=True)
        return 0

    def record(outcome: Outcome) -> str:
        file = runs.write_record(outcome.job, records, name)
        return f"{name}: {duration(outcome.seconds)}, recorded as {file}"

    # A long run starts although it does not fit into the budget: it saves and stops at the end.
    always_fits = job._replace(seconds=0.0)
    print(f"{name}: about {duration(remaining_seconds(job))} on one core", flush=True)

    code = run_all([always_fits], [slot], budget, record)
    message = job.last_message(code) if code == 1 else ""
    if message.startswith(runs.DIVERGED_MESSAGE):
        runs.write_note(job, records, name, message)
        print(f"{name}: all seeds diverged; noted, and not made again", flush=True)
    return code


def _say_what_is_left(locked: dict[str, Job], failed: set[str]) -> int:
    if locked.keys() - failed:
        print(f"all other due runs are being made by another command: {', '.join(locked)}")
    elif not failed:
        print("all due runs are recorded: `python -m experiments.at_size show`.")
    for name in sorted(failed):
        print(f"failed: {name}")
    return 1 if failed else 0


def show(args, planned: plan.SizePlan, names: Sequence[str]) -> int:
    """Prints each run with its state; of one that is under way also its progress."""
    state = runs.state_of(planned, args.records)
    hours = 0.0
    for name in names:
        text = state.of_run[name]
        estimate = planned.runs[name].seconds
        if text == runs.DUE and planned.value:
            job = runs.job_of(planned, name, state.rates, args.runs)
            estimate = remaining_seconds(job)
            if job.is_started() and (progress := job.progress()):
                text = f"at step {progress[0]:,} of {progress[1]:,}"
        if text not in (runs.RECORDED, runs.NOT_NEEDED, runs.ALL_DIVERGED):
            text += f", about {estimate / 3600:.1f} core hours"
            hours += estimate / 3600
        print(f"{name}: {text}")
    print(f"left: at most {hours:.1f} core hours")
    return 0


if __name__ == "__main__":
    launch.use_cpu_only()
    sys.exit(main(sys.argv[1:]))
