"""metrics.jsonl: rows that a run appends, and that a reader can verify.

The run tracks the length and the checksum of the rows that it has written. Every checkpoint and
result.json store this fingerprint, so that lost, damaged or edited rows are detected.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxformer.core.errors import UserError
from jaxformer.io.atomic_files import dumps, errors_name, sha256, write_atomically
from jaxformer.io.file_lock import refuse_links

Row = dict[str, Any]
Fingerprint = Mapping[str, Any]  # {"bytes": length of the file, "sha256": its checksum}


class Rows:
    """The rows of a file. A writer calls `resume` before `append`."""

    def __init__(self, file: Path):
        self.file = file
        # Length and hash of the rows that this process has written or verified.
        self._length, self._hash = 0, None

    def read(self, expected: Fingerprint | None = None) -> list[Row]:
        """Reads all complete rows; raises a UserError if they do not match their fingerprint.

        An incomplete last line is skipped: its writer was killed.

        Args:
            expected: the stored fingerprint. A process that writes the rows uses its own.
        """
        content = self._content()
        expected = self.fingerprint() or expected
        if expected is not None:
            if why := _difference(content, expected):
                raise UserError(f"{self.file} is damaged: {why}.")
            content = content[: expected["bytes"]]
        rows = []
        for number, line in enumerate(content.split(b"\n")[:-1], 1):
            try:
                rows.append(json.loads(line))
                rows[-1]["step"]  # raises if this is no row
            except (ValueError, TypeError, KeyError, RecursionError):
                raise UserError(f"{self.file} is damaged: line {number} is no row.") from None
        return rows

    def append(self, rows: list[Row]) -> None:
        """Appends rows; a row is complete once its line end is written."""
        text = _as_lines(rows)
        with errors_name(self.file), open(self.file, "ab", opener=refuse_links) as file:
            file.write(text)
        if self._hash is not None:
            self._length += len(text)
            self._hash.update(text)

    def fingerprint(self) -> Fingerprint | None:
        """Returns the length and checksum of the rows; None in a process that only reads."""
        if self._hash is None:
            return None
        return {"bytes": self._length, "sha256": self._hash.hexdigest()}

    def difference(self, expected: Fingerprint) -> str:
        """Returns why the file does not begin with the rows of a fingerprint, or ""."""
        return _difference(self._content(), expected)

    def resume(self, expected: Fingerprint | None, step: int) -> None:
        """Deletes the rows after a checkpoint, which the resumed run will write again.

        Args:
            expected: the fingerprint in the checkpoint; old checkpoints have none.
            step: the step of the checkpoint; without a fingerprint, rows up to it are kept.
        """
        before = self._content()
        if expected is not None:
            content = before[: expected["bytes"]]
        elif step:
            content = _as_lines([row for row in self.read() if row["step"] <= step])
        else:
            content = b""
        if content != before:
            write_atomically(self.file, content)
        self._length, self._hash = len(content), hashlib.sha256(content)

    def _content(self) -> bytes:
        try:
            return self.file.read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise UserError(f"cannot read {self.file}: {error.strerror}.") from None


def _as_lines(rows: list[Row]) -> bytes:
    return "".join(dumps(row) + "\n" for row in rows).encode()


def _difference(content: bytes, expected: Fingerprint) -> str:
    if len(content) < expected["bytes"]:
        return f"it has {len(content)} of the {expected['bytes']} bytes that were written"
    is_same = sha256(content[: expected["bytes"]]) == expected["sha256"]
    return "" if is_same else "its rows are not those that were written"
