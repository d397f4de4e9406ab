"""The runs of a plan: which of them wait for others, their jobs, and their records.

A record has two companions: its curves of training and, for recall, the arrays of its figures. A
run of which all seeds diverged ends without a result; a note takes the place of its record, so that
it is not made again.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from experiments.at_size import due
from experiments.at_size.plan import SizePlan
from experiments.confirmation import runs as confirmation
from experiments.ledger import curves
from experiments.ledger.record import Record
from experiments.ledger.write import companion, table
from experiments.schedule.jobs import Job
from experiments.schedule.recording import current_commit
from jaxformer.io.atomic_files import write_atomically, write_json
from jaxformer.io.run_folder import Workdir

COMMAND = "at_size"  # of the messages about a record
RECORDED, ALL_DIVERGED, DUE, WAITS, NOT_NEEDED = (
    "recorded",
    "all seeds diverged",
    "due",
    "waits for other runs",
    "not needed",
)
# The beginning of a run's last message if all its members diverged.
DIVERGED_MESSAGE = "the loss was not finite at step"


class State(NamedTuple):
    """The state of all runs of a plan, as their records tell it."""

    of_run: Mapping[str, str]  # one of the states above
    records: Mapping[str, Record]
    rates: Mapping[str, float]  # of runs that take the best rate of earlier ones


def file_of(folder: Path, name: str) -> Path:
    """The record of a run: its name with dots, since all records lie in one folder."""
    return confirmation.record_file(folder, name.replace("/", "."))


def note_of(folder: Path, name: str) -> Path:
    """The note that all seeds of a run diverged."""
    return companion(file_of(folder, name), ".diverged.json")


def state_of(plan: SizePlan, folder: Path) -> State:
    """Goes through the runs in order: a run depends only on runs that stand before it."""
    of_run: dict[str, str] = {}
    records: dict[str, Record] = {}
    rates: dict[str, float] = {}
    for name in plan.runs:
        needed = (*plan.conditions[name].runs, *plan.rate_from.get(name, ()))
        open_runs = [n for n in needed if of_run[n] in (DUE, WAITS)]
        if open_runs:
            of_run[name] = WAITS
            continue
        if not _is_due(plan, name, of_run, records):
            of_run[name] = NOT_NEEDED
            continue
        if name in plan.rate_from:
            found = [records[n] for n in plan.rate_from[name] if n in records]
            if not found:  # each of them diverged, so there is no rate to take
                of_run[name] = NOT_NEEDED
                continue
            rates[name] = due.best_rate(found)
        if note_of(folder, name).exists():
            of_run[name] = ALL_DIVERGED
        elif file_of(folder, name).exists():
            planned = with_rate(plan, name, rates)
            records[name] = confirmation.read_record(planned, name, file_of(folder, name), COMMAND)
            of_run[name] = RECORDED
        else:
            of_run[name] = DUE
    return State(of_run, records, rates)


def _is_due(
    plan: SizePlan, name: str, of_run: Mapping[str, str], records: Mapping[str, Record]
) -> bool:
    when = plan.conditions[name]
    if when.condition == due.DIVERGED and any(of_run[n] == ALL_DIVERGED for n in when.runs):
        return True
    found = [records[n] for n in when.runs if n in records]
    if when.runs and not found:
        # A grid in which every member diverged learns at no rate, and its best rate is unknown.
        return when.condition == due.NEVER_LEARNS
    if when.condition == due.LONGER_HELPS and when.runs[0] not in records:
        return False
    return due.is_due(when, found)


def with_rate(plan: SizePlan, name: str, rates: Mapping[str, float]) -> SizePlan:
    """The plan in which a run has the learning rate that earlier runs gave it."""
    if name not in rates:
        return plan
    run = plan.runs[name]
    rate = {"optim.learning_rate": f"({rates[name]!r},)"}
    changed = run._replace(overrides={**run.overrides, **rate})
    return plan._replace(runs={**plan.runs, name: changed})


def job_of(plan: SizePlan, name: str, rates: Mapping[str, float], workdir: Path) -> Job:
    """The job of a run, with its drawn seeds and its rate."""
    return confirmation.job_of(with_rate(plan, name, rates), name, workdir)._replace(name=name)


def write_record(job: Job, folder: Path, name: str) -> str:
    """Writes the record of a finished run and its companions; returns the name of its file."""
    file, workdir = file_of(folder, name), Workdir(job.workdir)
    folder.mkdir(parents=True, exist_ok=True)
    # The record is written last: where it is, its companions are complete.
    write_atomically(companion(file, ".curves.csv"), _curves(workdir).encode())
    if (workdir / "arrays.npz").exists():
        write_atomically(companion(file, ".csv"), table(workdir / "arrays.npz").encode())
    confirmation.write_record(job.workdir, file)
    return file.name


def write_note(job: Job, folder: Path, name: str, message: str) -> None:
    """Notes that all seeds of a run diverged, with its curves up to that step."""
    folder.mkdir(parents=True, exist_ok=True)
    curves_file = companion(file_of(folder, name), ".curves.csv")
    write_atomically(curves_file, _curves(Workdir(job.workdir)).encode())
    note = {"run": name, "message": message, "commit": current_commit(), "config": job.config}
    write_json(note_of(folder, name), note | {"overrides": dict(job.overrides)})


def _curves(workdir: Workdir) -> str:
    return curves.as_csv(curves.of_rows(workdir.rows()))
