"""Orbax checkpoints of a state: asynchronous, atomic, and compared leaf by leaf before use.

A state is stored as {path: array} with its paths as names, beside a JSON note (the rules of the
partition, the seconds spent). Orbax restores a missing leaf as None without an error, so restoring
compares every path, shape and dtype with those of the state that the program expects.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.errors import UserError, did_you_mean


class Checkpoints:
    """The checkpoints in a folder, the newest `keep` of them."""

    def __init__(self, folder: str | Path, keep: int = 2):
        import orbax.checkpoint as ocp  # imported here: it takes a second

        self._ocp = ocp
        self.folder = Path(folder).absolute()
        self._manager = ocp.CheckpointManager(
            self.folder,
            options=ocp.CheckpointManagerOptions(max_to_keep=keep, cleanup_tmp_directories=True),
            item_names=("state", "note"),
        )

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *_: object) -> None:
        self._manager.close()

    def latest(self) -> int | None:
        """The step of the newest whole checkpoint."""
        return self._manager.latest_step()

    def save(self, step: int, state: Any, note: dict[str, Any]) -> None:
        """Starts to write; training goes on meanwhile. A step that is there already is kept."""
        if step in self._manager.all_steps():
            return
        # Copied, because the training loop donates its buffers while Orbax still writes.
        flat = {path: jnp.copy(leaf) for path, leaf in flatten_state(state).items()}
        args = self._ocp.args
        self._manager.save(
            step, args=args.Composite(state=args.StandardSave(flat), note=args.JsonSave(note))
        )

    def wait(self) -> None:
        """Until everything is on disk."""
        self._manager.wait_until_finished()

    def note(self, step: int) -> dict[str, Any]:
        args = self._ocp.args
        return self._manager.restore(step, args=args.Composite(note=args.JsonRestore()))["note"]

    def restore(self, step: int, like: Any) -> Any:
        """The state of a step, in the structure of `like` (arrays or shapes)."""
        flat = self.restore_flat(step)
        expected = flatten_state(like)
        compare(flat, expected, f"the checkpoint {self.folder / str(step)}")
        leaves = [jnp.asarray(flat[path]) for path in expected]
        return jax.tree.unflatten(jax.tree.structure(like), leaves)

    def restore_flat(self, step: int) -> dict[str, np.ndarray]:
        """{path: array} of everything in a checkpoint."""
        args = self._ocp.args
        try:
            found = self._manager.restore(step, args=args.Composite(state=args.StandardRestore()))
        except (ValueError, OSError, KeyError) as error:
            reason = str(error).splitlines()[0]
            where = self.folder / str(step)
            raise UserError(f"cannot read the checkpoint {where}: {reason}") from None
        return dict(found["state"])


def flatten_state(state: Any) -> dict[str, Any]:
    """{"trainable/block_0/attn/value/kernel": leaf} for any tree of arrays."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(state)
    return {"/".join(_word(entry) for entry in path): leaf for path, leaf in leaves}


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


def _word(entry: Any) -> str:
    for attribute in ("name", "key", "idx"):
        if hasattr(entry, attribute):
            return str(getattr(entry, attribute))
    return str(entry)
