"""Makes the jobs of the ledger's missing cells, and updates the records once they have run."""

import functools
from collections.abc import Mapping
from pathlib import Path

from experiments.ledger import read, write
from experiments.ledger.item import Paper
from experiments.ledger.ledger import ledger
from experiments.ledger.rules import NOT_RUN
from experiments.ledger.tables import measured
from experiments.schedule.jobs import Job, Outcome, make_job
from experiments.schedule.planning import PlannedRun
from jaxformer.core.text_format import duration
from jaxformer.io.run_folder import Workdir
from jaxformer.runtime.environment import git


def job_of_run(run: PlannedRun, root: Path) -> Job:
    """Returns the job of a planned run.

    The folder below `root` depends on the config only, so a later start finds an unfinished run.
    """
    first, *others = run.cells
    name = f"{first} (and for {len(others)} more)" if others else str(first)
    job = make_job(name, run.config, run.overrides, root, seconds=run.estimate, record=True)
    return job._replace(restart=finished_at_another_commit(job))


def finished_at_another_commit(job: Job) -> bool:
    """Returns whether the job is finished and ran at another commit than the current one.

    Only runs without a record are planned, so such a run is repeated.
    """
    if not job.is_finished():
        return False
    commit = Workdir(job.workdir).read("result.json")["environment"]["commit"]
    return bool(current_commit()) and commit != current_commit()


@functools.cache
def current_commit() -> str:
    """Returns the commit of the code, or "" without git."""
    return git("rev-parse", "HEAD") or ""


def update_records(outcome: Outcome, run: PlannedRun, papers: Mapping[str, Paper]) -> str:
    """Deletes the records that a finished run replaces.

    Returns:
        A line with the run's metric, its time and the verdicts of its tables.
    """
    delete_replaced_records(run, outcome.job)
    items = {(cell.paper, cell.item) for cell in run.cells}
    rows = [
        row
        for row in ledger(papers, read.load(write.RESULTS)[0])
        if (row.paper.key, row.item.name) in items
    ]
    metric = rows[0].item.metric if rows else "accuracy"
    value = Workdir(outcome.job.workdir).read("result.json")["metrics"].get(metric)
    number = f"{metric} {measured(value)} " if value else ""
    verdicts = {f"{row.item.name}: {row.verdict}" for row in rows if row.verdict != NOT_RUN}
    return "; ".join([f"{number}in {duration(outcome.seconds)}", *sorted(verdicts)])


def delete_replaced_records(run: PlannedRun, job: Job) -> None:
    """Deletes records of the same cell with fewer seeds or of an earlier config."""
    new_record = write.recorded(Workdir(job.workdir).read("config.json")["config_hash"])
    for record in run.replaces:
        old_record = write.recorded(record.config_hash)
        if new_record and old_record and old_record != new_record:
            for suffix in write.SUFFIXES:
                write.companion(old_record, suffix).unlink(missing_ok=True)
            print(f"  replaces {old_record.relative_to(write.RESULTS)}")
