"""Orbax checkpoints of a state: asynchronous, atomic, and verified before use.

A state is stored as {path: array} with its paths as names, beside a JSON note (the rules of the
partition, the seconds spent, the sha256 of every array). Orbax restores a missing leaf as None and
a flipped byte as a wrong value, both without an error: so every array is hashed again and every
path, shape and dtype is compared with the state that the program expects. What does not hold is
reported, and the checkpoint before it is used.
"""

import asyncio
import functools
import hashlib
import sys
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.errors import UserError, did_you_mean
from jaxformer.processes import on_host


class Restored(NamedTuple):
    """A whole checkpoint."""

    step: int
    arrays: dict[str, Any]
    note: dict[str, Any]


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


class Checkpoints:
    """The checkpoints in a folder, the newest `keep` of them."""

    def __init__(self, folder: str | Path, keep: int = 2, read_only: bool = False):
        import orbax.checkpoint as ocp  # imported here: it takes a second

        self._loops = mock.patch.object(asyncio, "new_event_loop", _PatientLoop)
        self._loops.start()
        self._ocp = ocp
        self.folder = Path(folder).absolute()
        self._manager = ocp.CheckpointManager(
            self.folder,
            options=ocp.CheckpointManagerOptions(create=False)
            if read_only
            else ocp.CheckpointManagerOptions(max_to_keep=keep, cleanup_tmp_directories=True),
            item_handlers={
                "state": ocp.StandardCheckpointHandler(),
                "note": ocp.JsonCheckpointHandler(),
            },
        )

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            self._manager.close()
        except Exception:
            if kind is None:  # else the error that is on its way says more
                raise
        finally:
            self._loops.stop()

    def latest(self) -> int | None:
        """The step of the newest checkpoint."""
        return self._manager.latest_step()

    def save(self, step: int, state: Any, note: dict[str, Any]) -> None:
        """Starts to write; training goes on meanwhile. A step that is there already is kept."""
        if step in self._manager.all_steps():
            return
        # Copied, because the training loop donates its buffers while Orbax still writes.
        flat = {path: jnp.copy(leaf) for path, leaf in flatten_state(state).items()}
        note = note | {"sha256": {path: _sha256(leaf) for path, leaf in flat.items()}}
        args = self._ocp.args
        try:
            self._manager.save(
                step, args=args.Composite(state=args.StandardSave(flat), note=args.JsonSave(note))
            )
        except Exception as error:  # an earlier asynchronous save may have failed in any way
            raise self._cannot_save(error) from error

    def wait(self) -> None:
        """Until everything is on disk."""
        try:
            self._manager.wait_until_finished()
        except Exception as error:
            raise self._cannot_save(error) from error

    def restore(self, like: Any = None) -> Restored | None:
        """The newest whole checkpoint, None if there is none at all.

        With `like`, a state (arrays or shapes), its paths, shapes and dtypes must be those.
        """
        steps = sorted(self._manager.all_steps(), reverse=True)
        expected = flatten_state(like) if like is not None else None
        for step in steps:
            where = f"the checkpoint {self.folder / str(step)}"
            try:
                found = self._read(step)
                damaged = [
                    path
                    for path, digest in found.note["sha256"].items()
                    if found.arrays.get(path) is None or _sha256(found.arrays[path]) != digest
                ]
                if damaged:
                    raise ValueError(f"{damaged[0]} does not have its sha256")
            except Exception as error:  # whatever a damaged file makes Orbax raise
                print(f"warning: {where} is damaged ({_first_line(error)})", file=sys.stderr)
                continue
            if expected is not None:
                compare(found.arrays, expected, where)
            if step != steps[0]:
                print(f"warning: using step {step} instead", file=sys.stderr)
            return found
        if steps:
            raise UserError(
                f"every checkpoint in {self.folder} is damaged; to start anew, give another "
                "--workdir or delete that folder."
            )
        return None

    def _read(self, step: int) -> Restored:
        args = self._ocp.args
        # Into memory of the host, on whatever devices it was saved.
        shapes = self._manager.item_metadata(step)["state"]
        like = {path: np.zeros(leaf.shape, leaf.dtype) for path, leaf in dict(shapes).items()}
        found = self._manager.restore(
            step, args=args.Composite(state=args.StandardRestore(like), note=args.JsonRestore())
        )
        return Restored(step, dict(found["state"]), found["note"])

    def _cannot_save(self, error: Exception) -> UserError:
        kept = sorted(self._manager.all_steps())
        return UserError(
            f"cannot save a checkpoint to {self.folder}: {_first_line(error)}. What is saved "
            f"already is kept: {'step ' + str(kept[-1]) if kept else 'nothing yet'}."
        )


def unflatten_state(arrays: dict[str, Any], like: Any) -> Any:
    """The state with the structure of `like` and these arrays."""
    leaves = [arrays[path] for path in flatten_state(like)]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def flatten_state(state: Any) -> dict[str, Any]:
    """{"trainable/block_0/attn/value/kernel": leaf} for any tree of arrays."""
    word = functools.partial(jax.tree_util.keystr, simple=True, separator="/")
    return {word(path): leaf for path, leaf in jax.tree.leaves_with_path(state)}


def compare(found: dict[str, Any], expected: dict[str, Any], where: str) -> None:
    """Raises unless both have the same paths, shapes and dtypes."""
    for path in expected:
        if found.get(path) is None:
            hint = did_you_mean(path, found)
            raise UserError(f"{where} lacks {path!r}.{hint}")
    for path in found:
        if path not in expected:
            raise UserError(f"{where} has {path!r}, which this run does not.")
    for path, leaf in expected.items():
        have, want = _kind(found[path]), _kind(leaf)
        if have != want:
            raise UserError(f"{where} has {path!r} as {have}, this run needs {want}.")


def _kind(leaf: Any) -> str:
    return f"{jnp.dtype(leaf.dtype).name}{list(leaf.shape)}"


def _sha256(leaf: Any) -> str:
    return hashlib.sha256(np.ascontiguousarray(on_host(leaf)).tobytes()).hexdigest()


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:160] if lines else type(error).__name__
