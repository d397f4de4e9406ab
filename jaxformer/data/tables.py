"""Tables with a row for each document: CSV, TSV and JSON lines, also compressed (.gz, .zst).

    corpus(Path("reviews.tsv"), "text", "polarity>0")

A label is the name of a column, whose values become classes, or a comparison of a numeric column
with a number: false is class 0, true is class 1. The first line of CSV and TSV names the columns.
CSV has quotes as in RFC 4180; TSV has none. The whole table is read once when it is opened, to
check it and to find its classes.

A hash of its text assigns a row to the training, validation or test part. The part therefore does
not depend on the order of the rows, and equal texts are in one part.
"""

import csv
import gzip
import hashlib
import math
import operator
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

from jaxformer.core.errors import UserError, one_line
from jaxformer.data.protocols import Corpus, TextSource
from jaxformer.data.readers import (
    BYTE_ORDER_MARK,
    MAX_LINE_BYTES,
    Piece,
    bounded_lines,
    check_file,
    decode_utf8,
)
from jaxformer.data.row_readers import Where, check_row, json_object, missing_field_error
from jaxformer.data.token_index import MAX_CLASSES, PARTS

DELIMITERS = {".csv": ",", ".tsv": "\t"}
KINDS = (".csv", ".tsv", ".jsonl")
COMPRESSIONS = (".gz", ".zst")
# {operator: its opposite}; the longer ones come first, as COMPARISON tries them in this order.
OPPOSITES = {">=": "<", "<=": ">", "==": "!=", "!=": "==", ">": "<=", "<": ">="}
OPERATOR_FUNCTIONS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
}
COMPARISON = re.compile(rf"(.+?)\s*({'|'.join(OPPOSITES)})\s*([-+.\deE]+)")
Row = Mapping[str, Any]


class Label(NamedTuple):
    """The class of a row: the value of a column, or its comparison with a number."""

    column: str  # "" if rows have no classes
    operator: str = ""  # "" for the value itself
    bound: float = 0.0

    @property
    def comparison_classes(self) -> tuple[str, ...]:
        """The names of the two classes of a comparison; empty without one."""
        if not self.operator:
            return ()
        signs = (OPPOSITES[self.operator], self.operator)
        return tuple(f"{self.column}{sign}{self.bound:g}" for sign in signs)

    def of(self, row: Row, where: Where) -> str:
        """Returns the name of a row's class."""
        value = row[self.column]
        if isinstance(value, dict | list):
            raise UserError(f"{where()}: {self.column!r} is no class but {str(value)[:40]!r}.")
        if not self.operator:
            return str(value)
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if math.isnan(number):
            raise UserError(
                f"{where()}: {self.column!r} is no number but {str(value)[:40]!r}; a comparison "
                "needs numbers."
            )
        is_true = OPERATOR_FUNCTIONS[self.operator](number, self.bound)
        return self.comparison_classes[is_true]


def parse_label(label: str, columns: list[str] | None = None) -> Label:
    """Parses --label: a column, or a comparison such as "polarity>0".

    Args:
        label: the text of the flag.
        columns: the columns of the table. If `label` is the name of a column, it is no comparison.
    """
    match = COMPARISON.fullmatch(label)
    if match is None or label in (columns or ()):
        return Label(label)
    try:
        return Label(match[1], match[2], float(match[3]))
    except ValueError:
        raise UserError(f"--label={label}: {match[3]!r} is no number.") from None


def corpus(file: Path, text: str, label: str, shares: tuple[float, float]) -> Corpus:
    """Opens a table as a corpus.

    Args:
        file: a file that ends in .csv, .tsv or .jsonl, and then perhaps in .gz or .zst.
        text: the column with the text.
        label: the column with the class, a comparison, or "".
        shares: the shares of rows for validation and for test.
    """
    _kind_of(file)
    check_file(file)
    first = next(_rows(file), None)
    if first is None:
        raise UserError(f"{file} has no rows.")
    columns = [*first[1]]
    parsed = parse_label(label, columns)
    for name in filter(None, (text, parsed.column)):
        if name not in columns:
            raise missing_field_error(name, columns, str(file))
    rows = 0
    names: dict[str, None] = {}  # the names of the classes, in order of appearance
    bytes_of: dict[str, int] = dict.fromkeys(PARTS, 0)
    for where, row in _rows(file):
        rows += 1
        content = check_row(row, text, parsed.column, where)
        if not content.strip():
            continue
        bytes_of[_part_of(content, shares)] += len(content.encode())
        if not parsed.column:
            continue
        names[parsed.of(row, where)] = None
        if len(names) > MAX_CLASSES:
            raise _too_many_classes(file, parsed.column)
    classes = parsed.comparison_classes or _sorted_classes(file, parsed.column, names)
    sources = [
        TextSource(
            f"{file.name}:{part}",
            part,
            rows,
            size,
            partial(_pieces, file, text, parsed, classes, shares, part),
        )
        for part, size in bytes_of.items()
        if size
    ]
    return Corpus(tuple(sources), classes, (file,))


def _part_of(text: str, shares: tuple[float, float]) -> str:
    """Returns the part of a row, drawn by a hash of its text."""
    draw = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) / 2**64
    validation, test = shares
    if draw < test:
        return "test"
    return "validation" if draw < test + validation else "train"


def _sorted_classes(file: Path, column: str, names: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the names of the classes, sorted as numbers if all are numbers, else as text."""
    try:
        numbers = {name: float(name) for name in names}
    except ValueError:
        _refuse_two_spellings(file, column, {name: name.strip() for name in names})
        return tuple(sorted(names))
    _refuse_two_spellings(file, column, numbers)
    fractions = [name for name, number in numbers.items() if not number.is_integer()]
    if fractions:
        raise UserError(
            f"{file}: {column!r} has numbers that are no classes, such as {fractions[0]}; "
            f"compare them with a number, as in --label '{column}>0'."
        )
    return tuple(sorted(names, key=numbers.__getitem__))


def _refuse_two_spellings(file: Path, column: str, meanings: Mapping[str, Any]) -> None:
    """Raises UserError if two names of classes, such as "1" and "1.0", mean the same."""
    first_of: dict[Any, str] = {}
    for name, meaning in meanings.items():
        first = first_of.setdefault(meaning, name)
        if first != name:
            raise UserError(
                f"{file}: {column!r} writes one class as {first!r} and {name!r}; write it in one "
                "way."
            )


def _too_many_classes(file: Path, column: str) -> UserError:
    return UserError(
        f"{file}: {column!r} has more than {MAX_CLASSES:,} different values, too many for "
        f"classes. Give another column, or compare a numeric one, as in --label '{column}>0'."
    )


def _pieces(
    file: Path,
    text: str,
    label: Label,
    classes: tuple[str, ...],
    shares: tuple[float, float],
    part: str,
    start: int,
) -> Iterator[Piece]:
    """Yields the rows of a part from row `start` on; rows with blank text are skipped."""
    numbers = {name: number for number, name in enumerate(classes)}
    for i, (where, row) in enumerate(_rows(file)):
        content = check_row(row, text, label.column, where) if i >= start else ""
        if not content.strip() or _part_of(content, shares) != part:
            continue
        if not label.column:
            yield Piece(content, True, None, i + 1)
            continue
        name = label.of(row, where)
        if name not in numbers:
            raise UserError(f"{where()}: the class {name!r} appeared while {file} was read.")
        yield Piece(content, True, numbers[name], i + 1)


def _rows(file: Path) -> Iterator[tuple[Where, Row]]:
    """Yields (a function that names the row in errors, fields by name) for each row."""
    kind = _kind_of(file)
    with _opened(file) as stream:
        lines = _decoded_lines(stream, file)
        if kind == ".jsonl":
            yield from _json_rows(lines, file)
        else:
            yield from _table_rows(lines, file, kind)


def _json_rows(lines: Iterator[str], file: Path) -> Iterator[tuple[Where, Row]]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            where = partial("{}, line {}".format, file, number)
            yield where, json_object(line, where)


def _table_rows(lines: Iterator[str], file: Path, kind: str) -> Iterator[tuple[Where, Row]]:
    csv.field_size_limit(MAX_LINE_BYTES)
    quoting = csv.QUOTE_MINIMAL if kind == ".csv" else csv.QUOTE_NONE
    reader = csv.reader(lines, delimiter=DELIMITERS[kind], quoting=quoting, strict=True)
    header: list[str] = []
    while True:
        where = partial("{}, line {}".format, file, reader.line_num + 1)
        try:
            fields = next(reader, None)
        except csv.Error as error:
            raise UserError(f"{where()}: the row is no {kind[1:].upper()} ({error}).") from None
        if fields is None:
            return
        if not fields:
            continue
        if not header:
            header = fields
            if repeated := [name for name in header if header.count(name) > 1]:
                raise UserError(f"{where()}: two columns have the name {repeated[0]!r}.")
            continue
        if len(fields) != len(header):
            raise UserError(
                f"{where()}: the row has {len(fields)} fields, the header has {len(header)}."
            )
        yield where, dict(zip(header, fields, strict=True))


def _decoded_lines(stream: IO[bytes], file: Path) -> Iterator[str]:
    """Yields the lines as text, without a byte order mark at the beginning of the file."""
    offset = 0
    for line in bounded_lines(stream, file):
        has_mark = offset == 0 and line.startswith(BYTE_ORDER_MARK)
        skipped = len(BYTE_ORDER_MARK) if has_mark else 0
        yield decode_utf8(line[skipped:], file, offset + skipped)
        offset += len(line)


def _kind_of(file: Path) -> str:
    """Returns ".csv", ".tsv" or ".jsonl"."""
    endings = [ending for ending in file.suffixes if ending not in COMPRESSIONS]
    if not endings or endings[-1] not in KINDS or file.suffix not in (*KINDS, *COMPRESSIONS):
        raise UserError(
            f"a table is a file that ends in {', '.join(KINDS)}, and then perhaps in "
            f"{' or '.join(COMPRESSIONS)}; got {file.name!r}."
        )
    return endings[-1]


@contextmanager
def _opened(file: Path) -> Iterator[IO[bytes]]:
    """Opens a file that may be compressed; raises UserError if its compressed data is damaged."""
    errors: tuple[type[Exception], ...] = (OSError, EOFError, zlib.error)  # of damaged data
    if file.suffix == ".gz":
        opened: Any = gzip.open(file, "rb")  # noqa: SIM115 (closed below)
    elif file.suffix == ".zst":
        from jaxformer.data import zstd_stream

        opened = zstd_stream.open_stream(file)
        errors = *errors, zstd_stream.error_class()
    else:
        opened, errors = open(file, "rb"), ()  # noqa: SIM115 (closed below)
    with opened as stream:
        try:
            yield stream
        except errors as error:
            reason = one_line(error, 120) or type(error).__name__
            raise UserError(f"{file} is damaged: {reason}.") from None
