"""Orbax checkpoints of a state: asynchronous, atomic, and verified before use.

A state is saved as {path: array}, together with a JSON note. A run's note has the rules of the
partition, the seconds spent, and the fingerprint of the rows of metrics.jsonl.
`checkpoint_reader` reads and verifies checkpoints. It reports a damaged checkpoint and uses the one
before it. The next save deletes the damaged one.
"""

import contextlib
import functools
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from jaxformer.core import sharding
from jaxformer.core.errors import UserError, did_you_mean
from jaxformer.io.checkpoint_reader import (
    CheckNote,
    Checkpoint,
    accept_any,
    array_sha256,
    first_line,
    make_note,
    read_newest,
    silent_orbax,
)


class Checkpoints:
    """The writer of the checkpoints in a folder; a context manager.

    Args:
        folder: the folder; it is created.
        keep: how many of the newest checkpoints are kept.
    """

    def __init__(self, folder: str | Path, keep: int = 2):
        self.folder = Path(folder).absolute()
        _check_path(self.folder)
        self._stack = contextlib.ExitStack()
        self._ocp = ocp = self._stack.enter_context(silent_orbax())
        self._complete: set[int] = set()  # steps that were verified, or written by this process
        self._pending: set[int] = set()  # steps that are being written
        self._damaged: set[int] = set()  # damaged steps, newer than the restored one
        self._executor = ThreadPoolExecutor(1, "checkpoint")
        self._submission: Future[None] | None = None  # the latest call of `_submit` in the executor
        options = ocp.CheckpointManagerOptions(max_to_keep=keep, cleanup_tmp_directories=True)
        handlers = {"state": ocp.StandardCheckpointHandler(), "note": ocp.JsonCheckpointHandler()}
        try:
            self._manager = ocp.CheckpointManager(
                self.folder, options=options, item_handlers=handlers
            )
        except OSError:
            self._stack.close()
            raise

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            self._executor.shutdown()
            self._manager.close()
            self._finish_submission()
        except Exception:
            if kind is None:  # otherwise the error that is being raised is the cause
                raise
        finally:
            self._stack.close()

    def newest_saved(self) -> int | None:
        """Returns the newest step that is known to be complete; call `wait` first."""
        return max(self._complete, default=None)

    def save(self, step: int, state: Any, note: dict[str, Any]) -> None:
        """Begins to write a checkpoint and returns; an existing complete one is not written again.

        Args:
            step: the number of the checkpoint.
            state: any tree of arrays.
            note: JSON that is stored with it.
        """
        self._finish_submission()
        existing = {*self._manager.all_steps()} - self._damaged
        if step in self._complete | self._pending | existing:
            return
        # Copied, because the training loop donates the state's buffers while they are being saved.
        arrays = sharding.copy_arrays(flatten_state(state))
        if jax.process_count() == 1:
            self._submission = self._executor.submit(self._submit, step, arrays, note)
        else:  # all processes must communicate in the same order
            self._submit(step, arrays, note)
        self._pending.add(step)

    def _finish_submission(self) -> None:
        """Waits for the thread that submits, and raises its error."""
        submission, self._submission = self._submission, None
        if submission:
            submission.result()

    def _submit(self, step: int, arrays: dict[str, Any], note: dict[str, Any]) -> None:
        """Hashes the arrays (about one second per gigabyte) and gives them to Orbax."""
        full_note = make_note(step, note, {path: array_sha256(x) for path, x in arrays.items()})
        args = self._ocp.args
        try:
            # Orbax saves nothing at or before its latest step, even if that is damaged.
            for damaged in self._damaged & {*self._manager.all_steps()}:
                self._manager.delete(damaged)
            self._damaged.clear()
            items = args.Composite(state=args.StandardSave(arrays), note=args.JsonSave(full_note))
            if not self._manager.save(step, args=items):
                raise RuntimeError(f"Orbax did not accept step {step}")
        except Exception as error:  # an earlier asynchronous save may have failed in any way
            raise self._save_error(error) from error

    def wait(self) -> None:
        """Waits until all checkpoints are on disk."""
        self._finish_submission()
        try:
            self._manager.wait_until_finished()
        except Exception as error:
            raise self._save_error(error) from error
        self._complete |= {step for step in self._pending if (self.folder / str(step)).is_dir()}
        self._pending.clear()

    def restore(self, like: Any = None, check_note: CheckNote = accept_any) -> Checkpoint | None:
        """Returns the newest complete checkpoint, None if there is none at all.

        Args:
            like: a state of arrays or shapes. The checkpoint must have its paths, shapes and
                dtypes.
            check_note: takes the note and returns why other files of the run are damaged, or "".
        """
        result = read_newest(self.folder, check_note, all_processes=jax.process_count() > 1)
        checkpoint = result.checkpoint
        if checkpoint is not None:
            if like is not None:
                where = f"the checkpoint {self.folder / str(checkpoint.step)}"
                check_same_arrays(checkpoint.arrays, flatten_state(like), where)
            self._complete, self._damaged = {checkpoint.step}, set(result.damaged)
        return checkpoint

    def _save_error(self, error: Exception) -> UserError:
        sound_steps = [step for step in self._manager.all_steps() if step not in self._damaged]
        newest = f"step {max(sound_steps)}" if sound_steps else "none yet"
        return UserError(
            f"cannot save a checkpoint to {self.folder}: {first_line(error)}. Earlier checkpoints "
            f"are kept: {newest}."
        )


def _check_path(folder: Path) -> None:
    """Raises UserError for a path that Orbax cannot take, before anything is trained.

    In the C locale without UTF-8 mode, Python reads a letter such as "ü" as two surrogates. The C++
    part of Orbax refuses them, but only when it saves, so that the whole training would be lost.
    """
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise UserError(
            f"checkpoints cannot be saved to {folder}: this Python does not read paths as UTF-8. "
            "Set PYTHONUTF8=1, or choose a workdir with ASCII letters."
        ) from None


def unflatten_state(arrays: dict[str, Any], like: Any) -> Any:
    """Returns the state with the structure of `like` and the leaves {path: array}."""
    leaves = [arrays[path] for path in flatten_state(like)]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def flatten_state(state: Any) -> dict[str, Any]:
    """Returns {"trainable/block_0/attn/value/kernel": leaf} of any tree of arrays."""
    path_of = functools.partial(jax.tree_util.keystr, simple=True, separator="/")
    return {path_of(path): leaf for path, leaf in jax.tree.leaves_with_path(state)}


def check_same_arrays(arrays: dict[str, Any], expected: dict[str, Any], where: str) -> None:
    """Raises a UserError unless the arrays have the expected paths, shapes and dtypes.

    Args:
        arrays: {path: array} that were read.
        expected: {path: array or shape} that are required.
        where: the source of the arrays, for the message.
    """
    for path in expected:
        if arrays.get(path) is None:
            hint = did_you_mean(path, arrays)
            raise UserError(f"{where} lacks {path!r}.{hint}")
    for path in arrays:
        if path not in expected:
            raise UserError(f"{where} has {path!r}, which this run does not.")
    for path, leaf in expected.items():
        got, needed = _type_of(arrays[path]), _type_of(leaf)
        if got != needed:
            raise UserError(f"{where} has {path!r} as {got}, this run needs {needed}.")


def _type_of(leaf: Any) -> str:
    return f"{jnp.dtype(leaf.dtype).name}{list(leaf.shape)}"
