"""The plan of the experiments at the papers' settings: at_size/PLAN.json, with a hash of it all.

The plan is committed before its runs. Its seeds are drawn from the hash and from a random value,
which is drawn after the commit (VALUE, beside PLAN.json), so that nobody can know the seeds while
choosing what to plan.
"""

import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from experiments.at_size import due
from experiments.at_size.due import When
from experiments.at_size.questions import Asked
from experiments.confirmation.judging_code import code_digest, is_unchanged
from experiments.confirmation.plan import VALUE, PlannedConfig, digest_without_seeds
from jaxformer.core.errors import UserError
from jaxformer.io.atomic_files import dumps, write_atomically

SCHEMA = 1
# What decides which runs are made and at which rates. Verdicts follow the words of the plan.
DECIDING_MODULES = (due,)


class SizePlan(NamedTuple):
    """The content of PLAN.json, and the random value beside it."""

    name: str
    experiments: Mapping[str, Any]  # questions, settings, controls and rules in words
    runs: Mapping[str, PlannedConfig]  # in the order in which they are made
    conditions: Mapping[str, When]  # of each run
    rate_from: Mapping[str, tuple[str, ...]]  # of runs that take the best rate of earlier ones
    code: str  # the hash of the modules that decide
    hash: str  # the hash of all other fields but the value
    value: str = ""  # drawn after the plan was committed; "" before

    @property
    def seed_source(self) -> str:
        """The text that draws the seeds; raises UserError before the random value is drawn."""
        if not self.value:
            raise UserError(
                f"the plan {self.name} has no random value for its seeds: commit the plan, then "
                "`python -m experiments.at_size draw`; commit that too."
            )
        return f"{self.hash} {self.value}"


def make(name: str, runs_asked: Iterable[Asked], experiments: Mapping[str, Any]) -> SizePlan:
    """The plan of runs, in the order in which they are given."""
    runs, conditions, rate_from = {}, {}, {}
    for asked in runs_asked:
        if asked.name in runs:
            raise UserError(f"the run {asked.name} is planned twice: give it another name.")
        digest = digest_without_seeds(asked.config, asked.overrides)
        runs[asked.name] = PlannedConfig(
            asked.config, dict(asked.overrides), asked.seeds, asked.replica, digest, asked.seconds
        )
        conditions[asked.name] = asked.when
        if asked.rate_from:
            rate_from[asked.name] = asked.rate_from
    content = json.loads(dumps(experiments))
    code = code_digest(DECIDING_MODULES)
    return with_hash(SizePlan(name, content, runs, conditions, rate_from, code, ""))


def write(plan: SizePlan, file: Path) -> None:
    """Writes PLAN.json; raises UserError if the file holds another plan."""
    if file.exists() and read(file).hash != plan.hash:
        raise UserError(
            f"{file} holds another plan, which must not change; give --plan=OTHER/PLAN.json."
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    content = {"schema": SCHEMA} | _content(plan) | {"hash": plan.hash}
    write_atomically(file, (dumps(content, indent=1) + "\n").encode())


def read(file: Path) -> SizePlan:
    """Reads PLAN.json and the random value; raises UserError if the plan was edited."""
    try:
        content = json.loads(file.read_text())
        plan = SizePlan(
            content["name"],
            content["experiments"],
            {run["name"]: _config_from_json(run) for run in content["runs"]},
            {run["name"]: When(run["when"], tuple(run["of"])) for run in content["runs"]},
            {run["name"]: tuple(run["rate_from"]) for run in content["runs"] if run["rate_from"]},
            content["code"],
            content["hash"],
        )
    except OSError as error:
        raise UserError(
            f"{file}: {error.strerror}; `python -m experiments.at_size plan` writes a plan, or "
            "give --plan=FILE."
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{file} is not a plan of at_size: {error!r:.100}.") from None
    if with_hash(plan).hash != plan.hash:
        raise UserError(f"{file} was edited: its hash does not fit; a plan must not change.")
    value = file.with_name(VALUE)
    return plan._replace(value=value.read_text().strip() if value.exists() else "")


def draw_value(file: Path) -> str:
    """Draws the random value of a plan, once, and writes it beside the plan."""
    plan = read(file)
    if plan.value:
        raise UserError(f"the seeds of {plan.name} are drawn; they must not be drawn again.")
    text = secrets.token_hex(16)
    write_atomically(file.with_name(VALUE), (text + "\n").encode())
    return text


def check(plan: SizePlan) -> None:
    """Raises UserError if the code that decides or a config differs from that of the plan.

    The questions in words need no check: the plan itself holds them, and its hash covers them.
    """
    cure = f"since the plan {plan.name}: check out its commit"
    if not is_unchanged(plan.code, DECIDING_MODULES):
        files = ", ".join(Path(str(module.__file__)).name for module in DECIDING_MODULES)
        raise UserError(f"the code that decides ({files}) has changed {cure}.")
    for name, run in plan.runs.items():
        if digest_without_seeds(run.config, run.overrides) != run.digest:
            raise UserError(f"the config of the run {name} has changed {cure}.")


def with_hash(plan: SizePlan) -> SizePlan:
    """The plan with the hash of its content."""
    text = json.dumps(_content(plan), sort_keys=True)
    return plan._replace(hash=hashlib.sha256(text.encode()).hexdigest())


def _config_from_json(run: Mapping[str, Any]) -> PlannedConfig:
    return PlannedConfig(**{field: run[field] for field in PlannedConfig._fields})


def _content(plan: SizePlan) -> dict[str, Any]:
    runs = []
    for name, config in plan.runs.items():
        when = plan.conditions[name]
        entry = {"name": name, "when": when.condition, "of": list(when.runs)}
        entry["rate_from"] = list(plan.rate_from.get(name, ()))
        runs.append(entry | config._asdict())
    return {
        "name": plan.name,
        "experiments": plan.experiments,
        "runs": runs,
        "code": plan.code,
    }
