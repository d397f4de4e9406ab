"""What the files of a record must be before anybody uses them: a record may come from anywhere.

Each check raises ValueError with one line; who reads the record names it and leaves it out.
"""

import csv
import functools
import io
import json
import math
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxformer.io.run_folder import config_hash

LARGEST = 16_000_000  # bytes of a record or of a table beside it
MOST_NUMBERS = 4_000_000_000  # bytes of the unpacked arrays of a figure
WIDEST, MOST_PIXELS = 20_000, 50_000_000  # of a picture


def regular(file: Path, most: float = math.inf) -> Path:
    """The file, if it is a file: a pipe or a device would be read for ever."""
    if not file.is_file():
        raise ValueError("it is not a file")
    if file.stat().st_size > most:
        raise ValueError(f"it has more than {most:,} bytes")
    return file


def text(file: Path) -> str:
    """A text of a bounded size."""
    return regular(file, LARGEST).read_text(encoding="utf-8")


def content(file: Path) -> Any:
    """The JSON of a record."""
    try:
        return json.loads(text(file))
    except RecursionError:
        raise ValueError("its JSON is nested too deeply") from None


def is_number(value: Any) -> bool:
    """Is it a finite number that a float can hold?"""
    return isinstance(value, int | float) and abs(value) < 1e300


def sum_of(record: Mapping[str, Any]) -> str:
    """The sum that a record carries of everything else that it says."""
    return config_hash({name: value for name, value in record.items() if name != "sum"})


def check_words(record: Mapping[str, Any]) -> None:
    """Raises unless the record can be written as text, and says what was recorded."""
    try:
        json.dumps(record, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeEncodeError:
        raise ValueError("a word of it has half a character") from None
    if record.get("sum", sum_of(record)) != sum_of(record):
        raise ValueError("it was edited by hand: its sum is another one; record the run again")


@functools.lru_cache(256)
def check_picture(png: bytes) -> None:
    """Raises unless it is a whole PNG of a sane size: every part has a sum of its own."""
    if not png.startswith(b"\x89PNG\r\n\x1a\n"):
        raise ValueError("it is not a PNG")
    at, kinds = 8, []
    while at < len(png):
        (size,) = struct.unpack(">I", png[at : at + 4].ljust(4, b"\xff"))
        body, crc = png[at + 4 : at + 8 + size], png[at + 8 + size : at + 12 + size]
        if len(crc) < 4 or zlib.crc32(body) != int.from_bytes(crc):
            raise ValueError("a part of it is damaged")
        kinds.append(body[:4])
        at += 12 + size
    wide, high = struct.unpack(">II", png[16:24]) if kinds[:1] == [b"IHDR"] else (0, 0)
    if kinds[-1:] != [b"IEND"] or not 0 < max(wide, high) <= WIDEST:
        raise ValueError(f"it has no end, or {wide} x {high} pixels")
    if not 0 < wide * high <= MOST_PIXELS:
        raise ValueError(f"it has {wide} x {high} pixels")
    from PIL import Image

    try:
        with Image.open(io.BytesIO(png)) as image:
            image.load()
    except Exception as error:  # Pillow raises many kinds
        raise ValueError(f"it cannot be drawn ({type(error).__name__})") from None


def check_arrays(npz: Path) -> None:
    """Raises unless the arrays of a figure fit into memory; their content is read later."""
    try:
        with zipfile.ZipFile(regular(npz)) as held:
            size = sum(entry.file_size for entry in held.infolist())
    except zipfile.BadZipFile:
        raise ValueError("it is not a file of arrays") from None
    if size > MOST_NUMBERS:
        raise ValueError(f"its arrays have more than {MOST_NUMBERS:,} bytes")


def rows(table: str) -> list[list[str]]:
    """The cells of a CSV text."""
    try:
        return [*csv.reader(io.StringIO(table))]
    except csv.Error as error:
        raise ValueError(f"it is not CSV: {error}") from None
