"""rows.jsonl: measured rows, appended one by one, so that a stopped measurement resumes.

Every row carries a checksum. A damaged row is refused, because its numbers would be shown as
measured. An incomplete last line, which a killed process has left, is removed.
"""

import json
import os
import weakref
from pathlib import Path
from typing import Any

from jaxformer.core.errors import UserError, one_line
from jaxformer.io.atomic_files import (
    CHECKSUM,
    errors_name,
    has_checksum,
    with_checksum,
    without_checksum,
    write_json,
)
from jaxformer.io.file_lock import refuse_links, try_lock

# Users have files with these names, so they must not change.
ROWS_FILE, SETTINGS_FILE, LOCK_FILE = "rows.jsonl", "search.json", ".lock"
ROW_FORMAT = {"row_format": 2}  # part of the settings: rows of format 1 have no checksum


class RowFile:
    """The rows of one measurement in a folder of their own, locked until the object is deleted.

    Args:
      folder: the folder, made if it does not exist.
      settings: all settings on which the rows depend. A folder with other settings is refused.
    """

    def __init__(self, folder: Path, settings: dict[str, Any]):
        folder.mkdir(parents=True, exist_ok=True)
        self.file, settings_file = folder / ROWS_FILE, folder / SETTINGS_FILE
        is_new = not settings_file.exists()
        if is_new and any(file.name[0] != "." for file in folder.iterdir()):
            raise UserError(f"{folder} holds other files; rows need a folder of their own.")
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._lock = os.open(folder / LOCK_FILE, flags, 0o666)
        weakref.finalize(self, os.close, self._lock)
        if not try_lock(self._lock):
            raise UserError(f"another process writes rows to {folder}; wait until it has ended.")
        settings = json.loads(json.dumps(settings | ROW_FORMAT))
        if not is_new and _json(settings_file.read_bytes()) != settings:
            raise UserError(f"{folder} holds rows of other settings; choose another --out.")
        write_json(settings_file, settings)
        self._remove_cut_line()

    def read(self) -> list[dict[str, Any]]:
        """Reads all rows; raises a UserError with the number of a damaged line."""
        lines = self.file.read_bytes().splitlines() if self.file.exists() else []
        return [self._row(number, line) for number, line in enumerate(lines, 1)]

    def _row(self, number: int, line: bytes) -> dict[str, Any]:
        row = _json(line)
        try:
            if not has_checksum(row):
                raise ValueError(f"it is no row with a {CHECKSUM}")
            return without_checksum(row)
        except ValueError as error:
            raise UserError(
                f"{self.file}, line {number} is damaged: {one_line(error, 100)}. Delete this line: "
                "its row is then measured again."
            ) from None

    def append(self, row: dict[str, Any]) -> None:
        """Appends a row; a row is complete once its line end is written."""
        line = json.dumps(row | {CHECKSUM: with_checksum(row)[CHECKSUM]}, allow_nan=False) + "\n"
        with errors_name(self.file), open(self.file, "ab", opener=refuse_links) as file:
            file.write(line.encode())

    def _remove_cut_line(self) -> None:
        """Removes the bytes after the last line end, which a killed process has left."""
        if not self.file.exists():
            return
        with errors_name(self.file), open(self.file, "r+b", opener=refuse_links) as file:
            position = end = file.seek(0, os.SEEK_END)
            while position > 0:  # searches backwards in blocks of 64 KiB
                start = max(position - 2**16, 0)
                file.seek(start)
                last = file.read(position - start).rfind(b"\n")
                if last >= 0:
                    position = start + last + 1
                    break
                position = start
            if position < end:
                file.truncate(position)


def _json(content: bytes) -> Any:
    """Returns the value, or None if the content is damaged or has a NaN, which is no JSON."""
    try:
        return json.loads(content, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
