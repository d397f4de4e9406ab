"""Readers of files with a row for each document: JSON lines and parquet.

Each reader yields `Piece`s like the reader of plain text (`readers.py`). Rows with blank text are
skipped. `check_row` is the common check of a row's text and class. `tables.py` reads compressed
files, CSV and TSV.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from jaxformer.core.errors import UserError, did_you_mean, one_line
from jaxformer.data.readers import Piece, bounded_lines, decode_utf8, text_start

COUNT_BLOCK_BYTES = 2**20
Where = Callable[[], str]  # names the place of a row; called only if the row is refused


def read_json_lines(file: Path, start: int, text: str, label: str) -> Iterator[Piece]:
    """Reads one JSON object from each line, from the byte `start` on.

    Args:
        start: the offset at which reading begins: 0, or the `after` of a piece.
        text: the field with the text of a document.
        label: the field with its class; "" for documents without classes.
    """
    with open(file, "rb") as stream:
        after = start or text_start(stream)
        stream.seek(after)
        for line in bounded_lines(stream, file, after):
            before, after = after, after + len(line)
            if not line.strip():
                continue
            where = partial(_line_at, file, before)
            row = json_object(decode_utf8(line, file, before), where)
            content = check_row(row, text, label, where)
            if content.strip():
                yield Piece(content, ends=True, label=row[label] if label else None, after=after)


def read_parquet(file: Path, start: int, text: str, label: str) -> Iterator[Piece]:
    """Reads the rows of a parquet file from row `start` on. Checksums of pages are verified.

    Args:
        start: the number of the first row: 0, or the `after` of a piece.
        text: the column with the text of a document.
        label: the column with its class; "" for documents without classes.
    """
    table = _parquet(file)
    names = table.schema_arrow.names
    columns = [name for name in (text, label) if name]
    for name in columns:
        if name not in names:
            raise missing_field_error(name, names, str(file))
    passed = 0  # rows that were read or skipped
    for group in range(table.metadata.num_row_groups):
        rows = table.metadata.row_group(group).num_rows
        if passed + rows <= start:
            passed += rows
            continue
        for row in _rows_of_group(table, group, columns, file):
            where = partial(_row_at, file, passed)
            passed += 1
            if passed <= start:
                continue
            content = check_row(row, text, label, where)
            if content.strip():
                yield Piece(content, ends=True, label=row[label] if label else None, after=passed)


READERS: dict[str, Callable] = {".jsonl": read_json_lines, ".parquet": read_parquet}


def parquet_rows(file: Path) -> int:
    """Returns the number of rows of a parquet file."""
    return _parquet(file).metadata.num_rows


def json_object(line: str, where: Where) -> dict[str, Any]:
    """Parses a line that must be a JSON object."""
    try:
        row = json.loads(line)
    except RecursionError:
        raise UserError(f"{where()}: the JSON is nested too deeply.") from None
    except ValueError:
        raise UserError(f"{where()}: the line is not JSON.") from None
    if not isinstance(row, dict):
        raise UserError(f"{where()}: expected an object, got {str(row)[:40]!r}.")
    return row


def check_row(row: Mapping[str, Any], text: str, label: str, where: Where) -> str:
    """Returns the text of a row; raises UserError if it lacks a text or a class.

    Args:
        row: the fields by name.
        text: the name of the field with the text.
        label: the name of the field with the class, or "".
        where: names the row in errors.
    """
    for name in filter(None, (text, label)):
        if name not in row:
            raise missing_field_error(name, [*row], where())
    content = row[text]
    if not isinstance(content, str):
        raise UserError(f"{where()}: the field {text!r} is no text: {str(content)[:40]!r}.")
    if not content.isascii():
        _refuse_half_surrogate(content, where)
    if label and row[label] in (None, "") and content.strip():
        empty = "null" if row[label] is None else "empty"
        raise UserError(
            f"{where()} has no class: {label!r} is {empty}. Leave out rows without a class."
        )
    return content


def missing_field_error(name: str, names: list[str], where: str) -> UserError:
    """Returns the error for a field that a row or a table lacks."""
    return UserError(f"{where} has no {name!r}.{did_you_mean(name, names)} It has: {names}.")


def _refuse_half_surrogate(content: str, where: Where) -> None:
    """Raises UserError for text that UTF-8 cannot represent, such as the JSON "\\ud800"."""
    try:
        content.encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(content[error.start]):04x}"
        raise UserError(
            f"{where()}: the text has half of a surrogate pair ({half}), which is no character. "
            "Repair the text or leave out the row."
        ) from None


def _row_at(file: Path, number: int) -> str:
    return f"{file}, row {number}"


def _line_at(file: Path, offset: int) -> str:
    """Returns "FILE, line 3, byte 55" for the line that begins at an offset."""
    number, left = 1, offset  # left: bytes before the line that were not read yet
    with open(file, "rb") as stream:
        while left and (block := stream.read(min(left, COUNT_BLOCK_BYTES))):
            number += block.count(b"\n")
            left -= len(block)
    return f"{file}, line {number}, byte {offset}"


def _rows_of_group(table: Any, group: int, columns: list[str], file: Path) -> Iterator[dict]:
    batches = table.iter_batches(batch_size=1000, row_groups=[group], columns=columns)
    while True:
        try:
            rows = next(batches, None)
        except (OSError, ValueError) as error:  # a damaged page
            reason = one_line(error, 120)
            raise UserError(f"{file}: row group {group} is damaged: {reason}.") from None
        if rows is None:
            return
        yield from rows.to_pylist()


def _parquet(file: Path) -> Any:
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise UserError(
            f"{file} needs the package pyarrow to be read: pip install 'jaxformer[prepare]'."
        ) from None
    try:
        return parquet.ParquetFile(file, page_checksum_verification=True)
    except Exception as error:  # pyarrow has its own error classes
        raise UserError(f"{file} is not a readable parquet file: {one_line(error, 120)}.") from None
