"""Files that are complete or absent, and JSON that carries its own checksum."""

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

CHECKSUM = "sha256"  # the name of the checksum in a JSON object
TEMPORARY_NAME = re.compile(r"\.(.+)\.[0-9a-f]{8}")  # of `write_atomically`, while it writes


def dumps(value: Any, indent: int | None = None) -> str:
    """Returns JSON with sorted names; infinite numbers and NaN become null."""
    return json.dumps(json_value(value), sort_keys=True, indent=indent, allow_nan=False)


def json_value(value: Any) -> Any:
    """Converts mappings, tuples and arrays to the types of JSON."""
    if isinstance(value, Mapping):
        return {str(name): json_value(entry) for name, entry in value.items()}
    if hasattr(value, "_asdict"):
        return json_value(value._asdict())
    if isinstance(value, list | tuple):
        return [json_value(entry) for entry in value]
    if isinstance(value, np.ndarray | np.generic) or hasattr(value, "__array__"):  # also jax's
        return json_value(np.asarray(value).tolist())
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value


def with_checksum(value: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the JSON object with a checksum of its content."""
    content = json_value(value)
    return content | {CHECKSUM: sha256(dumps(content).encode())}


def has_checksum(value: Any) -> bool:
    """Tests whether a JSON value is an object with a checksum."""
    return isinstance(value, dict) and isinstance(value.get(CHECKSUM), str)


def without_checksum(value: Any) -> Any:
    """Verifies and removes the checksum of a JSON object; raises ValueError if it is wrong.

    A value without a checksum, as old files have, is returned as it is.
    """
    if has_checksum(value):
        content = {name: entry for name, entry in value.items() if name != CHECKSUM}
        # No NaN is accepted in place of a null, which `dumps` would write for it.
        text = json.dumps(content, sort_keys=True, allow_nan=False)
        if sha256(text.encode()) == value[CHECKSUM]:
            return content
        raise ValueError("it does not have its checksum: it was damaged or edited")
    if isinstance(value, dict) and any(_is_sha256(entry) for entry in value.values()):
        raise ValueError("its checksum has another name: it was damaged or edited")
    return value


def sha256(content: bytes | memoryview) -> str:
    """Returns the hexadecimal sha256 of bytes."""
    return hashlib.sha256(content).hexdigest()


def write_json(file: Path, value: Any) -> None:
    """Writes a JSON file atomically."""
    write_atomically(file, (dumps(value, indent=1) + "\n").encode())


def write_atomically(file: Path, content: bytes) -> None:
    """Writes a file that has its old or its new content even if the process is killed."""
    temporary = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    with errors_name(file):
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


def written(text: str, file: str | Path | None) -> str:
    """Returns a text, after writing it to `file`, if given."""
    if file is not None:
        write_atomically(Path(file), text.encode())
    return text


def remove_temporaries(folder: Path) -> None:
    """Deletes temporary files of interrupted writes. The caller must hold the folder's lock."""
    for file in folder.glob(".*"):
        if TEMPORARY_NAME.fullmatch(file.name) and file.is_file():
            file.unlink(missing_ok=True)


@contextlib.contextmanager
def errors_name(file: Path) -> Iterator[None]:
    """Puts a file's path into OSErrors, which otherwise name no file or a temporary one."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(file)) from None


def _is_sha256(entry: Any) -> bool:
    return isinstance(entry, str) and len(entry) == 64 and set(entry) <= set("0123456789abcdef")
