"""Reads checkpoints back and verifies them. What reads never writes, cleans or creates anything.

A step is a folder with its number as its name; Orbax renames it so when it is whole. Orbax restores
a missing leaf as None and a flipped byte as a wrong value, both without an error: so every array is
hashed again, and the note that lists the hashes has a checksum of its own.
"""

import asyncio
import contextlib
import json
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from jaxformer.core.errors import UserError
from jaxformer.io.atomic_files import SUM, is_sealed, sealed, sha256, unsealed
from jaxformer.runtime.processes import agree, any_process, on_host

ATTEMPTS = 50  # of a reader, while a writer replaces what it reads


class Restored(NamedTuple):
    """A whole checkpoint."""

    step: int
    arrays: dict[str, Any]
    note: dict[str, Any]


class Found(NamedTuple):
    """The newest whole checkpoint, and why each newer one is not."""

    whole: Restored | None
    damaged: dict[int, str]


def newest(
    folder: Path, differ: Callable[[dict], str] = lambda note: "", job: bool = False
) -> Found:
    """The newest whole checkpoint of a folder; in a folder without any, `whole` is None.

    `differ(note)` says why what belongs to a checkpoint is not whole. With `job`, the processes of
    a job agree. One line says what was damaged, and it is an error if all are.
    """
    found = find(folder, differ, job)
    said = [f"step {step} is damaged ({why})" for step, why in found.damaged.items()]
    if found.whole is None and said:
        raise UserError(
            f"every checkpoint in {folder} is damaged: {'; '.join(said)}. Delete that folder to "
            "train anew, or give another --workdir."
        )
    if found.whole and said:
        print(
            f"warning: in {folder} {'; '.join(said)}; using step {found.whole.step} instead",
            file=sys.stderr,
        )
    return found


def find(folder: Path, differ: Callable[[dict], str] = lambda note: "", job: bool = False) -> Found:
    """`newest` without its words. A reader looks again if a writer was at work meanwhile."""
    steps = steps_in(folder)
    for _ in range(ATTEMPTS):
        damaged: dict[int, str] = {}
        whole = None
        for step in _agreed(steps, job):
            whole, why = _try(folder, step, differ)
            if not (any_process(bool(why)) if job else why):
                break
            whole, damaged[step] = None, why or "another process cannot read it"
            if not job and steps_in(folder) != steps:
                break
        now = steps_in(folder)
        if whole is not None or job or now == steps:
            return Found(whole, damaged)
        steps = now
    raise UserError(f"the checkpoints in {folder} are replaced faster than they can be read.")


def steps_in(folder: Path) -> list[int]:
    """The steps of whole checkpoints, newest first."""
    try:
        names = [entry.name for entry in folder.iterdir() if entry.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise UserError(f"cannot read {folder}: {error.strerror}.") from None
    return sorted((int(name) for name in names if name.isdecimal()), reverse=True)


def sealed_note(step: int, note: dict[str, Any], arrays: dict[str, str]) -> dict[str, Any]:
    """What a checkpoint says of itself: its step, a note, the hashes of its arrays."""
    return sealed({"step": step, "note": note, "arrays": arrays})


def hash_of(leaf: Any) -> str:
    return sha256(np.ascontiguousarray(on_host(leaf)).tobytes())


def first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:160] if lines else type(error).__name__


@contextlib.contextmanager
def orbax() -> Iterator[Any]:
    """Orbax at work: on a loop that can be left, and in silence, since we say what happened."""
    import orbax.checkpoint as ocp  # imported here: it takes a second

    logger = logging.getLogger("absl")
    level = logger.level
    with mock.patch.object(asyncio, "new_event_loop", _PatientLoop):
        logger.setLevel(logging.CRITICAL)
        try:
            yield ocp
        finally:
            logger.setLevel(level)


class _PatientLoop(asyncio.SelectorEventLoop):
    """Where Orbax reads and writes. One bad file ends the work while others are on their way.

    What waits for them is ended with the loop, and what arrives later is not heard. Without this
    the late ones raise "Event loop is closed" wherever the program is by then.
    """

    def close(self) -> None:
        if waiting := asyncio.all_tasks(self):
            for task in waiting:
                task.cancel()
            self.run_until_complete(asyncio.gather(*waiting, return_exceptions=True))
        super().close()

    def call_soon_threadsafe(self, *args: Any, **options: Any) -> Any:
        return None if self.is_closed() else super().call_soon_threadsafe(*args, **options)


def _agreed(steps: list[int], job: bool) -> list[int]:
    """Process 0's list: a shared disk may show it to others a little later."""
    if not job:
        return steps
    return [agree(steps[i] if i < len(steps) else 0) for i in range(agree(len(steps)))]


def _try(folder: Path, step: int, differ) -> tuple[Restored | None, str]:
    """(the checkpoint, "") or (None, what is wrong with it)."""
    try:
        found = _read(folder, step)
        if why := differ(found.note):
            raise ValueError(why)
        return found, ""
    except Exception as error:  # whatever a damaged file makes Orbax raise
        return None, first_line(error)


def _read(folder: Path, step: int) -> Restored:
    place = folder / str(step)
    note, hashes = _opened(json.loads((place / "note" / "metadata").read_text()), step)
    with orbax() as ocp:
        handler = ocp.StandardCheckpointHandler()
        shapes = dict(handler.metadata(place / "state"))
        # Into memory of the host, on whatever devices it was saved.
        like = {path: np.zeros(leaf.shape, leaf.dtype) for path, leaf in shapes.items()}
        arrays = dict(handler.restore(place / "state", args=ocp.args.StandardRestore(like)))
    for path in {**hashes, **arrays}:
        if arrays.get(path) is None or hash_of(arrays[path]) != hashes.get(path):
            raise ValueError(f"{path} does not have its sha256")
    return Restored(step, arrays, note)


def _opened(held: Any, step: int) -> tuple[dict[str, Any], dict[str, str]]:
    """(the note, the hashes of the arrays), verified; older checkpoints have no checksum of it."""
    if is_sealed(held):
        said = unsealed(held)
        if said["step"] != step:
            raise ValueError(f"it is the checkpoint of step {said['step']}")
        return said["note"], said["arrays"]
    if not isinstance(held, dict) or held.keys() != {"rules", "seconds", SUM}:
        raise ValueError("its note is not as it was written")
    hashes = held.pop(SUM)
    return held, hashes
