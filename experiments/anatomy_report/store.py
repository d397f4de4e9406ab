"""The trained members of a report on disk: one small file for each, written as they come.

The folder belongs to one subject: its name ends with the hash of the settings. A member that is in
the folder is not trained again.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments.anatomy_report.parts import Variant
from experiments.anatomy_report.training import Trained
from jaxformer.core import paths
from jaxformer.io.atomic_files import write_json
from jaxformer.training.metrics import Mean


class Store:
    """The members of one subject.

    Args:
      folder: None keeps them in memory.
    """

    def __init__(self, folder: Path | None):
        self.folder = folder
        self.members: dict[tuple[str, int, float], Trained] = {}
        self.params: Any = None  # of the whole network, once it is trained in this process

    def get(self, variant: Variant, seed: int, rate: float) -> Trained | None:
        """Returns a member, None if it was not trained."""
        key = (variant.name, seed, rate)
        if key not in self.members and self.folder:
            file = self._file(*key)
            if file.exists():
                self.members[key] = _of_json(json.loads(file.read_text()))
        return self.members.get(key)

    def put(self, variant: Variant, seed: int, rate: float, trained: Trained) -> None:
        """Stores a member."""
        key = (variant.name, seed, rate)
        self.members[key] = trained
        if self.folder:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_json(self._file(*key), trained._asdict())

    def put_params(self, params: Mapping[str, Any]) -> None:
        """Stores the parameters of the whole network."""
        self.params = params
        if self.folder:
            arrays = {path: np.asarray(leaf) for path, leaf in paths.flatten(params).items()}
            np.savez(self.folder / "whole.npz", **arrays)  # type: ignore[arg-type]

    def get_params(self) -> Any:
        """Returns the parameters of the whole network, None if they are not stored."""
        file = self.folder and self.folder / "whole.npz"
        if self.params is None and file and file.exists():
            with np.load(file) as arrays:
                self.params = paths.unflatten({name: arrays[name] for name in arrays.files})
        return self.params

    def _file(self, name: str, seed: int, rate: float) -> Path:
        assert self.folder is not None
        words = re.sub(r"\W+", "-", name)
        return self.folder / f"{words}-rate{rate:g}-seed{seed}.json"


def _of_json(values: Mapping[str, Any]) -> Trained:
    def means(scores: Mapping[str, Any]) -> dict[str, Mean]:
        return {
            name: Mean(_number(mean["mean"]), _number(mean["sem"]), mean["n"])
            for name, mean in scores.items()
        }

    return Trained(
        means(values["test"]),
        means(values["validation"]),
        [(step, _number(loss)) for step, loss in values["curve"]],
        values["diverged_at"],
        values["seconds"],
    )


def _number(value: float | None) -> Any:
    return float("nan") if value is None else value
