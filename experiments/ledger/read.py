"""Reads records from results/, and finished run folders in the form of records.

A record that cannot be read becomes one line with the reason. A record whose config has changed, or
whose Markov chains did not converge, is marked stale and decides nothing.
"""

import functools
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.cli import flags
from experiments.cli.flags import WORKSPACE
from experiments.ledger import chains, curves, validate_record
from experiments.ledger.packed import PackedList
from experiments.ledger.record import Record
from experiments.ledger.write import as_json, companion, table
from jaxformer import build
from jaxformer.core.errors import UserError, one_line
from jaxformer.io.atomic_files import json_value
from jaxformer.io.run_folder import Workdir

SEED_FIELDS = ("seed", "n_seeds")  # overrides that may differ between records of one config


def load(folder: Path) -> tuple[list[Record], list[str]]:
    """Returns the usable records, and a line for each record that cannot be used."""
    records, problems = [], []
    places: dict[str, Path] = {}  # of each record, by its checksum
    for file in sorted(folder.rglob("*.json")):
        try:
            content = validate_record.content(file)
            curve_file = companion(file, ".curves.csv")
            logged_curves = curves.CurveFile(curve_file) if curve_file.exists() else {}
            files = {"figure": companion(file, ".png"), "table": companion(file, ".csv")}
            record = _record(content, logged_curves, file, files, problems)
            place = file.relative_to(folder)
            if (first := places.setdefault(content.get("sum", str(place)), place)) != place:
                raise ValueError(f"it is the same record as {first}; remove one of them")
            records.append(record)
        except Exception as error:  # a foreign file may raise anything and must not stop the rest
            problems.append(_problem(str(file.relative_to(folder)), error))
    return records, problems


def load_runs(folder: Path) -> tuple[list[Record], list[str]]:
    """Returns the finished runs below a folder as records, and a line for each unusable run."""
    if not folder.is_dir():
        raise UserError(f"--runs={folder}: no such folder.")
    records, problems = [], []
    for file in sorted(folder.rglob("result.json")):
        workdir = Workdir(file.parent)
        try:
            for name in ("result.json", "config.json", "metrics.jsonl"):
                if (workdir / name).exists():
                    validate_record.regular_file(workdir / name)
            logged_curves = curves.checked(curves.of_rows(workdir.rows()))
            files = {"figure": workdir / "figure.png", "table": workdir / "arrays.npz"}
            content = as_json(workdir)
            records.append(_record(content, logged_curves, file.parent, files, problems))
        except Exception as error:
            problems.append(_problem(_short_path(file.parent), error))
    if not records and not problems:
        problems.append(f"{_short_path(folder)}: no finished run in this folder.")
    return records, problems


def stale(record: Record) -> str:
    """Returns why the record's command would run another config today; "" if it would not."""
    try:
        config = config_of_command(record.config_file, record.overrides)
    except UserError as error:
        # The list of choices at the end of the message is left out.
        reason = str(error).partition(" There are ")[0].partition(" The choices are")[0]
        return f"its config is gone: {reason}"
    is_same = json.dumps(config, sort_keys=True) == json.dumps(record.config, sort_keys=True)
    if is_same and record.content_hash == record.config_hash:
        return ""
    if validate_record.hash_of_json(build.config_identity(config)) != record.config_hash:
        return "its config has changed since it ran."
    if record.content_hash != record.config_hash:
        return "its config was edited: the hash differs."
    return ""


def config_of_command(config_file: str, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the config of a record's command as JSON values.

    Records that differ in their seeds alone share one loaded config.
    """
    seeds = {
        name: int(overrides[name])
        for name in SEED_FIELDS
        if name in overrides and str(overrides[name]).isdecimal()
    }
    others = {name: value for name, value in overrides.items() if name not in seeds}
    config = json.loads(_loaded(config_file, json.dumps(others)))
    if not seeds.keys() <= config.keys():
        return json.loads(_loaded(config_file, json.dumps(dict(overrides))))
    return config | seeds


@functools.lru_cache(1024)
def _loaded(config_file: str, overrides: str) -> str:
    config = flags.load_recorded_config(config_file, json.loads(overrides))
    return json.dumps(json_value(flags.to_dict(config)))


def _record(
    content: Any, logged_curves, where: Path, files: dict[str, Path], problems: list[str]
) -> Record:
    """Returns the record of a JSON value; appends to `problems` for damaged companion files.

    Args:
      content: the JSON value.
      logged_curves: the training curves.
      where: the file or the run folder.
      files: companion files by field of `Record`, which need not exist.
      problems: lines for damaged companion files are appended.
    """
    present: dict[str, Any] = {name: file for name, file in files.items() if file.exists()}
    record = Record.from_json(content, curves=logged_curves, where=_short_path(where), **present)
    cleared: dict[str, Any] = {}  # fields of damaged files become None
    messages = {"figure": "the figure is damaged", "table": "the figure's numbers are damaged"}
    for name, message in messages.items():
        try:
            _check_companion(name, record)
        except Exception as error:
            path = _short_path(present[name])
            problems.append(_problem(f"{path}: {message} and not shown", error))
            cleared[name] = None
    reason = stale(record) or chains.distrust(content)
    metrics, members = chains.trusted_metrics(content), PackedList(record.members)
    return replace(record, stale=reason, metrics=metrics, members=members, **cleared)


def _check_companion(name: str, record: Record) -> None:
    """Raises unless a companion file of a record can be shown."""
    if name == "figure" and record.figure:
        validate_record.check_picture(
            validate_record.regular_file(record.figure, validate_record.MAX_TEXT_BYTES).read_bytes()
        )
    if name == "table" and record.table:
        if record.table.suffix == ".npz":
            validate_record.check_arrays(record.table)
            table(record.table)
        else:
            validate_record.rows(validate_record.read_text(record.table))


def _problem(where: str, error: Exception) -> str:
    """Returns one line that names an unusable file and the reason."""
    is_expected = isinstance(error, ValueError | OSError)
    reason = str(error) if is_expected else f"{type(error).__name__}: {error}"
    return one_line(f"{where}: {reason.rstrip('.')}.")


def _short_path(path: Path) -> str:
    """Returns the path relative to the repository or the working directory, else absolute."""
    path = path.absolute()
    base = next((b for b in (WORKSPACE, Path.cwd()) if path.is_relative_to(b)), None)
    name = str(path.relative_to(base) if base else path)
    return name.encode(errors="replace").decode()  # a file name need not be UTF-8
