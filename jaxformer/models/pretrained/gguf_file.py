"""Reads GGUF files: their metadata, and one dequantised tensor at a time.

A file has a header, metadata (name, type, value), a table of tensors, and the tensors' bytes:

    file = GGUFFile(Path("model.gguf"))
    file.metadata["general.architecture"]        "llama"
    file.tensors["blk.0.attn_q.weight"]          its shape, quantisation and place in the file
    file.tensor("blk.0.attn_q.weight")           a float array

The package `gguf` dequantises tensors. This module reads the header itself: the package's reader
needs ten seconds for the 262,144 tokens of Gemma 3, and reports a truncated file as an error of
NumPy.
"""

import math
import mmap
import struct
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxformer.core.errors import UserError, one_line

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32  # bytes
MAX_AXES = 4
# {type of a metadata value, as a number in the file: its format in `struct`}
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?"}
NUMBERS |= {10: "Q", 11: "q", 12: "d"}
FLOAT32, STRING, ARRAY = 6, 8, 9  # types that are read in another way
MIN_STRING_BYTES = 8  # an empty string is its length alone
OTHERWISE = "use a newer one (pip install -U gguf), or a file in Q8_0 or Q4_K_M"
MIN_TABLE_ROW_BYTES = MIN_STRING_BYTES + 4 + 4 + 8  # name, number of axes, quantisation, offset


class StoredTensor(NamedTuple):
    """A tensor's shape as in PyTorch, its quantisation, and its first byte and end in the file."""

    shape: tuple[int, ...]
    quantisation: Any
    start: int
    stop: int


class GGUFFile:
    """A GGUF file: metadata {name: value} and tensors {name: StoredTensor}."""

    def __init__(self, file: Path):
        self.file = file
        try:
            with file.open("rb") as opened:
                self._content = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:  # an empty file cannot be mapped
            raise UserError(f"{file} cannot be read: {one_line(error, 100)}.") from None
        try:
            self._read_header()
        except UserError:  # such as a missing package
            raise
        except (ValueError, OverflowError) as error:
            raise UserError(
                f"{file} is not a complete GGUF file: {one_line(error, 200)}."
            ) from None

    def _read_header(self) -> None:
        header = _Header(self._content)
        if header.take(len(MAGIC)) != MAGIC:
            raise ValueError("its first bytes are not GGUF")
        version = header.number("I")
        if version not in VERSIONS:
            raise ValueError(f"its version is {version}, expected 2 or 3")
        n_tensors, n_values = header.number("Q"), header.number("Q")
        self.metadata: dict[str, Any] = {}
        for _ in range(header.checked_count(n_values, MIN_STRING_BYTES)):
            name = header.string()
            self.metadata[name] = header.value(header.number("I"))
        n_rows = header.checked_count(n_tensors, MIN_TABLE_ROW_BYTES)
        table = [header.table_row() for _ in range(n_rows)]
        alignment = self.metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1:
            raise ValueError(f"its alignment is {alignment!r}, expected a positive whole number")
        data_start = math.ceil(header.position / alignment) * alignment
        self.tensors: dict[str, StoredTensor] = {}
        for name, shape, quantisation_id, offset in table:
            if name in self.tensors:
                raise ValueError(f"it has two tensors {one_line(name, 60)}")
            start = data_start + offset
            self.tensors[name] = self._stored_tensor(name, shape, quantisation_id, start)
        stop = data_start
        for name, tensor in sorted(self.tensors.items(), key=lambda item: item[1].start):
            if tensor.start < stop:
                raise ValueError(f"the bytes of {one_line(name, 60)} overlap another tensor's")
            stop = tensor.stop

    def _stored_tensor(
        self, name: str, shape: Any, quantisation_id: int, start: int
    ) -> StoredTensor:
        gguf, name = _package(), one_line(name, 60)
        try:
            quantisation = gguf.GGMLQuantizationType(quantisation_id)
            block_values, block_bytes = gguf.GGML_QUANT_SIZES[quantisation]
        except (ValueError, KeyError):
            raise UserError(
                f"{self.file}: {name} has the quantisation {quantisation_id}, which the package "
                f"gguf does not know: {OTHERWISE}."
            ) from None
        if not shape or shape[-1] % block_values:
            raise ValueError(
                f"{name} of shape {shape} has no whole blocks of {block_values} values"
            )
        stop = start + math.prod(shape) // block_values * block_bytes
        if stop > len(self._content):
            raise ValueError(
                f"it has {len(self._content):,} bytes, and {name} needs {stop:,}: it is truncated"
            )
        return StoredTensor(shape, quantisation, start, stop)

    def tensor(self, name: str) -> np.ndarray:
        """Returns a tensor, dequantised to float32."""
        gguf, stored = _package(), self.tensors[name]
        block_values, block_bytes = gguf.GGML_QUANT_SIZES[stored.quantisation]
        row_bytes = stored.shape[-1] // block_values * block_bytes
        content = np.frombuffer(self._content, np.uint8, stored.stop - stored.start, stored.start)
        try:
            rows = content.reshape(*stored.shape[:-1], row_bytes)
            return gguf.dequantize(rows, stored.quantisation)
        except NotImplementedError:
            raise UserError(
                f"{self.file}: {name} has the quantisation {stored.quantisation.name}, which the "
                f"package gguf cannot dequantise: {OTHERWISE}."
            ) from None


class _Header:
    """Reads values from the beginning of a file one after another; raises ValueError at its end."""

    def __init__(self, content: mmap.mmap):
        self.content, self.position = content, 0

    def take(self, size: int) -> bytes:
        start, self.position = self.position, self.position + size
        if self.position > len(self.content):
            raise ValueError(f"its header goes beyond its {len(self.content):,} bytes")
        return self.content[start : self.position]

    def number(self, struct_format: str) -> Any:
        little_endian = f"<{struct_format}"
        return struct.unpack(little_endian, self.take(struct.calcsize(little_endian)))[0]

    def string(self) -> str:
        return self.take(self.number("Q")).decode(errors="replace")

    def value(self, kind: int) -> Any:
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            return self._array(self.number("I"), self.number("Q"))
        if kind not in NUMBERS:
            raise ValueError(f"it has metadata of the unknown type {kind}")
        number = self.number(NUMBERS[kind])
        # The shortest decimal of a float32: 1e-05 instead of 9.999999747378752e-06.
        return float(str(np.float32(number))) if kind == FLOAT32 else number

    def _array(self, kind: int, count: int) -> list[Any]:
        if kind == STRING:
            return [self.string() for _ in range(self.checked_count(count, MIN_STRING_BYTES))]
        if kind not in NUMBERS:
            raise ValueError(f"it has an array of the unsupported type {kind}")
        size = struct.calcsize(f"<{NUMBERS[kind]}")
        count = self.checked_count(count, size)
        return list(struct.unpack(f"<{count}{NUMBERS[kind]}", self.take(count * size)))

    def table_row(self) -> tuple[str, tuple[int, ...], int, int]:
        """Returns (name, shape, number of the quantisation, offset) of a tensor.

        The file stores the axes in reverse order.
        """
        name, n_axes = self.string(), self.number("I")
        if n_axes > MAX_AXES:
            raise ValueError(f"{one_line(name, 60)} has {n_axes} axes, more than {MAX_AXES}")
        shape = tuple(self.number("Q") for _ in range(n_axes))[::-1]
        return name, shape, self.number("I"), self.number("Q")

    def checked_count(self, count: int, min_bytes: int) -> int:
        """Returns the count; raises ValueError if the file is too short for so many entries."""
        if count * min_bytes > len(self.content) - self.position:
            raise ValueError(f"its header has {count:,} entries and no room for them")
        return count


def is_gguf(path: Path) -> bool:
    """Returns whether this is a file that is named as a GGUF file or begins like one."""
    if not path.is_file():
        return False
    if path.suffix == ".gguf":
        return True
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def _package() -> Any:
    try:
        import gguf
    except ImportError:
        raise UserError("GGUF files need the package gguf: pip install 'jaxformer[hf]'.") from None
    return gguf
