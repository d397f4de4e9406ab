"""The runs that the ledger asks for: what starts, and what came of it once it is recorded."""

import functools
from collections.abc import Mapping
from pathlib import Path

from experiments.ledger import read, write
from experiments.ledger.item import Paper
from experiments.ledger.ledger import ledger
from experiments.ledger.rules import NOT_RUN
from experiments.ledger.tables import measured
from experiments.schedule import launch
from experiments.schedule.jobs import Job, Outcome
from experiments.schedule.planning import Todo
from jaxformer.core.text_format import duration
from jaxformer.io.run_folder import Workdir
from jaxformer.runtime.environment import git


def job_of(todo: Todo, root: Path) -> Job:
    """The run of a cell; its folder is its own, so that the next start finds it."""
    name = todo.names[0] + (f" (and for {len(todo.names) - 1} more)" if todo.names[1:] else "")
    found = launch.job(name, todo.config, todo.overrides, root, seconds=todo.estimate, record=True)
    return found._replace(anew=is_outdated(found))


def is_outdated(job: Job) -> bool:
    """A finished run of other code whose record is gone: somebody wants it made again."""
    if not job.is_finished():
        return False
    then = Workdir(job.workdir).read("result.json")["environment"]["commit"]
    return bool(head()) and then != head()


@functools.cache
def head() -> str:
    """The commit of the code, or "" where there is no git."""
    return git("rev-parse", "HEAD") or ""


def recorded(outcome: Outcome, todo: Todo, papers: Mapping[str, Paper]) -> str:
    """The number of the run and the verdicts that it is part of; superfluous records are gone."""
    replace(todo, outcome.job)
    rows = [
        row
        for row in ledger(papers, read.load(write.RESULTS)[0])
        if any(name.startswith(f"{row.paper.key} {row.item.name}: ") for name in todo.names)
    ]
    metric = rows[0].item.metric if rows else "accuracy"
    value = Workdir(outcome.job.workdir).read("result.json")["metrics"].get(metric)
    said = f"{metric} {measured(value)} " if value else ""
    verdicts = {f"{row.item.name}: {row.verdict}" for row in rows if row.verdict != NOT_RUN}
    return "; ".join([f"{said}in {duration(outcome.seconds)}", *sorted(verdicts)])


def replace(todo: Todo, job: Job) -> None:
    """Removes the records that this one makes superfluous: fewer seeds, or a config of the past."""
    held = Workdir(job.workdir).read("config.json")
    mine = write.record_file(held["config"], held["config_hash"])
    for record in todo.replaces:
        old = write.record_file(record.config, record.config_hash)
        if old != mine and mine.exists():
            for suffix in write.SUFFIXES:
                write.companion(old, suffix).unlink(missing_ok=True)
            print(f"  replaces {old.name}")
