"""Tensors of safetensors files as views of a memory map: reading a slice reads only its bytes.

A file begins with 8 bytes for the length of a header, and a JSON header with each tensor's dtype,
shape and offsets. Open the file with the library safetensors first: it checks the header.
"""

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

DTYPES = {"F16": np.float16, "BF16": jnp.bfloat16, "F32": np.float32, "F64": np.float64}


def mapped_tensor(file: Path, name: str) -> np.ndarray | None:
    """Returns a read-only view of a tensor on disk.

    Returns None if the tensor has no entries or a dtype outside DTYPES.
    """
    offset, header = _header(file, file.stat().st_mtime_ns)
    entry = header[name]
    if entry["dtype"] not in DTYPES or 0 in entry["shape"]:
        return None
    dtype, shape = np.dtype(DTYPES[entry["dtype"]]), tuple(entry["shape"])
    start = offset + entry["data_offsets"][0]
    # A memory map needs at least one axis; a tensor of shape () has none.
    return np.memmap(file, dtype, "r", start, shape or (1,)).reshape(shape)


@lru_cache(maxsize=16)
def _header(file: Path, _changed: int) -> tuple[int, dict[str, Any]]:
    """Returns (the offset of the tensors, the header).

    `_changed`, the time of the last change, makes the cache read a changed file again.
    """
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(8), "little")
        return 8 + length, json.loads(opened.read(length))
