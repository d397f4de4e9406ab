"""Records as they lie on disk: those of results/, and finished run folders as if they were records.

One that cannot be read is a line that says why; one whose config has changed since is marked stale.
"""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from experiments.ledger import curves
from experiments.ledger.record import Record
from experiments.ledger.write import as_json, beside, table
from experiments.shared import flags
from experiments.shared.flags import ROOT
from jaxformer import build
from jaxformer.errors import UserError
from jaxformer.records import Workdir, config_hash


def load(folder: Path) -> tuple[list[Record], list[str]]:
    """(usable records, one line for each that is not)."""
    records, problems = [], []
    for file in sorted(folder.glob("*.json")):
        try:
            content, curve_file = json.loads(file.read_text()), beside(file, ".curves.csv")
            logged = curves.of_csv(curve_file.read_text()) if curve_file.exists() else {}
            files = {"figure": beside(file, ".png"), "table": beside(file, ".csv")}
            records.append(_placed(content, logged, file, files, problems))
        except (ValueError, OSError) as error:
            problems.append(f"{file.name}: {error}.")
    return records, problems


def load_runs(folder: Path) -> tuple[list[Record], list[str]]:
    """The finished runs below a folder, as records."""
    if not folder.is_dir():
        raise UserError(f"--runs={folder}: no such folder.")
    records, problems = [], []
    for file in sorted(folder.rglob("result.json")):
        workdir = Workdir(file.parent)
        try:
            logged = curves.of_rows(workdir.rows())
            files = {"figure": workdir / "figure.png", "table": workdir / "arrays.npz"}
            records.append(_placed(as_json(workdir), logged, file.parent, files, problems))
        except (UserError, ValueError, KeyError, OSError) as error:
            problems.append(f"{_near(file.parent)}: {error}")
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
    is_same = config_hash(build.said(config)) == record.config_hash
    return "" if is_same else "its config has changed since it ran."


def figure_table(record: Record) -> str:
    """The numbers behind a record's figure as CSV, or ""."""
    if not record.table:
        return ""
    return table(record.table) if record.table.suffix == ".npz" else record.table.read_text()


def _placed(
    content: Any, logged, where: Path, files: dict[str, Path], problems: list[str]
) -> Record:
    present: dict[str, Any] = {name: file for name, file in files.items() if file.exists()}
    figure = present.get("figure")
    png = figure.read_bytes() if figure else b""
    if figure and not (png.startswith(b"\x89PNG\r\n\x1a\n") and b"IEND" in png[-16:]):
        problems.append(f"{_near(figure)}: the figure is damaged and not shown.")
        del present["figure"]
    record = Record.from_json(content, curves=logged, where=_near(where), **present)
    return replace(record, stale=stale(record))


def _near(path: Path) -> str:
    """The path as seen from the repository, from here, or whole."""
    path = path.absolute()
    for base in (ROOT, Path.cwd()):
        if path.is_relative_to(base):
            return str(path.relative_to(base))
    return os.fspath(path)
