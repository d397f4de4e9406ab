"""The runs of a plan of ladders: their order, their records, and what each size still lacks."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from experiments.confirmation.runs import job_of, read_record, record_file
from experiments.ladders import controlled, judgement
from experiments.ladders.controlled import Control
from experiments.ladders.judgement import Judged, Measured
from experiments.ladders.plan import LadderPlan
from experiments.ledger.ladder import Ladder, card_seconds
from experiments.ledger.record import Record
from experiments.ledger.rules import NOT_RUN
from experiments.schedule.jobs import Job
from jaxformer.core.errors import UserError

COMMAND = "ladder"  # of the messages about a record


def judge_all(
    plan: LadderPlan, ladders: Mapping[str, Ladder], folder: Path, workdir: Path
) -> list[Judged]:
    """Judges all ladders of a plan by the records in a folder.

    Args:
      plan: the plan.
      ladders: the ladders by name.
      folder: the records.
      workdir: the folders of the runs, which tell an interrupted run from one that never began.
    """
    records, problems = _read_all(plan, folder)
    return [
        judgement.judge(ladders[name], _measured(plan, ladders[name], records, problems, workdir))
        for name in plan.ladders
    ]


def judge_with_controls(
    plan: LadderPlan, ladders: Mapping[str, Ladder], folder: Path, workdir: Path
) -> list[tuple[Judged, Control]]:
    """The ladders of a plan by their rules, each with a second look at how its networks trained.

    All verdicts of the plan are corrected together. The arguments are those of `judge_all`.
    """
    records, _ = _read_all(plan, folder)
    judged = judge_all(plan, ladders, folder, workdir)
    looks = {}
    for of_ladder in judged:
        name = of_ladder.ladder.name
        by_size = {}
        for rung, cells in zip(of_ladder.ladder.rungs, plan.rungs[name], strict=True):
            if all(run in records for runs in cells.values() for run in runs):
                by_size[rung.size] = {
                    cell: [records[run] for run in runs] for cell, runs in cells.items()
                }
        looks[name] = controlled.control(of_ladder.ladder, of_ladder, by_size)
    looks = controlled.corrected(looks)
    return [(of_ladder, looks[of_ladder.ladder.name]) for of_ladder in judged]


def jobs_by_cost(
    plan: LadderPlan, workdir: Path, ladders: Iterable[str], on_card: bool
) -> dict[str, Job]:
    """The jobs of ladders, cheapest size first.

    Args:
      plan: the plan.
      workdir: the folder of all runs.
      ladders: the names of the ladders.
      on_card: whether to return the sizes that need an accelerator, or those that do not.
    """
    waiting = []
    for name in ladders:
        rungs = plan.ladders[name]["rungs"]
        for rung, runs in zip(rungs, plan.rungs[name], strict=True):
            if rung["on_card"] == on_card:
                names = [run for of_cell in runs.values() for run in of_cell]
                waiting.append((sum(plan.runs[run].seconds for run in names), names))
    ordered = [name for _, names in sorted(waiting, key=lambda pair: pair[0]) for name in names]
    jobs = {name: job_of(plan, name, workdir) for name in dict.fromkeys(ordered)}
    if not on_card:
        return jobs
    return {name: job._replace(seconds=card_seconds(job.seconds)) for name, job in jobs.items()}


def _read_all(plan: LadderPlan, folder: Path) -> tuple[dict[str, Record], dict[str, str]]:
    """The records of a plan, and why a record that is there cannot be used."""
    records, problems = {}, {}
    for name in plan.runs:
        if (file := record_file(folder, name)).exists():
            try:
                records[name] = read_record(plan, name, file, COMMAND)
            except UserError as error:
                problems[name] = str(error)
    return records, problems


def _measured(
    plan: LadderPlan,
    ladder: Ladder,
    records: Mapping[str, Record],
    problems: Mapping[str, str],
    workdir: Path,
) -> list[Measured]:
    measured, versions = [], {}
    for rung, cells in zip(ladder.rungs, plan.rungs[ladder.name], strict=True):
        names = [name for runs in cells.values() for name in runs]
        missing = [name for name in names if name not in records]
        if missing:
            problem = next((problems[name] for name in names if name in problems), "")
            problem = problem or _state(plan, missing, len(names), workdir)
            measured.append(Measured(rung, problem=problem))
            continue
        of_cell = {cell: [records[name] for name in runs] for cell, runs in cells.items()}
        versions = versions or judgement.versions_of(records[names[0]])
        measured.append(judgement.measure(ladder, rung, of_cell, versions))
    return measured


def _state(plan: LadderPlan, missing: list[str], count: int, workdir: Path) -> str:
    """The state of a size whose records are not complete."""
    if any(job_of(plan, name, workdir).is_started() for name in missing):
        return "interrupted: `jaxformer ladder run` resumes it"
    done = count - len(missing)
    return f"{done} of {count} runs are recorded" if done else NOT_RUN
