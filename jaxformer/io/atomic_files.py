"""Files that are whole or absent, and JSON that says of itself whether it is as it was written."""

import contextlib
import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

SUM = "sha256"  # the name under which a sealed value keeps its checksum
TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{8}")  # the name of a file that is being written


def dumps(value: Any, indent: int | None = None) -> str:
    """JSON with sorted names; numbers that JSON does not have become null."""
    return json.dumps(plain(value), sort_keys=True, indent=indent, allow_nan=False)


def plain(value: Any) -> Any:
    """The value in the types that JSON has."""
    if isinstance(value, Mapping):
        return {str(name): plain(entry) for name, entry in value.items()}
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, np.ndarray | np.generic) or hasattr(value, "__array__"):  # also jax's
        return plain(np.asarray(value).tolist())
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


def sealed(value: Mapping[str, Any]) -> dict[str, Any]:
    """The value with a checksum of all that it says."""
    said = plain(value)
    return said | {SUM: sha256(dumps(said).encode())}


def is_sealed(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get(SUM), str)


def unsealed(value: Any) -> Any:
    """The value without its checksum; raises ValueError if that is not the one of what it says.

    What was written before there were checksums comes back as it is.
    """
    if is_sealed(value):
        said = {name: entry for name, entry in value.items() if name != SUM}
        if sha256(dumps(said).encode()) == value[SUM]:
            return said
        raise ValueError("it does not have its checksum: it was damaged or edited")
    if isinstance(value, dict) and any(_is_digest(entry) for entry in value.values()):
        raise ValueError("its checksum has another name: it was damaged or edited")
    return value


def sha256(content: bytes | memoryview) -> str:
    return hashlib.sha256(content).hexdigest()


def write_json(file: Path, value: Any) -> None:
    write_atomically(file, (dumps(value, indent=1) + "\n").encode())


def write_atomically(file: Path, content: bytes) -> None:
    """The file is the old one or the new one, whatever happens in between."""
    temporary = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    with naming(file):
        try:
            with open(temporary, "xb") as new:
                new.write(content)
                new.flush()
                os.fsync(new.fileno())
            os.replace(temporary, file)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise


def remove_temporaries(folder: Path) -> None:
    """What `write_atomically` left in a folder when it was killed; nobody else may write there."""
    for file in folder.glob(".*"):
        if TEMPORARY.fullmatch(file.name) and file.is_file():
            file.unlink(missing_ok=True)


@contextlib.contextmanager
def naming(file: Path) -> Iterator[None]:
    """An OSError from within names this file: a full disk says none, a temporary says its own."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(file)) from None


def _is_digest(entry: Any) -> bool:
    return isinstance(entry, str) and len(entry) == 64 and set(entry) <= set("0123456789abcdef")
