"""Records as they lie on disk: those of results/, and finished run folders as if they were records.

Each gets, beside what it holds: "stale", why it no longer counts ("" if it does); "where", the file
that a reader opens; "figure" and "table", files that lie beside it, or None.
"""

import ast
import json
import os
import shlex
from pathlib import Path
from typing import Any

from experiments.ledger.write import as_record, table
from experiments.shared import flags
from jaxformer.errors import UserError
from jaxformer.records import SCHEMA, Workdir, config_hash

Record = dict[str, Any]
ROOT = flags.ROOT
# What every record has, and of which type.
FIELDS = {
    "config": dict,
    "config_file": str,
    "config_hash": str,
    "overrides": dict,
    "seeds": list,
    "metrics": dict,
    "members": list,
    "baselines": dict,
    "seconds": dict,
    "environment": dict,
    "curves": dict,
}


def load(folder: Path) -> tuple[list[Record], list[str]]:
    """(usable records, one line for each that is not)."""
    records, problems = [], []
    for file in sorted(folder.glob("*.json")):
        try:
            record = json.loads(file.read_text())
            if not isinstance(record, dict) or "schema" not in record:
                raise ValueError("it has no schema, so it is no record")
            if record["schema"] != SCHEMA:
                raise ValueError(f"schema {record['schema']}, this version reads {SCHEMA}")
            _check(record)
        except (ValueError, OSError) as error:
            problems.append(f"{file.name}: {error}.")
            continue
        beside = {"figure": file.with_suffix(".png"), "table": file.with_suffix(".csv")}
        records.append(_placed(record, file, beside, problems))
    return records, problems


def load_runs(folder: Path) -> tuple[list[Record], list[str]]:
    """The finished runs below a folder, as records."""
    if not folder.is_dir():
        raise UserError(f"--runs={folder}: no such folder.")
    records, problems = [], []
    for file in sorted(folder.rglob("result.json")):
        workdir = Workdir(file.parent)
        try:
            record = as_record(workdir)
            _check(record)
        except (UserError, ValueError, KeyError, OSError) as error:
            problems.append(f"{_near(file.parent)}: {error}")
            continue
        beside = {"figure": workdir / "figure.png", "table": workdir / "arrays.npz"}
        records.append(_placed(record, file.parent, beside, problems))
    if not records and not problems:
        problems.append(f"{_near(folder)}: no finished run in this folder.")
    return records, problems


def stale(record: Record) -> str:
    """Why the same command would run another config today, or ""."""
    try:
        config = flags.load_config(record["config_file"])
        for name, value in record["overrides"].items():
            flags.override(config, name, spelled(value))
    except UserError as error:
        said = str(error).partition(" There are ")[0].partition(" The choices are")[0]
        return f"its config is gone: {said}"
    if config_hash(flags.plain(config.copy_and_resolve_references())) != record["config_hash"]:
        return "its config has changed since it ran."
    return ""


def is_stale(record: Record) -> bool:
    """Would the same command run another config today?"""
    return bool(stale(record))


def command(record: Record) -> str:
    """The line that makes the record again."""
    words = [f"--config={record['config_file']}"]
    words += [f"--config.{name}={spelled(v)}" for name, v in record["overrides"].items()]
    return "python experiments/run.py " + " ".join(map(shlex.quote, words))


def address(config_file: str, overrides: dict[str, Any]) -> tuple:
    """What a command names, whatever the order of its words; the number of seeds apart."""
    file, _, arguments = config_file.partition(":")
    values = {name: _literal(value) for name, value in overrides.items() if name != "n_seeds"}
    return file, tuple(sorted(arguments.split(","))), tuple(sorted(values.items()))


def figure_table(record: Record) -> str:
    """The numbers behind a record's figure as CSV, or ""."""
    file = record.get("table")
    if not file:
        return ""
    return table(file) if file.suffix == ".npz" else file.read_text()


def spelled(value: Any) -> str:
    """A value as a flag would spell it."""
    if isinstance(value, list) and any(isinstance(entry, list) for entry in value):
        return repr(_tuples(value))
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value)


def _check(record: Record) -> None:
    """Raises ValueError for what a reader of records would stumble on."""
    record.setdefault("environment", {})
    record.setdefault("curves", {"training": [], "validation": []})
    for name, kind in FIELDS.items():
        if not isinstance(record.get(name), kind):
            raise ValueError(
                f"{name!r} should be a {kind.__name__}, it is {record.get(name)!r:.40}"
            )
    record.setdefault("scale", record["config"].get("scale", "unknown"))
    sound = {
        "scale": isinstance(record["scale"], str),
        "metrics": all(map(_is_mean, record["metrics"].values())),
        "members": all(isinstance(member, dict) for member in record["members"]),
        "baselines": all(isinstance(v, float | int | None) for v in record["baselines"].values()),
        "seeds": all(isinstance(seed, int) for seed in record["seeds"]),
        "seconds": all(isinstance(v, float | int) for v in record["seconds"].values()),
        "environment": isinstance(record["environment"].get("versions", {}), dict),
        "curves": _are_curves(record["curves"]),
    }
    for name in sound:
        if not sound[name]:
            raise ValueError(f"its {name!r} are damaged: {record[name]!r:.60}")


def _is_mean(value: Any) -> bool:
    if not isinstance(value, dict) or not {"mean", "sem", "n"} <= value.keys():
        return False
    return all(isinstance(value[name], float | int | None) for name in ("mean", "sem", "n"))


def _are_curves(curves: dict[str, Any]) -> bool:
    parts = [curves.get("training"), curves.get("validation")]
    if not all(isinstance(part, list) for part in parts):
        return False
    rows = [row for part in parts for row in part or ()]
    return all(isinstance(row, dict) and "step" in row for row in rows) and all(
        isinstance(row.get("validation"), dict) for row in curves["validation"]
    )


def _placed(record: Record, where: Path, beside: dict[str, Path], problems: list[str]) -> Record:
    record |= {"stale": stale(record), "where": _near(where)}
    for name, file in beside.items():
        record[name] = file if file.exists() else None
    figure = record["figure"]
    if figure:
        content = figure.read_bytes()
        if not (content.startswith(b"\x89PNG\r\n\x1a\n") and b"IEND" in content[-16:]):
            problems.append(f"{_near(figure)}: the figure is damaged and not shown.")
            record["figure"] = None
    return record


def _near(path: Path) -> str:
    """The path as seen from the repository, from here, or whole."""
    path = path.absolute()
    for base in (ROOT, Path.cwd()):
        if path.is_relative_to(base):
            return str(path.relative_to(base))
    return os.fspath(path)


def _literal(value: Any) -> str:
    try:
        return str(_tuples(ast.literal_eval(spelled(value))))
    except (ValueError, SyntaxError):
        return str(value)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(entry) for entry in value) if isinstance(value, list | tuple) else value
