"""The plan of a confirmation, PLAN.json: rows, runs, numbers of seeds, and hashes of all of them.

A plan is valid as long as the cells and rules of its rows, the configs of its runs and the modules
that judge stay as they were when the plan was made.

Plans of schema 2 also fix the sentence of each claim, and draw their seeds from the hash and a
random value. The value is drawn after the plan was committed (VALUE, beside PLAN.json), so that
nobody can know the seeds while choosing what to plan. The first plan has schema 1.
"""

import hashlib
import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from experiments.cli import flags
from experiments.confirmation.judging_code import is_unchanged
from experiments.ledger import judging, multiplicity, record_numbers, rules
from experiments.ledger.item import Item, Paper
from jaxformer import build
from jaxformer.core.errors import UserError, unknown
from jaxformer.io.atomic_files import dumps, write_atomically
from jaxformer.io.run_folder import config_hash
from jaxformer.stats import differences, members
from jaxformer.stats import multiplicity as corrections

FIRST, SECOND = 1, 2  # schemas
JUDGING_MODULES = (differences, members, record_numbers, rules, corrections, multiplicity)
VALUE = "VALUE"  # the file of the random value


class PlannedRow(NamedTuple):
    """A row of the ledger that is run again."""

    paper: str
    item: str
    digest: str  # the hash of its cells and rules
    verdict: str  # the exploratory verdict
    primary: str  # the sentence of its primary rule
    seeds: int  # how many seeds of each run the row is judged by; a run may have more
    limit: str  # why fewer seeds are planned than a power of 90 % needs; "" if they suffice
    stage: str  # one of `planning.STAGES`, which are run in the order of their letters
    cells: Mapping[str, tuple[str, ...]]  # cell -> the names of its runs, one for each replica

    @property
    def name(self) -> str:
        return f"{self.paper}: {self.item}"

    @property
    def runs(self) -> set[str]:
        """Returns the names of all its runs."""
        return {run for names in self.cells.values() for run in names}


class PlannedConfig(NamedTuple):
    """A run without its seeds."""

    config: str  # "configs/mixit/retrieval.py:variant=frozen_qk,scale=small"
    overrides: Mapping[str, str]
    seeds: int  # 0: the config has its own sample, such as 500 networks
    replica: int  # runs of different replicas have different data
    digest: str  # the hash of the config with all defaults, without its seeds
    seconds: float  # the estimated time


class Plan(NamedTuple):
    """The content of PLAN.json."""

    name: str
    rows: tuple[PlannedRow, ...]  # in the order in which they are run
    runs: Mapping[str, PlannedConfig]
    code: str  # the hash of the modules that judge
    hash: str  # the hash of all fields but the value
    schema: int = FIRST
    value: str = ""  # drawn after the plan was committed; "" before

    @property
    def seed_source(self) -> str:
        """The text that draws the seeds; raises UserError before the random value is drawn."""
        if self.schema == FIRST:
            return self.hash
        if not self.value:
            raise UserError(
                f"the plan {self.name} has no random value for its seeds: commit the plan, then "
                "`jaxformer confirm draw --plan=FILE` draws it; commit that too."
            )
        return f"{self.hash} {self.value}"


def write(plan: Plan, file: Path) -> None:
    """Writes PLAN.json; raises UserError if the file holds another plan."""
    if file.exists() and read(file).hash != plan.hash:
        raise UserError(
            f"{file} holds another plan, which must not change; give --plan=OTHER/PLAN.json."
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, (dumps(_as_json(plan), indent=1) + "\n").encode())


def read(file: Path) -> Plan:
    """Reads PLAN.json; raises UserError if it was edited."""
    try:
        content = json.loads(file.read_text())
        plan = Plan(
            content["name"],
            tuple(map(_row_of_json, content["rows"])),
            {name: PlannedConfig(**run) for name, run in content["runs"].items()},
            content["code"],
            content["hash"],
            content["schema"],
        )
        is_edited = with_hash(plan).hash != plan.hash
    except OSError as error:
        raise UserError(
            f"{file}: {error.strerror}; `jaxformer confirm plan` writes a plan, or give "
            "--plan=FILE."
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{file} is not a plan of confirm.py: {error!r:.100}.") from None
    if is_edited:
        raise UserError(f"{file} was edited: its hash does not fit; a plan must not change.")
    return plan._replace(value=_read_value(file.with_name(VALUE)))


def _read_value(file: Path) -> str:
    """Reads the random value beside a plan; "" before it is drawn."""
    try:
        return file.read_text().strip() if file.exists() else ""
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}.") from None
    except ValueError:
        raise UserError(f"{file} is damaged: it is no text in UTF-8.") from None


def draw_value(file: Path) -> str:
    """Draws the random value of a plan, once, and writes it beside the plan."""
    value, plan = file.with_name(VALUE), read(file)
    if plan.schema == FIRST or value.exists():
        raise UserError(f"the seeds of {plan.name} are drawn; they must not be drawn again.")
    text = secrets.token_hex(16)
    write_atomically(value, (text + "\n").encode())
    return text


def _row_of_json(row: Mapping[str, Any]) -> PlannedRow:
    cells = {cell: tuple(runs) for cell, runs in row["cells"].items()}
    fields: dict[str, Any] = {**row, "cells": cells}
    return PlannedRow(**fields)


def check(plan: Plan, papers: Mapping[str, Paper]) -> None:
    """Raises UserError if claims, judging code or configs differ from those of the plan."""
    modules = judging_modules(plan.schema)
    if not is_unchanged(plan.code, modules):
        files = ", ".join(Path(str(module.__file__)).name for module in modules)
        raise UserError(
            f"the plan {plan.name} was made with another version of {files}: check out its commit."
        )
    for row in plan.rows:
        if item_digest(item_of(papers, row, plan.schema), plan.schema) != row.digest:
            what = "rules or cells" if plan.schema == FIRST else "claim, rules or cells"
            raise UserError(
                f"the {what} of {row.name} have changed since the plan {plan.name}: check out its "
                "commit."
            )
    for run in plan.runs.values():
        if digest_without_seeds(run.config, run.overrides) != run.digest:
            raise UserError(
                f"the config {run.config} has changed since the plan {plan.name}: check out its "
                "commit."
            )


def judging_modules(schema: int) -> tuple[ModuleType, ...]:
    """The modules that judge the plans of a schema."""
    return JUDGING_MODULES if schema == FIRST else (*JUDGING_MODULES, judging)


def item_of(papers: Mapping[str, Paper], row: PlannedRow, schema: int = FIRST) -> Item:
    """Returns the item of a planned row; raises UserError if the papers no longer have it."""
    if row.paper not in papers:
        raise unknown("paper of the plan", row.paper, papers)
    items = {item.name: item for item in papers[row.paper].items}
    if row.item not in items:
        raise unknown(f"row of {row.paper} in the plan", row.item, items)
    item = items[row.item]
    versions = (item, *item.earlier)  # rules may have been mended since the plan
    return next((v for v in versions if item_digest(v, schema) == row.digest), item)


def item_digest(item: Item, schema: int = FIRST) -> str:
    """Returns the hash of what decides an item: its cells, rules, primary rule, and its claim."""
    claim = {} if schema == FIRST else {"claim": item.claim}
    return config_hash(
        claim
        | {
            "cells": {
                name: [cell.config, dict(cell.overrides)] for name, cell in item.cells.items()
            },
            "rules": {text: list(rule) for text, rule in item.rules.items()},
            "primary": item.primary_rule,
        }
    )


def digest_without_seeds(config: str, overrides: Mapping[str, str]) -> str:
    """Returns the hash of a config with all defaults; it does not depend on the seeds."""
    values = flags.to_dict(flags.load_with_overrides(config, overrides))
    values |= {"seed": 0, "n_seeds": 1}
    if "seed" in values.get("data", {}):
        values["data"] = values["data"] | {"seed": 0}
    return config_hash(build.config_identity(values))


def with_hash(plan: Plan) -> Plan:
    """Returns the plan with the hash of its content."""
    content = {name: value for name, value in _as_json(plan).items() if name != "hash"}
    text = json.dumps(content, sort_keys=True)
    return plan._replace(hash=hashlib.sha256(text.encode()).hexdigest())


def _as_json(plan: Plan) -> dict[str, Any]:
    return {
        "schema": plan.schema,
        "name": plan.name,
        "hash": plan.hash,
        "code": plan.code,
        "rows": [
            row._asdict() | {"cells": {cell: [*runs] for cell, runs in row.cells.items()}}
            for row in plan.rows
        ],
        "runs": {
            name: run._asdict() | {"overrides": dict(run.overrides)}
            for name, run in plan.runs.items()
        },
    }
