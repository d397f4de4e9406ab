"""Orbax checkpoints of a state: asynchronous, atomic, and verified before use.

A state is stored as {path: array} with its paths as names, beside a JSON note (the rules of the
partition, the seconds spent, what the rows are). `stored.py` reads and verifies them. What does not
hold is reported, the checkpoint before it is used, and the next save takes its place.
"""

import contextlib
import functools
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from jaxformer.core import sharding
from jaxformer.core.errors import UserError, did_you_mean
from jaxformer.io.checkpoint_reader import Restored, first_line, hash_of, newest, orbax, sealed_note


class Checkpoints:
    """The checkpoints in a folder, the newest `keep` of them, for the one who writes them."""

    def __init__(self, folder: str | Path, keep: int = 2):
        self.folder = Path(folder).absolute()
        self._stack = contextlib.ExitStack()
        self._ocp = ocp = self._stack.enter_context(orbax())
        self._whole: set[int] = set()  # verified, or written and renamed by this process
        self._started: set[int] = set()  # on their way to the disk
        self._damaged: set[int] = set()  # newer than the one that was restored
        self._writer = ThreadPoolExecutor(1, "checkpoint")
        self._writing: Future[None] | None = None  # what hashes and hands over the last one
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
            self._writer.shutdown()
            self._manager.close()
            self._handed_over()
        except Exception:
            if kind is None:  # else the error that is on its way says more
                raise
        finally:
            self._stack.close()

    def saved(self) -> int | None:
        """The newest step of which it is known that it is whole; call `wait` first."""
        return max(self._whole, default=None)

    def save(self, step: int, state: Any, note: dict[str, Any]) -> None:
        """Starts to write; training goes on meanwhile. A whole step that is there is kept."""
        self._handed_over()
        there = {*self._manager.all_steps()} - self._damaged
        if step in self._whole | self._started | there:
            return
        # Copied, because the training loop donates its buffers while they are still read.
        flat = sharding.copied(flatten_state(state))
        if jax.process_count() == 1:
            self._writing = self._writer.submit(self._hand_over, step, flat, note)
        else:  # what the processes say to each other has an order
            self._hand_over(step, flat, note)
        self._started.add(step)

    def _handed_over(self) -> None:
        """Waits for the thread that does it, and raises what it met."""
        writing, self._writing = self._writing, None
        if writing:
            writing.result()

    def _hand_over(self, step: int, flat: dict[str, Any], note: dict[str, Any]) -> None:
        """Hashes the arrays, which takes a second a gigabyte, and gives them to Orbax."""
        sealed = sealed_note(step, note, {path: hash_of(leaf) for path, leaf in flat.items()})
        args = self._ocp.args
        try:
            # Orbax saves nothing at or before its latest step, be that damaged or not.
            for damaged in self._damaged & {*self._manager.all_steps()}:
                self._manager.delete(damaged)
            self._damaged.clear()
            items = args.Composite(state=args.StandardSave(flat), note=args.JsonSave(sealed))
            if not self._manager.save(step, args=items):
                raise RuntimeError(f"Orbax did not take step {step}")
        except Exception as error:  # an earlier asynchronous save may have failed in any way
            raise self._cannot_save(error) from error

    def wait(self) -> None:
        """Until everything is on disk."""
        self._handed_over()
        try:
            self._manager.wait_until_finished()
        except Exception as error:
            raise self._cannot_save(error) from error
        self._whole |= {step for step in self._started if (self.folder / str(step)).is_dir()}
        self._started.clear()

    def restore(
        self, like: Any = None, differ: Callable[[dict], str] = lambda note: ""
    ) -> Restored | None:
        """The newest whole checkpoint, None if there is none at all.

        With `like`, a state (arrays or shapes), its paths, shapes and dtypes must be those.
        `differ(note)` says why what belongs to it, such as the rows, is not whole.
        """
        found = newest(self.folder, differ, job=jax.process_count() > 1)
        if found.whole is not None:
            if like is not None:
                where = f"the checkpoint {self.folder / str(found.whole.step)}"
                compare(found.whole.arrays, flatten_state(like), where)
            self._whole, self._damaged = {found.whole.step}, set(found.damaged)
        return found.whole

    def _cannot_save(self, error: Exception) -> UserError:
        kept = [step for step in self._manager.all_steps() if step not in self._damaged]
        return UserError(
            f"cannot save a checkpoint to {self.folder}: {first_line(error)}. What is saved "
            f"already is kept: {'step ' + str(max(kept)) if kept else 'nothing yet'}."
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
