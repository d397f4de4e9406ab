"""Files of what an examination has measured so far, so that the same command continues it.

A method takes up to two minutes on a published model of 30 blocks. Each method that is finished
has one small file, in a folder whose name ends with a hash of the parameters, the prompts and their
scores.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxformer.core.errors import one_line
from jaxformer.io import npz_store
from jaxformer.io.checkpoint_reader import array_sha256
from jaxformer.io.run_folder import config_hash
from jaxformer.studies.anatomy.pairs import PromptPairs

VERSION = 2  # one more if a method measures something else than before
CHANGE = "change"  # the array of a file: what each pair loses, by block and component


class Finished:
    """The methods that are finished.

    Args:
        folder: None keeps nothing.
    """

    def __init__(self, folder: Path | None = None):
        self.folder = folder

    def get(self, method: str) -> np.ndarray | None:
        """The changes by a method, by block and component; None if they are to be measured."""
        if self.folder is None or not (file := self._file(method)).exists():
            return None
        try:
            return npz_store.load_verified(file)[CHANGE]
        except (ValueError, KeyError) as error:
            reason = one_line(error, 100)
            print(f"warning: {file} is damaged ({reason}); it is made again.", file=sys.stderr)
            return None

    def put(self, method: str, change: np.ndarray) -> None:
        if self.folder is not None:
            npz_store.write(self._file(method), {CHANGE: change})

    def _file(self, method: str) -> Path:
        assert self.folder is not None
        return self.folder / f"{method.replace(' ', '-').replace('%', 'percent')}.npz"


def identity_of(params: Any) -> str:
    """A short hash of parameters, by their numbers."""
    return config_hash({"arrays": [array_sha256(x) for x in jax.tree.leaves(params)]})[:12]


def folder_of(
    folder: Path, params: Any, pairs: PromptPairs, scores: Sequence[np.ndarray], heads: bool
) -> Path:
    """The folder of an examination: another network, or other prompts, have another one.

    Args:
        folder: in which it lies.
        params: the parameters.
        pairs: the prompts.
        scores: of the prompts, since two networks can differ in more than their parameters.
        heads: whether each head is measured.
    """
    prompts = [x for x in vars(pairs).values() if isinstance(x, np.ndarray)]
    arrays = [array_sha256(x) for x in (*jax.tree.leaves(params), *prompts, *scores)]
    identity = {"version": VERSION, "heads": heads, "arrays": arrays}
    return folder / f"examined-{config_hash(identity)}"
