"""Records as they lie on disk: those of results/, and finished run folders as if they were records.

One that cannot be read is a line that says why; one whose config has changed since, or whose chains
are not to be trusted, is marked and decides nothing.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.cli import flags
from experiments.cli.flags import ROOT
from experiments.ledger import chains, curves, validate_record
from experiments.ledger.record import Record
from experiments.ledger.write import as_json, beside, table
from jaxformer import build
from jaxformer.core.errors import UserError, one_line
from jaxformer.io.run_folder import Workdir, config_hash


def load(folder: Path) -> tuple[list[Record], list[str]]:
    """(usable records, one line for each that is not)."""
    records, problems = [], []
    for file in sorted(folder.glob("*.json")):
        try:
            content, curve_file = validate_record.content(file), beside(file, ".curves.csv")
            logged = curves.of_csv(validate_record.text(curve_file)) if curve_file.exists() else {}
            files = {"figure": beside(file, ".png"), "table": beside(file, ".csv")}
            records.append(_placed(content, logged, file, files, problems))
        except Exception as error:  # whoever wrote it: one odd record never hides the others
            problems.append(_said(file.name, error))
    return records, problems


def load_runs(folder: Path) -> tuple[list[Record], list[str]]:
    """The finished runs below a folder, as records."""
    if not folder.is_dir():
        raise UserError(f"--runs={folder}: no such folder.")
    records, problems = [], []
    for file in sorted(folder.rglob("result.json")):
        workdir = Workdir(file.parent)
        try:
            for name in ("result.json", "config.json", "metrics.jsonl"):
                if (workdir / name).exists():
                    validate_record.regular(workdir / name)
            logged = curves.checked(curves.of_rows(workdir.rows()))
            files = {"figure": workdir / "figure.png", "table": workdir / "arrays.npz"}
            records.append(_placed(as_json(workdir), logged, file.parent, files, problems))
        except Exception as error:
            problems.append(_said(_near(file.parent), error))
    if not records and not problems:
        problems.append(f"{_near(folder)}: no finished run in this folder.")
    return records, problems


def stale(record: Record) -> str:
    """Why the same command would run another config today, or ""."""
    try:
        config = flags.plain(flags.of_a_record(record.config_file, record.overrides))
    except UserError as error:
        said = str(error).partition(" There are ")[0].partition(" The choices are")[0]
        return f"its config is gone: {said}"
    if config_hash(build.config_identity(config)) != record.config_hash:
        return "its config has changed since it ran."
    if config_hash(build.config_identity(record.config)) != record.config_hash:
        return "the config that it holds was edited: its hash is another one."
    return ""


def _placed(
    content: Any, logged, where: Path, files: dict[str, Path], problems: list[str]
) -> Record:
    present: dict[str, Any] = {name: file for name, file in files.items() if file.exists()}
    record = Record.from_json(content, curves=logged, where=_near(where), **present)
    damaged = {}
    for name, what in (("figure", "figure is damaged"), ("table", "figure's numbers are damaged")):
        try:
            _check_beside(name, record)
        except Exception as error:
            problems.append(_said(f"{_near(present[name])}: the {what} and not shown", error))
            damaged[name] = None
    why, metrics = stale(record) or chains.distrust(content), chains.known(content)
    return replace(record, stale=why, metrics=metrics, **damaged)


def _check_beside(name: str, record: Record) -> None:
    """Raises unless what lies beside a record can be shown."""
    if name == "figure" and record.figure:
        validate_record.check_picture(
            validate_record.regular(record.figure, validate_record.LARGEST).read_bytes()
        )
    if name == "table" and record.table:
        if record.table.suffix == ".npz":
            validate_record.check_arrays(record.table)
            table(record.table)
        else:
            validate_record.rows(validate_record.text(record.table))


def _said(where: str, error: Exception) -> str:
    """The line that names what is left out."""
    known = isinstance(error, ValueError | OSError)
    said = str(error) if known else f"{type(error).__name__}: {error}"
    return one_line(f"{where}: {said.rstrip('.')}.")


def _near(path: Path) -> str:
    """The path as seen from the repository, from here, or whole."""
    path = path.absolute()
    base = next((b for b in (ROOT, Path.cwd()) if path.is_relative_to(b)), None)
    name = str(path.relative_to(base) if base else path)
    return name.encode(errors="replace").decode()  # a name need not be text
