"""Documents out of files: plain text, JSON lines, parquet. All are read in pieces and can go on.

A reader is a function (file, start, ..) that yields `Piece`s; `after` of a piece is the `start` at
which a later call goes on. A wrong byte is named by its place in the file.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from jaxformer.errors import UserError, did_you_mean

# Bytes of a text that are a piece, if there is a good place to cut; of a short text less, so that
# its parts are of the sizes that were asked for.
BLOCK, LEAST = 2**16, 2**9
LONGEST = 2**22  # bytes after which any place is good enough
SPACES = b" \t\r\n\v\f"


class Piece(NamedTuple):
    """Some text. `ends`: it is the last piece of its document."""

    text: str
    ends: bool
    label: Any  # None if documents have no classes
    after: int  # where the next piece begins: a byte, or the number of a record


def read_text(file: Path, start: int, documents: str) -> Iterator[Piece]:
    """A file of plain text; `documents`: it is one ("file"), or each line is one ("line").

    Pieces are cut where no tokenizer has a token across (`_cut`), so that the tokens are those of
    the whole text. Empty lines are no documents.
    """
    with open(file, "rb") as held:
        held.seek(start)
        rest, at, size = b"", start, _size(file)
        block_size = min(max(size // 500, LEAST), BLOCK)
        while True:
            more = held.read(block_size)
            rest += more
            cut = _cut(rest, 4 * block_size) if more else len(rest)
            if not more and not rest:
                return
            if not cut and len(rest) < LONGEST:
                continue
            cut = cut or _whole_signs(rest)
            block, rest = rest[:cut], rest[cut:]
            text = decoded(block, file, at)
            if documents == "file":
                ends = not rest and at + cut >= size
                yield Piece(text, ends, None, at + cut)
            else:
                place = at
                for line in text.splitlines(keepends=True):
                    place += len(line.encode())
                    if words := line.strip("\r\n"):
                        yield Piece(words, True, None, place)
            at += cut
            if not more:
                return


def read_json_lines(file: Path, start: int, text: str, label: str) -> Iterator[Piece]:
    """A JSON object a line, with its text and perhaps its label under these names."""
    with open(file, "rb") as held:
        held.seek(start)
        at = start
        for line in held:
            before, at = at, at + len(line)
            if not line.strip():
                continue
            try:
                row = json.loads(decoded(line, file, before))
            except ValueError as error:
                if isinstance(error, UserError):
                    raise
                raise UserError(f"{file}: what begins at byte {before} is no JSON.") from None
            yield Piece(*_fields(row, text, label, f"{file}, byte {before}"), at)


def read_parquet(file: Path, start: int, text: str, label: str) -> Iterator[Piece]:
    """The rows of a parquet file; `start` counts them."""
    held = _parquet(file)
    names = held.schema_arrow.names
    columns = [name for name in (text, label) if name]
    for name in columns:
        if name not in names:
            raise _no_field(name, names, str(file))
    seen = 0
    for group in range(held.metadata.num_row_groups):
        rows = held.metadata.row_group(group).num_rows
        if seen + rows <= start:
            seen += rows
            continue
        for batch in held.iter_batches(batch_size=1000, row_groups=[group], columns=columns):
            for row in batch.to_pylist():
                seen += 1
                if seen > start:
                    yield Piece(*_fields(row, text, label, f"{file}, row {seen - 1}"), seen)


def parquet_rows(file: Path) -> int:
    """How many rows the file has."""
    return _parquet(file).metadata.num_rows


def decoded(content: bytes, file: Path, at: int) -> str:
    """The text of some bytes; `at` is their place in the file."""
    nul = content.find(b"\0")
    if nul >= 0:
        raise UserError(f"{file} is binary, not text: byte {at + nul} is 0.")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is not UTF-8: byte {at + error.start} is wrong.") from None


def check_file(file: Path) -> None:
    """Raises unless this is a file with something in it."""
    if not file.exists():
        raise UserError(f"there is no file {file}.")
    if not file.is_file():
        raise UserError(f"{file} must be a file, not a device or a pipe: it has no end.")
    if not _size(file):
        raise UserError(f"the file {file} is empty.")
    try:
        with open(file, "rb"):
            pass
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror}.") from None


READERS: dict[str, Callable] = {".jsonl": read_json_lines, ".parquet": read_parquet}


def _cut(block: bytes, patience: int) -> int:
    """Before the last line break between two signs that are no spaces; 0 if there is none.

    Tokenizers make the break a token of its own there, on either side of a cut. Where paragraphs
    are apart by several breaks, a long block is cut before the last one of them, as GPT-2's
    pattern does.
    """
    at = len(block) - 1
    while (at := block.rfind(b"\n", 0, at)) > 0:
        after_space = block[at - 1] in SPACES and len(block) < patience
        if block[at + 1] < 128 and block[at + 1] not in SPACES and not after_space:
            return at
    return 0


def _whole_signs(block: bytes) -> int:
    """The length without the beginning of a sign of several bytes."""
    cut = len(block)
    while cut > len(block) - 4 and block[cut - 1] & 0xC0 == 0x80:
        cut -= 1
    return cut - 1 if block[cut - 1] >= 0xC0 else len(block)


def _fields(row: Any, text: str, label: str, where: str) -> tuple[str, bool, Any]:
    if not isinstance(row, dict):
        raise UserError(f"{where}: expected an object with {text!r}, got {str(row)[:40]!r}.")
    for name in filter(None, (text, label)):
        if name not in row:
            raise _no_field(name, [*row], where)
    if not isinstance(row[text], str):
        raise UserError(f"{where}: the field {text!r} holds no text but {str(row[text])[:40]!r}.")
    return row[text], True, row[label] if label else None


def _no_field(name: str, names: list[str], where: str) -> UserError:
    return UserError(f"{where} has no {name!r}.{did_you_mean(name, names)} It has: {names}.")


def _parquet(file: Path) -> Any:
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise UserError(
            f"{file} needs the package pyarrow to be read: pip install 'jaxformer[prepare]'."
        ) from None
    try:
        return parquet.ParquetFile(file)
    except Exception as error:  # pyarrow's own kinds
        reason = " ".join(str(error).split())[:120]
        raise UserError(f"{file} is not a readable parquet file: {reason}.") from None


def _size(file: Path) -> int:
    return file.stat().st_size
