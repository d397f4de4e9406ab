"""The plan of ladders, PLAN.json: rules, sentences, sizes, seeds and runs with a hash of them.

The plan is committed before its first run. It is valid as long as each ladder, the configs of its
runs and the code that decides stay as they were. The seeds of all runs are drawn from its hash, as
those of a confirmation are.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from experiments import recipes
from experiments.cli import flags
from experiments.cli.recipe_table import RECIPES
from experiments.confirmation.judging_code import code_digest, is_unchanged
from experiments.confirmation.plan import PlannedConfig, digest_without_seeds
from experiments.ladders import judgement
from experiments.ledger import ladder_rule as rule
from experiments.ledger import record_numbers
from experiments.ledger.item import Cell
from experiments.ledger.ladder import Ladder, Rung
from jaxformer.core.errors import UserError
from jaxformer.io.atomic_files import dumps, json_value, write_atomically
from jaxformer.io.run_folder import config_hash
from jaxformer.stats import differences, members, trend

SCHEMA = 1
JUDGING_MODULES = (differences, members, record_numbers, trend, rule, judgement)


class LadderPlan(NamedTuple):
    """The content of PLAN.json."""

    name: str
    ladders: Mapping[str, Mapping[str, Any]]  # name -> the ladder as JSON values
    rungs: Mapping[str, Sequence[Mapping[str, Sequence[str]]]]  # name -> {cell: runs} of each rung
    runs: Mapping[str, PlannedConfig]
    code: str  # the hash of the modules that judge
    hash: str  # the hash of all other fields


def make(name: str, ladders: Iterable[Ladder]) -> LadderPlan:
    """Plans the runs of ladders; ladders that need the same run share it."""
    as_values, rungs, runs = {}, {}, {}
    for ladder in ladders:
        as_values[ladder.name] = ladder_values(ladder)
        rungs[ladder.name] = [_planned_rung(ladder, rung, runs) for rung in ladder.rungs]
    digest = code_digest(JUDGING_MODULES)
    return with_hash(LadderPlan(name, as_values, rungs, runs, digest, ""))


def write(plan: LadderPlan, file: Path) -> None:
    """Writes PLAN.json; raises UserError if the file holds another plan."""
    if file.exists() and read(file).hash != plan.hash:
        raise UserError(
            f"{file} holds another plan, which must not change; give --plan=OTHER/PLAN.json."
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    content = {"schema": SCHEMA} | _content(plan) | {"hash": plan.hash}
    write_atomically(file, (dumps(content, indent=1) + "\n").encode())


def read(file: Path) -> LadderPlan:
    """Reads PLAN.json; raises UserError if it was edited."""
    try:
        content = json.loads(file.read_text())
        runs = {name: PlannedConfig(**run) for name, run in content["runs"].items()}
        ladders, rungs = content["ladders"], content["rungs"]
        plan = LadderPlan(content["name"], ladders, rungs, runs, content["code"], content["hash"])
        is_edited = with_hash(plan).hash != plan.hash
    except OSError as error:
        raise UserError(
            f"{file}: {error.strerror}; `jaxformer ladder plan` writes a plan, or give --plan=FILE."
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{file} is not a plan of ladders: {error!r:.100}.") from None
    if is_edited:
        raise UserError(f"{file} was edited: its hash does not fit; a plan must not change.")
    return plan


def check(plan: LadderPlan, ladders: Mapping[str, Ladder]) -> None:
    """Raises UserError if ladders, deciding code or configs differ from those of the plan."""
    cure = f"since the plan {plan.name}: check out its commit"
    if not is_unchanged(plan.code, JUDGING_MODULES):
        files = ", ".join(Path(str(module.__file__)).name for module in JUDGING_MODULES)
        raise UserError(f"the code that judges ({files}) has changed {cure}.")
    for name, values in plan.ladders.items():
        if name not in ladders or ladder_values(ladders[name]) != values:
            raise UserError(f"the ladder {name} has changed {cure}.")
    for run in plan.runs.values():
        if digest_without_seeds(run.config, run.overrides) != run.digest:
            raise UserError(f"the config {run.config} has changed {cure}.")


def ladder_values(ladder: Ladder) -> dict[str, Any]:
    """The ladder as JSON values; its rule also in words, so that PLAN.json can be read."""
    fields = {name: getattr(ladder, name) for name in ladder.__dataclass_fields__}
    nested = {
        "cells": {name: cell._asdict() for name, cell in ladder.cells.items()},
        "left": ladder.left._asdict(),
        "right": ladder.right._asdict(),
        "rule": {"words": str(ladder.rule), **ladder.rule._asdict()},
        "rungs": [rung._asdict() for rung in ladder.rungs],
    }
    return json.loads(json.dumps(json_value(fields | nested)))


def planned_runs(cell: Cell, rung: Rung, seeds: int) -> list[PlannedConfig]:
    """The runs of a cell at one size.

    Trained networks of all seeds are members of one run. A figure lists no members, so it runs once
    for each seed: only then are its numbers known seed by seed.
    """
    overrides = {**cell.overrides, **rung.overrides}
    values: Any = flags.load_with_overrides(cell.config, overrides)
    is_population = "train" in RECIPES[values.recipe].sections
    in_a_run = seeds if is_population else int(recipes.uses_seeds(values))
    digest = digest_without_seeds(cell.config, overrides)
    return [
        PlannedConfig(cell.config, overrides, in_a_run, replica, digest, 0.0)
        for replica in range(1 if is_population else seeds)
    ]


def with_hash(plan: LadderPlan) -> LadderPlan:
    """The plan with the hash of its content."""
    text = json.dumps(_content(plan), sort_keys=True)
    return plan._replace(hash=hashlib.sha256(text.encode()).hexdigest())


def _planned_rung(
    ladder: Ladder, rung: Rung, runs: dict[str, PlannedConfig]
) -> dict[str, list[str]]:
    """The names of a rung's runs by cell; runs that no ladder has planned yet are added."""
    planned = {name: planned_runs(cell, rung, ladder.seeds) for name, cell in ladder.cells.items()}
    seconds = round(60 * rung.minutes / sum(map(len, planned.values())), 1)
    names = {}
    for cell, of_cell in planned.items():
        names[cell] = []
        for run in of_cell:
            identity = {"config": run.config, "overrides": run.overrides, "seeds": run.seeds}
            name = config_hash(identity | {"replica": run.replica})
            runs.setdefault(name, run._replace(seconds=seconds))
            names[cell].append(name)
    return names


def _content(plan: LadderPlan) -> dict[str, Any]:
    return {
        "name": plan.name,
        "code": plan.code,
        "ladders": plan.ladders,
        "rungs": plan.rungs,
        "runs": {name: run._asdict() for name, run in plan.runs.items()},
    }
