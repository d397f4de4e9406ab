"""The runs of a plan: their seeds, their jobs and their records.

Seeds are drawn from the plan's hash, so nobody can choose them one by one. A plan of another name
has others, so a plan counts only if it was committed before its runs. Runs that shared a seed or a
data seed in the exploration also share the drawn seed, so that they can again be compared seed by
seed.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from experiments.cli import flags
from experiments.confirmation import members
from experiments.confirmation.plan import Plan, PlannedConfig
from experiments.ledger import validate_record
from experiments.ledger.record import Record
from experiments.ledger.write import as_json, compact
from experiments.schedule.jobs import Job, make_job
from jaxformer import build
from jaxformer.core.errors import UserError
from jaxformer.io.atomic_files import json_value, write_atomically
from jaxformer.io.run_folder import Workdir, config_hash
from jaxformer.training.metrics import over_seeds

SEED_LIMIT = 1_000_000
MAKE_AGAIN = "Remove it and run `jaxformer {} run` again."


class PlanOfRuns(Protocol):
    """The fields of any plan that draws seeds from its hash."""

    @property
    def name(self) -> str: ...

    @property
    def runs(self) -> Mapping[str, PlannedConfig]: ...

    @property
    def hash(self) -> str: ...


def seed_source(plan: PlanOfRuns) -> str:
    """The text that draws the seeds of a plan; the hash alone for plans without a random value."""
    return getattr(plan, "seed_source", plan.hash)


def drawn(source: str, kind: str, original: int, replica: int) -> int:
    """Returns the seed that the plan's hash draws in place of a seed of the exploration.

    Args:
      source: the hash of the plan, followed by its random value if it has one.
      kind: "seed" or "data": the two seeds of a config are drawn independently.
      original: the seed of the exploration.
      replica: the number of the replica.
    """
    text = f"{source} {kind} {original} {replica}"
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) % SEED_LIMIT


def overrides_with_seeds(source: str, run: PlannedConfig) -> dict[str, str]:
    """Returns the overrides of a run with its drawn seeds."""
    config = flags.to_dict(flags.load_with_overrides(run.config, run.overrides))
    seeds = {"seed": str(drawn(source, "seed", config["seed"], run.replica))}
    if "data" in config and "seed" in config["data"]:
        original = config["data"]["seed"]
        seeds["data.seed"] = str(drawn(source, "data", original, run.replica))
    if run.seeds:
        seeds["n_seeds"] = str(run.seeds)
    return dict(run.overrides) | seeds


def jobs(plan: Plan, workdir: Path) -> dict[str, Job]:
    """Returns the job of each run of a plan, in the order of the rows."""
    ordered = dict.fromkeys(
        name for row in plan.rows for names in row.cells.values() for name in names
    )
    return {name: job_of(plan, name, workdir) for name in ordered}


def job_of(plan: PlanOfRuns, name: str, workdir: Path) -> Job:
    """Returns the job of a planned run, with its drawn seeds."""
    run = plan.runs[name]
    label = f"{run.config.removeprefix('configs/')} ({name})"
    overrides = overrides_with_seeds(seed_source(plan), run)
    return make_job(label, run.config, overrides, workdir, seconds=run.seconds)


def record_file(folder: Path, name: str) -> Path:
    return folder / f"{name}.json"


def write_record(workdir: Path, file: Path) -> None:
    """Writes the record of a finished run, unless there is one: a run is made once."""
    if file.exists():
        return
    content = json_value(as_json(Workdir(workdir)))
    file.parent.mkdir(parents=True, exist_ok=True)
    content |= {"sum": validate_record.sum_of(content)}
    write_atomically(file, compact(content).encode())


def read_records(plan: Plan, folder: Path, names: Iterable[str]) -> dict[str, Record]:
    """Reads the records of runs; raises UserError if one is not the run that was planned."""
    return {
        name: read_record(plan, name, record_file(folder, name))
        for name in names
        if record_file(folder, name).exists()
    }


def read_record(plan: PlanOfRuns, name: str, file: Path, command: str = "confirm") -> Record:
    """Reads the record of a run; raises UserError if it is not the run that was planned.

    Args:
      plan: the plan.
      name: the name of the run.
      file: its record.
      command: the command of `jaxformer` that makes the runs of this plan.
    """
    make_again = MAKE_AGAIN.format(command)
    try:
        content = validate_record.content(file)
        record = Record.from_json(content, where=str(file))
        if "sum" not in content:
            raise ValueError("it was edited: it has no checksum")
    except (ValueError, TypeError, OSError) as error:
        raise UserError(f"{file}: {error}. {make_again}") from None
    run = plan.runs[name]
    planned = flags.load_with_overrides(run.config, overrides_with_seeds(seed_source(plan), run))
    planned_hash = config_hash(build.config_identity(flags.to_dict(planned)))
    recorded_hash = config_hash(build.config_identity(record.config))
    if record.config_hash != planned_hash or recorded_hash != planned_hash:
        raise UserError(
            f"{file} is not the run {name} of the plan {plan.name}: another config or other seeds. "
            f"{make_again}"
        )
    if run.seeds and len(record.seeds) != run.seeds:
        raise UserError(
            f"{file} has {len(record.seeds)} seeds, the plan {plan.name} fixes {run.seeds}. "
            f"{make_again}"
        )
    if run.seeds and (reason := members.disagreement(record, run.seeds)):
        raise UserError(f"{file} was edited: {reason}. {make_again}")
    return record


def of_first_seeds(record: Record, seeds: int) -> Record:
    """Returns the record of the first seeds of a trained run, as if no others had been made."""
    # Members at the chosen learning rate. Members without this mark, as in figures, all count.
    chosen = [m for m in record.members if m.get("chosen", True)]
    if len(chosen) <= seeds:
        return record
    first = chosen[:seeds]
    metrics: dict[str, Any] = {}
    for name in record.metrics:
        values: list[Mapping] = [m["metrics"][name] for m in first if name in m["metrics"]]
        means = [value["mean"] for value in values if value["mean"] is not None]
        if means:
            metrics[name] = json_value(over_seeds(means))
    return replace(record, members=first, seeds=record.seeds[:seeds], metrics=metrics)
