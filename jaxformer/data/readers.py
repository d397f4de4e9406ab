"""Documents out of files: plain text, JSON lines, parquet. All are read in pieces and can go on.

A reader is a function (file, start, ..) that yields `Piece`s; `after` of a piece is the `start` at
which a later call goes on. A wrong byte is named by its place in the file.
"""

import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from jaxformer.core.errors import UserError, did_you_mean

# Bytes of a text that are a piece, if there is a good place to cut; of a short text less, so that
# its parts are of the sizes that were asked for.
BLOCK, LEAST = 2**16, 2**9
PATIENCE, LONGEST = 4, 16  # so many of them without a line break, and without any good place
SPACES = b" \t\r\n\v\f"
BEFORE_MARK = re.compile(r"[^\W_](?=[,.;:!?…、。，；：！？])")  # a letter or a digit


class Piece(NamedTuple):
    """Some text. `ends`: it is the last piece of its document."""

    text: str
    ends: bool
    label: Any  # None if documents have no classes
    after: int  # where the next piece begins: a byte, or the number of a record


def read_text(file: Path, start: int, documents: str) -> Iterator[Piece]:
    """A file of plain text; `documents`: it is one ("file"), or each line is one ("line").

    One document is cut where tokenizers begin a token (`_cut`), so that the tokens are those of
    the whole text. A line is never cut, however long it is; blank lines are no documents.
    """
    with open(file, "rb") as held:
        held.seek(start)
        rest, at, size = b"", start, _size(file)
        block_size = min(max(size // 500, LEAST), BLOCK)
        while True:
            if documents == "line":  # one that goes on and on is read in ever larger steps
                more = held.read(max(block_size, len(rest)))
            else:  # blocks end at the same places, wherever the reading begins
                more = held.read(block_size - held.tell() % block_size)
            rest += more
            if not more and not rest:
                return
            if not more:
                cut = len(rest)
            elif documents == "line":
                cut = rest.rfind(b"\n") + 1
            else:
                cut = _cut(rest, block_size)
            if not cut:
                continue
            block, rest = rest[:cut], rest[cut:]
            text = decoded(block, file, at)
            if documents == "file":
                ends = not rest and at + cut >= size
                yield Piece(text, ends, None, at + cut)
            else:
                place = at
                for line in io.StringIO(text, newline="\n"):  # which other signs do not end
                    place += len(line.encode())
                    if line.strip():
                        yield Piece(line.strip("\r\n"), True, None, place)
            at += cut
            if not more:
                return


def read_json_lines(file: Path, start: int, text: str, label: str) -> Iterator[Piece]:
    """A JSON object a line, with its text and perhaps its label under these names.

    Rows whose text is blank are no documents.
    """
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
            words, ends, kind = _fields(row, text, label, f"{file}, byte {before}")
            if words.strip():
                yield Piece(words, ends, kind, at)


def read_parquet(file: Path, start: int, text: str, label: str) -> Iterator[Piece]:
    """The rows of a parquet file; `start` counts them. Those whose text is blank are left out."""
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
                if seen <= start:
                    continue
                words, ends, kind = _fields(row, text, label, f"{file}, row {seen - 1}")
                if words.strip():
                    yield Piece(words, ends, kind, seen)


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


def _cut(block: bytes, size: int) -> int:
    """Where the text can be cut so that its tokens stay the same; 0 if it has to go on first.

    Before the last line break between two signs that are no spaces: GPT-2's pattern, which the BPE
    that is trained here has too, makes the break a token of its own there. After PATIENCE times
    `size` bytes without one, also before the last of several breaks, else before a space that a
    word follows, else before a punctuation mark that follows a letter, as in Chinese.

    After LONGEST times `size` bytes it is cut between any two signs. There tokens may differ from
    those of the whole text. With other patterns they may differ elsewhere too: Llama 3's joins a
    full stop and the line break after it, and SentencePiece marks where each piece begins.
    """
    is_long, at = len(block) >= PATIENCE * size, len(block) - 1
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
    end = max((found.end() for found in BEFORE_MARK.finditer(text)), default=0)
    if not end and len(block) >= LONGEST * size:
        return _whole_signs(block)
    return len(text[:end].encode(errors="surrogateescape"))


def _word_follows(block: bytes, at: int) -> bool:
    """Is the sign after a byte known, and no space?"""
    sign = block[at + 1 : at + 5].decode(errors="ignore")[:1]
    return bool(sign) and not sign.isspace()


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
    except Exception as error:  # pyarrow's own kinds
        reason = " ".join(str(error).split())[:120]
        raise UserError(f"{file} is not a readable parquet file: {reason}.") from None


def _size(file: Path) -> int:
    return file.stat().st_size
