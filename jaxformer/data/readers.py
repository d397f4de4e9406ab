"""Readers of documents: plain text, JSON lines and parquet, in pieces.

A reader is a function (file, start, ..) that yields `Piece`s. A later call resumes with the `after`
of the last piece as its `start`. Errors name the offset of a wrong byte in the file.
"""

import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from jaxformer.core.errors import UserError, did_you_mean

# Bytes of a piece. Short texts have smaller pieces, so that parts get their requested sizes.
MAX_BLOCK_BYTES, MIN_BLOCK_BYTES = 2**16, 2**9
BLOCKS_WITHOUT_BREAK, BLOCKS_WITHOUT_SPLIT = 4, 16  # see _split_point
SPACES = b" \t\r\n\v\f"
BEFORE_MARK = re.compile(r"[^\W_](?=[,.;:!?…、。，；：！？])")  # a letter or a digit


class Piece(NamedTuple):
    """A piece of a document."""

    text: str
    ends: bool  # True for the last piece of a document
    label: Any  # None if documents have no classes
    after: int  # start of the next piece: a byte offset or a record number


def read_text(file: Path, start: int, documents: str) -> Iterator[Piece]:
    """Reads plain text in which each "file" or each "line" is a document.

    A file is split where tokenizers begin a token (`_split_point`), so that its tokens equal those
    of the whole text. A line is never split. Blank lines are skipped.
    """
    with open(file, "rb") as stream:
        stream.seek(start)
        rest, at, size = b"", start, _size(file)
        block_size = min(max(size // 500, MIN_BLOCK_BYTES), MAX_BLOCK_BYTES)
        while True:
            if documents == "line":  # long lines are read in growing steps
                more = stream.read(max(block_size, len(rest)))
            else:  # blocks end at the same offsets wherever reading begins
                more = stream.read(block_size - stream.tell() % block_size)
            rest += more
            if not more and not rest:
                return
            if not more:
                cut = len(rest)
            elif documents == "line":
                cut = rest.rfind(b"\n") + 1
            else:
                cut = _split_point(rest, block_size)
            if not cut:
                continue
            block, rest = rest[:cut], rest[cut:]
            text = decoded(block, file, at)
            if documents == "file":
                ends = not rest and at + cut >= size
                yield Piece(text, ends, None, at + cut)
            else:
                place = at
                for line in io.StringIO(text, newline="\n"):  # only \n ends a line
                    place += len(line.encode())
                    if line.strip():
                        yield Piece(line.strip("\r\n"), True, None, place)
            at += cut
            if not more:
                return


def read_json_lines(file: Path, start: int, text: str, label: str) -> Iterator[Piece]:
    """Reads one JSON object by line. Rows with blank text are skipped."""
    with open(file, "rb") as stream:
        stream.seek(start)
        at = start
        for line in stream:
            before, at = at, at + len(line)
            if not line.strip():
                continue
            try:
                row = json.loads(decoded(line, file, before))
            except ValueError as error:
                if isinstance(error, UserError):
                    raise
                raise UserError(f"{file}: the line at byte {before} is not JSON.") from None
            content, ends, kind = _fields(row, text, label, f"{file}, byte {before}")
            if content.strip():
                yield Piece(content, ends, kind, at)


def read_parquet(file: Path, start: int, text: str, label: str) -> Iterator[Piece]:
    """Reads the rows of a parquet file from row `start`. Rows with blank text are skipped."""
    table = _parquet(file)
    names = table.schema_arrow.names
    columns = [name for name in (text, label) if name]
    for name in columns:
        if name not in names:
            raise _no_field(name, names, str(file))
    seen = 0
    for group in range(table.metadata.num_row_groups):
        rows = table.metadata.row_group(group).num_rows
        if seen + rows <= start:
            seen += rows
            continue
        for batch in table.iter_batches(batch_size=1000, row_groups=[group], columns=columns):
            for row in batch.to_pylist():
                seen += 1
                if seen <= start:
                    continue
                content, ends, kind = _fields(row, text, label, f"{file}, row {seen - 1}")
                if content.strip():
                    yield Piece(content, ends, kind, seen)


def parquet_rows(file: Path) -> int:
    """Returns the number of rows of a parquet file."""
    return _parquet(file).metadata.num_rows


def decoded(content: bytes, file: Path, at: int) -> str:
    """Decodes UTF-8. `at` is the offset of the bytes in the file, for errors."""
    nul = content.find(b"\0")
    if nul >= 0:
        raise UserError(f"{file} is binary, not text: byte {at + nul} is 0.")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is not UTF-8: byte {at + error.start} is invalid.") from None


def check_file(file: Path) -> None:
    """Raises UserError unless the path is a readable file that is not empty."""
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


def _split_point(block: bytes, size: int) -> int:
    """Returns the offset of the last safe split point, or 0 if more text must be read.

    Splitting there does not change the tokens. The candidates, in this order:

    1. before a line break between two characters that are no spaces, where GPT-2's pattern and our
       BPE begin a token;
    2. after BLOCKS_WITHOUT_BREAK times `size` bytes: before the last of several line breaks, before
       a space that a word follows, or before a punctuation mark after a letter (as in Chinese);
    3. after BLOCKS_WITHOUT_SPLIT times `size` bytes: between any two characters. Tokens may differ
       from those of the whole text.

    Other tokenizers may differ elsewhere too: Llama 3 joins a full stop and the line break after
    it, and SentencePiece marks the beginning of each piece.
    """
    is_long, at = len(block) >= BLOCKS_WITHOUT_BREAK * size, len(block) - 1
    while (at := block.rfind(b"\n", 0, at)) > 0:
        if (is_long or block[at - 1] not in SPACES) and _word_follows(block, at):
            return at
    at = len(block) - 1 if is_long else 0
    while (at := block.rfind(b" ", 0, at)) > 0:
        if _word_follows(block, at):
            return at
    if not is_long:
        return 0
    text = block.decode(errors="surrogateescape")
    end = max((match.end() for match in BEFORE_MARK.finditer(text)), default=0)
    if not end and len(block) >= BLOCKS_WITHOUT_SPLIT * size:
        return _whole_characters(block)
    return len(text[:end].encode(errors="surrogateescape"))


def _word_follows(block: bytes, at: int) -> bool:
    """Returns True if the character after a byte is complete and no space."""
    character = block[at + 1 : at + 5].decode(errors="ignore")[:1]
    return bool(character) and not character.isspace()


def _whole_characters(block: bytes) -> int:
    """Returns the length without an incomplete last character."""
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
        raise UserError(f"{where}: the field {text!r} is no text: {str(row[text])[:40]!r}.")
    if label and row[label] is None and row[text].strip():
        raise UserError(f"{where} has no class: {label!r} is null. Leave out rows without a class.")
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
    except Exception as error:  # pyarrow has its own types
        reason = " ".join(str(error).split())[:120]
        raise UserError(f"{file} is not a readable parquet file: {reason}.") from None


def _size(file: Path) -> int:
    return file.stat().st_size
