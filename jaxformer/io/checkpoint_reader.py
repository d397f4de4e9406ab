"""Reads checkpoints and verifies them. A reader never writes, deletes or creates a file.

A checkpoint is a folder named by its step. Orbax gives it this name when it is complete. Orbax
restores a missing array as None and a flipped byte as a wrong value, both without an error.
Therefore each checkpoint has a JSON note with the sha256 of every array. The note has a checksum
itself.
"""

import asyncio
import contextlib
import functools
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxformer.core.errors import UserError, setting
from jaxformer.io.atomic_files import (
    CHECKSUM,
    has_checksum,
    sha256,
    with_checksum,
    without_checksum,
)
from jaxformer.runtime.processes import any_process, from_process_0, on_host

MAX_ATTEMPTS = 50  # of a search that restarts when a writer has replaced checkpoints
CheckNote = Callable[[dict[str, Any]], str]  # note -> why the run's other files are damaged, or ""


class Checkpoint(NamedTuple):
    """A complete checkpoint: {path: array}, and the caller's note that was saved with them."""

    step: int
    arrays: dict[str, Any]
    note: dict[str, Any]


class SearchResult(NamedTuple):
    """The newest complete checkpoint, and {step: reason} of the newer damaged ones."""

    checkpoint: Checkpoint | None
    damaged: dict[int, str]


def accept_any(note: dict[str, Any]) -> str:
    """Accepts every note; the default of `read_newest`."""
    return ""


def read_newest(
    folder: Path, check_note: CheckNote = accept_any, all_processes: bool = False
) -> SearchResult:
    """Reads the newest complete checkpoint and prints a line about damaged newer ones.

    Args:
        folder: the folder of the checkpoints; it may be missing.
        check_note: takes the note and returns why other files of the run are damaged, or "".
        all_processes: whether all processes of a job read, and must find the same checkpoint.

    Raises:
        UserError: if there are checkpoints and all are damaged.
    """
    result = find_newest(folder, check_note, all_processes)
    reasons = "; ".join(f"step {step} is damaged ({why})" for step, why in result.damaged.items())
    if result.checkpoint is None and reasons:
        raise UserError(
            f"every checkpoint in {folder} is damaged: {reasons}. Delete that folder to train "
            f"anew, or give another {setting('workdir')}."
        )
    if result.checkpoint and reasons:
        step = result.checkpoint.step
        print(f"warning: in {folder} {reasons}; using step {step} instead", file=sys.stderr)
    return result


def find_newest(
    folder: Path, check_note: CheckNote = accept_any, all_processes: bool = False
) -> SearchResult:
    """Reads the newest complete checkpoint like `read_newest`, but prints nothing.

    If all checkpoints are damaged, the result has no checkpoint and no error is raised. The search
    starts again if another process has replaced checkpoints meanwhile.
    """
    steps = list_steps(folder)
    for _ in range(MAX_ATTEMPTS):
        damaged: dict[int, str] = {}
        checkpoint = None
        for step in _agreed_steps(steps, all_processes):
            checkpoint, why = _try_step(folder, step, check_note)
            if all_processes and any_process(bool(why)):
                why = why or "another process cannot read it"
            if not why:
                break
            checkpoint, damaged[step] = None, why
            if not all_processes and list_steps(folder) != steps:
                break  # checkpoints were replaced: search again
        new_steps = list_steps(folder)
        if checkpoint is not None or all_processes or new_steps == steps:
            return SearchResult(checkpoint, damaged)
        steps = new_steps
    raise UserError(f"the checkpoints in {folder} are replaced faster than they can be read.")


def list_steps(folder: Path) -> list[int]:
    """Returns the steps of all complete checkpoints, the newest first."""
    try:
        names = [entry.name for entry in folder.iterdir() if entry.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise UserError(f"cannot read {folder}: {error.strerror}.") from None
    return sorted((int(name) for name in names if name.isdecimal()), reverse=True)


def make_note(step: int, note: dict[str, Any], hashes: dict[str, str]) -> dict[str, Any]:
    """Returns the JSON of a checkpoint: its step, the caller's note, {path: sha256}."""
    return with_checksum({"step": step, "note": note, "arrays": hashes})


def array_sha256(array: Any) -> str:
    """Returns the sha256 of an array's values."""
    return sha256(np.ascontiguousarray(on_host(array)).tobytes())


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's message, or its class."""
    lines = str(error).strip().splitlines()
    return lines[0][:160] if lines else type(error).__name__


@contextlib.contextmanager
def silent_orbax() -> Iterator[Any]:
    """Imports Orbax, which takes a second, and suppresses its log; errors are raised anyway."""
    import orbax.checkpoint as ocp

    logger = logging.getLogger("absl")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield ocp
    finally:
        logger.setLevel(level)


def _agreed_steps(steps: list[int], all_processes: bool) -> list[int]:
    """Returns the steps that process 0 sees. Others may see new files on a shared disk later."""
    if not all_processes:
        return steps
    n_steps = from_process_0(len(steps))
    padded = [*steps, *[0] * n_steps]  # `from_process_0` ignores the values of other processes
    return [from_process_0(step) for step in padded[:n_steps]]


def _try_step(folder: Path, step: int, check_note: CheckNote) -> tuple[Checkpoint | None, str]:
    """Returns (checkpoint, "") or (None, the reason why it is damaged)."""
    try:
        checkpoint = _read_step(folder, step)
        if why := check_note(checkpoint.note):
            raise ValueError(why)
        return checkpoint, ""
    except Exception as error:  # damaged files make Orbax raise errors of many classes
        return None, first_line(error)


def _read_step(folder: Path, step: int) -> Checkpoint:
    with silent_orbax() as ocp:
        saved_note = ocp.JsonCheckpointHandler().restore(folder / str(step) / "note")
        note, hashes = _verify_note(saved_note, step)
        arrays = _read_arrays(ocp, folder / str(step) / "state", list(hashes))
    for path in hashes:
        if arrays.get(path) is None or array_sha256(arrays[path]) != hashes[path]:
            raise ValueError(f"{path} does not have its sha256")
    return Checkpoint(step, arrays, note)


def _read_arrays(ocp: Any, folder: Path, names: list[str]) -> dict[str, Any]:
    """Reads {path: array} into the memory of the host, whatever devices they were saved from."""
    handler = ocp.PyTreeCheckpointHandler(type_handler_registry=_type_handlers(ocp))
    structure = {path: np.zeros(()) for path in names}  # placeholders: the files have the shapes
    as_numpy = {path: ocp.RestoreArgs(restore_type=np.ndarray) for path in names}
    return dict(handler.restore(folder, args=ocp.args.PyTreeRestore(structure, as_numpy)))


@functools.cache
def _type_handlers(ocp: Any) -> Any:
    """Returns Orbax's array handlers. The one for NumPy finishes all reads before it raises.

    Orbax's own handler raises the first error of many concurrent reads and closes the event loop.
    Each read that completes later then prints a traceback, "Event loop is closed".
    """
    types = ocp.type_handlers

    class NumpyHandler(types.NumpyHandler):
        async def deserialize(self, infos: Any, args: Any = None) -> Any:
            args = args or [types.RestoreArgs()] * len(infos)
            read = super().deserialize
            reads = [read([info], [arg]) for info, arg in zip(infos, args, strict=True)]
            results: list[Any] = await asyncio.gather(*reads, return_exceptions=True)
            for result in results:
                if isinstance(result, BaseException):
                    raise result
            return [array for (array,) in results]

    return types.create_type_handler_registry(
        (np.ndarray, NumpyHandler()), (jax.Array, types.ArrayHandler())
    )


def _verify_note(note: Any, step: int) -> tuple[dict[str, Any], dict[str, str]]:
    """Returns the caller's note and {path: sha256}.

    An old note stores the sha256 of the arrays under CHECKSUM and has no checksum itself.
    """
    if has_checksum(note):
        content = without_checksum(note)
        if content["step"] != step:
            raise ValueError(f"it is the checkpoint of step {content['step']}")
        return content["note"], content["arrays"]
    if not isinstance(note, dict) or note.keys() != {"rules", "seconds", CHECKSUM}:
        raise ValueError("its note is damaged")
    hashes = note.pop(CHECKSUM)
    return note, hashes
