"""Checks of the files of a record, which may be damaged, foreign or hostile.

Each check raises ValueError with one line. The reader lists the record as unusable.
"""

import csv
import functools
import hashlib
import io
import json
import math
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxformer.io.atomic_files import dumps

LARGEST = 1e300  # the limit of a number's magnitude: sums of larger ones overflow
MAX_TEXT_BYTES = 16_000_000  # of a record or of its table
MAX_ARRAY_BYTES = 4_000_000_000  # of the unpacked arrays of a figure
MAX_PICTURE_SIDE, MAX_PIXELS = 20_000, 50_000_000


def regular_file(file: Path, max_bytes: float = math.inf) -> Path:
    """Returns the path if it is a regular file: reading a pipe or a device may never end."""
    if not file.is_file():
        raise ValueError("it is not a file")
    if file.stat().st_size > max_bytes:
        raise ValueError(f"it has more than {max_bytes:,} bytes")
    return file


def read_text(file: Path) -> str:
    """Returns the text of a file of at most MAX_TEXT_BYTES."""
    return regular_file(file, MAX_TEXT_BYTES).read_text(encoding="utf-8")


def content(file: Path) -> Any:
    """Returns the JSON value of a file."""
    try:
        return json.loads(read_text(file))
    except RecursionError:
        raise ValueError("its JSON is nested too deeply") from None


def is_number(value: Any) -> bool:
    """Returns whether a value is a finite number that fits into a float."""
    is_real = isinstance(value, int | float) and not isinstance(value, bool)
    return is_real and abs(value) < LARGEST


def sum_of(record: Mapping[str, Any]) -> str:
    """Returns the checksum of a record without its field "sum"."""
    return hash_of_json({name: value for name, value in record.items() if name != "sum"})


def hash_of_json(value: Any) -> str:
    """Returns `config_hash` of a value that was read from JSON."""
    return _digest(_sorted_json(value))


def check_content(record: Mapping[str, Any]) -> None:
    """Raises unless the record can be encoded as text and has its checksum."""
    content = {name: value for name, value in record.items() if name != "sum"}
    try:
        text = _sorted_json(content)
        if r"\ud" in text:  # it may have half a surrogate pair
            json.dumps(content, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("a text of it is not valid Unicode") from None
    if "sum" in record and record["sum"] != _digest(text):
        raise ValueError("it was edited: its checksum differs; record the run again")


@functools.lru_cache(256)
def check_picture(png: bytes) -> None:
    """Raises unless the bytes are a complete PNG with valid checksums and a bounded size."""
    if not png.startswith(b"\x89PNG\r\n\x1a\n"):
        raise ValueError("it is not a PNG")
    # After 8 bytes follow chunks: 4 bytes of size, 4 of kind, the data, 4 of checksum.
    start, kinds = 8, []
    while start < len(png):
        # A size that is cut off becomes huge, so that the chunk counts as damaged.
        (size,) = struct.unpack(">I", png[start : start + 4].ljust(4, b"\xff"))
        end = start + 8 + size
        body, crc = png[start + 4 : end], png[end : end + 4]
        if len(crc) < 4 or zlib.crc32(body) != int.from_bytes(crc):
            raise ValueError("a part of it is damaged")
        kinds.append(body[:4])
        start = end + 4
    # The first chunk, IHDR, begins with the width and the height.
    wide, high = struct.unpack(">II", png[16:24]) if kinds[:1] == [b"IHDR"] else (0, 0)
    if kinds[-1:] != [b"IEND"] or not 0 < max(wide, high) <= MAX_PICTURE_SIDE:
        raise ValueError(f"it has no end, or {wide} x {high} pixels")
    if not 0 < wide * high <= MAX_PIXELS:
        raise ValueError(f"it has {wide} x {high} pixels")
    from PIL import Image

    try:
        with Image.open(io.BytesIO(png)) as image:
            image.load()
    except Exception as error:  # Pillow raises many kinds
        raise ValueError(f"it cannot be drawn ({type(error).__name__})") from None


def check_arrays(npz: Path) -> None:
    """Raises unless the arrays have at most MAX_ARRAY_BYTES when they are unpacked."""
    try:
        with zipfile.ZipFile(regular_file(npz)) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
    except zipfile.BadZipFile:
        raise ValueError("it is not a file of arrays") from None
    if size > MAX_ARRAY_BYTES:
        raise ValueError(f"its arrays have more than {MAX_ARRAY_BYTES:,} bytes")


def rows(table: str) -> list[list[str]]:
    """Returns the cells of a CSV text."""
    try:
        return [*csv.reader(io.StringIO(table))]
    except csv.Error as error:
        raise ValueError(f"it is not CSV: {error}") from None


def _sorted_json(value: Any) -> str:
    """Returns the text of `dumps`, without converting a value that has only JSON types."""
    try:
        return json.dumps(value, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError):  # NaN and infinity, which become null
        return dumps(value)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
