"""The file of an Optuna study: one JSON entry a line, appended by all launchers of a search."""

import json
import sys
from pathlib import Path
from typing import Any

from jaxformer.core.errors import UserError
from jaxformer.io.atomic_files import write_atomically

JOURNAL = "search.journal"


def open_study(optuna: Any, folder: Path) -> Any:
    """Returns the Optuna study of a folder, and creates it if there is none.

    A power cut can leave a damaged line in the journal. The journal is then shortened to the
    entries before this line, and a copy of the damaged file is kept in the folder.
    """
    file, backends = folder / JOURNAL, optuna.storages.journal
    if file.is_symlink() or (file.exists() and not file.is_file()):
        raise UserError(f"{file} must be a regular file; remove it to search anew.")
    lock = backends.JournalFileSymlinkLock(str(file))
    lock.acquire()  # another launcher may be appending
    try:
        drop_damaged_entries(file)
    finally:
        lock.release()
    try:
        return optuna.create_study(
            study_name="search",
            storage=optuna.storages.JournalStorage(backends.JournalFileBackend(str(file))),
            direction="maximize",
            load_if_exists=True,
        )
    except Exception as error:  # Optuna replays the entries. A wrong entry may raise anything.
        raise UserError(
            f"{file} is damaged ({type(error).__name__}); remove it to search anew: runs that are "
            "finished are read from their folders."
        ) from error


def drop_damaged_entries(file: Path) -> None:
    """Removes the first damaged entry and all entries after it; keeps a copy of the whole file."""
    if not file.exists():
        return
    content = file.read_bytes()
    n_valid = 0  # bytes
    for line in content.splitlines(keepends=True):
        if not is_entry(line):
            break
        n_valid += len(line)
    if n_valid == len(content):
        return
    copy = file.with_name(f"{JOURNAL}.damaged")
    write_atomically(copy, content)
    write_atomically(file, content[:n_valid])
    line_number = content[:n_valid].count(b"\n") + 1
    print(
        f"warning: line {line_number} of {file} is damaged; the entries before it are used, and "
        f"the whole file is kept as {copy.name}",
        file=sys.stderr,
    )


def is_entry(line: bytes) -> bool:
    """Returns whether a line is a complete entry of Optuna's journal."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):  # UnicodeDecodeError is a ValueError
        return False
    return line.endswith(b"\n") and isinstance(entry, dict) and type(entry.get("op_code")) is int
