"""metrics.jsonl: rows that a run adds one after the other, and that a reader can trust.

The run keeps the length and the checksum of what it has written. Every checkpoint and result.json
say them, so that a row which is lost, damaged or other is noticed.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxformer.core.errors import UserError
from jaxformer.io.atomic_files import dumps, naming, write_atomically

Row = dict[str, Any]
Held = Mapping[str, Any]  # {"bytes": how many, "sha256": their checksum}


class Rows:
    """The rows of a file. A writer calls `go_on` first, then `append`."""

    def __init__(self, file: Path):
        self.file = file
        self.length, self.hash = 0, None  # of what this process has written, if it writes

    def read(self, held: Held | None = None) -> list[Row]:
        """The rows, compared with what was written; a last line cut short by a kill is left out."""
        held, content = self.written() or held, self._content()
        if held is not None:
            if why := _differs(content, held):
                raise UserError(f"{self.file} is damaged: {why}.")
            content = content[: held["bytes"]]
        rows = []
        for number, line in enumerate(content.split(b"\n")[:-1], 1):
            try:
                rows.append(json.loads(line))
                rows[-1]["step"]
            except (ValueError, TypeError, KeyError, RecursionError):
                raise UserError(f"{self.file} is damaged: line {number} is no row.") from None
        return rows

    def append(self, rows: list[Row]) -> None:
        """Adds rows; each is whole once its line end is written."""
        text = _lines(rows)
        with naming(self.file), open(self.file, "ab", opener=no_link) as file:
            file.write(text)
        if self.hash is not None:
            self.length += len(text)
            self.hash.update(text)

    def written(self) -> Held | None:
        """What the rows are, as far as this process wrote or verified them."""
        return self.hash and {"bytes": self.length, "sha256": self.hash.hexdigest()}

    def differ(self, held: Held) -> str:
        """Why the file does not begin with the rows that a checkpoint speaks of, or ""."""
        return _differs(self._content(), held)

    def go_on(self, held: Held | None, step: int) -> None:
        """Forgets the rows that came after a checkpoint, which a resumed run will write again.

        A checkpoint from before there were checksums says None: then its step decides.
        """
        content = before = self._content()
        if held is not None:
            content = content[: held["bytes"]]
        else:
            content = _lines([row for row in self.read() if row["step"] <= step]) if step else b""
        if content != before:
            write_atomically(self.file, content)
        self.length, self.hash = len(content), hashlib.sha256(content)

    def _content(self) -> bytes:
        try:
            return self.file.read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise UserError(f"cannot read {self.file}: {error.strerror}.") from None


def no_link(name: str, flags: int) -> int:
    """An opener that refuses a link, which may lead to somebody else's file."""
    return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)


def _lines(rows: list[Row]) -> bytes:
    return "".join(dumps(row) + "\n" for row in rows).encode()


def _differs(content: bytes, held: Held) -> str:
    if len(content) < held["bytes"]:
        return f"it has {len(content)} of the {held['bytes']} bytes that were written"
    same = hashlib.sha256(content[: held["bytes"]]).hexdigest() == held["sha256"]
    return "" if same else "its rows are not those that were written"
