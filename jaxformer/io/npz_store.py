"""Files of arrays with a checksum, for the intermediate results of a run."""

import hashlib
import io
import struct
from pathlib import Path
from typing import Any

import numpy as np

from jaxformer.core.errors import UserError, setting
from jaxformer.io.atomic_files import CHECKSUM, write_atomically
from jaxformer.runtime.processes import is_writer

# The last record of a zip file without a comment: signature; two numbers of disks and two counts of
# files; size and offset of the directory; length of the comment.
END_RECORD = struct.Struct("<4s4H2LH")


def write(file: Path, arrays: dict[str, Any], is_compressed: bool = False) -> None:
    """Writes {name: array} atomically; only process 0 of a job writes."""
    if not is_writer():
        return
    buffer = io.BytesIO()
    on_host: Any = {name: np.asarray(array) for name, array in arrays.items()}
    on_host[CHECKSUM] = np.array(_checksum(on_host))
    save = np.savez_compressed if is_compressed else np.savez
    save(buffer, **on_host)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, buffer.getvalue())


def read(file: Path, number: int = -1) -> dict[str, np.ndarray]:
    """Reads and verifies {name: array}; raises a UserError if the file is damaged.

    Args:
        file: a file of `write`.
        number: the file's number in a sequence, which its array "place" stores. A file without
            this array passes with any number.
    """
    try:
        arrays = load_verified(file)
        if int(arrays.pop("place", np.array(number))) != number:
            raise ValueError("it is another file of the sequence")
        return arrays
    except (ValueError, TypeError, OSError) as error:
        raise UserError(
            f"{file} is damaged ({error}); give another {setting('workdir')} to start anew."
        ) from None


def load_verified(file: Path) -> dict[str, np.ndarray]:
    """Returns the arrays of a file of `write`.

    Raises:
        ValueError: the file is damaged or edited. An old file without a checksum is not verified.
        OSError: the file cannot be read.
    """
    try:
        arrays = load(file)
        expected = arrays.pop(CHECKSUM, None)
        if expected is None:  # an old file, or damage hides the checksum
            is_sound = len(arrays) == _count_in_directory(file)
        else:
            is_sound = str(expected) == _checksum(arrays)
    except OSError:
        raise
    except Exception as error:  # a damaged zip file raises errors of many classes
        raise ValueError(str(error)) from None
    if not is_sound:
        raise ValueError("it does not have its checksum: it was damaged or edited")
    return arrays


def load(file: Path) -> dict[str, np.ndarray]:
    """Returns the arrays of an .npz file; raises ValueError if it holds Python objects."""
    try:
        # If `np.load` opens a damaged zip file itself, it does not close it.
        with open(file, "rb") as opened, np.load(opened, allow_pickle=False) as arrays:
            return dict(arrays)
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise ValueError("it contains Python objects, which are never loaded") from None


def has_checksum(file: Path) -> bool:
    """Tests whether a readable file of arrays has a checksum, as those of `write` do."""
    return CHECKSUM in load(file)


def _count_in_directory(file: Path) -> int:
    """Returns the number of arrays according to the last record of a zip file.

    NumPy reads fewer arrays if a flipped bit in the zip directory hides the entries after it.
    """
    record = file.read_bytes()[-END_RECORD.size :]
    signature, *_, count, _, _, _ = END_RECORD.unpack(record)
    if signature != b"PK\5\6":
        raise ValueError("its last record is damaged")
    return count


def _checksum(arrays: dict[str, np.ndarray]) -> str:
    """Returns a checksum of all arrays and their names."""
    digest = hashlib.sha256()
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape} ".encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()
