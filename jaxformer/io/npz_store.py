"""Files of arrays that carry their checksum, for what a run has finished so far."""

import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np

from jaxformer.core.errors import UserError
from jaxformer.io.run_folder import write_atomically
from jaxformer.runtime.processes import is_writer


def write(file: Path, arrays: dict[str, Any]) -> None:
    if not is_writer():
        return
    buffer = io.BytesIO()
    held: Any = {name: np.asarray(array) for name, array in arrays.items()}
    np.savez(buffer, **held, sha256=np.array(_sum(held)))
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, buffer.getvalue())


def read(file: Path, place: int = -1) -> dict[str, np.ndarray]:
    """The arrays; `place` is that of the file among several, which it holds as an array."""
    try:
        with np.load(file) as held:
            arrays = dict(held)
        said = arrays.pop("sha256", None)  # older files have none
        if said is not None and str(said) != _sum(arrays):
            raise ValueError("it does not have its checksum")
        if int(arrays.pop("place", np.array(place))) != place:
            raise ValueError("it is another one of its folder")
        return arrays
    except Exception as error:  # a damaged zip fails in many ways
        raise UserError(
            f"{file} is damaged ({error}); give another --workdir to start anew."
        ) from None


def _sum(arrays: dict[str, np.ndarray]) -> str:
    """The checksum of all arrays with their names."""
    said = hashlib.sha256()
    for name in sorted(arrays):
        said.update(f"{name} {arrays[name].dtype} {arrays[name].shape} ".encode())
        said.update(np.ascontiguousarray(arrays[name]).tobytes())
    return said.hexdigest()
