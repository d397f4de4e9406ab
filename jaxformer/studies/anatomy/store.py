"""The trained members of a report on disk, one small file each.

A member is a variant at one seed and one learning rate. Its file is written when its training ends.
The folder belongs to one subject, which is a task, a network and the settings of its training. The
folder's name ends with the hash of the settings. A member that is in the folder is not trained
again. Files carry a checksum, and a damaged one is reported and ignored, so that its member is
trained again.

The file whole.npz has the parameters of the whole network, in which no part is changed, and
whole-seed3.npz those of another seed.
"""

import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from jaxformer.core import paths
from jaxformer.core.errors import one_line
from jaxformer.io import npz_store
from jaxformer.io.atomic_files import (
    has_checksum,
    sha256,
    with_checksum,
    without_checksum,
    write_json,
)
from jaxformer.studies.anatomy.training import Trained
from jaxformer.training.metrics import Mean

RATE = "rate"  # the array of whole.npz with the learning rate of its parameters


class Named(Protocol):
    """A variant, of which the store needs the name only."""

    @property
    def name(self) -> str: ...


def trained_of_json(values: Mapping[str, Any]) -> Trained:
    def means(scores: Mapping[str, Any]) -> dict[str, Mean]:
        return {
            name: Mean(number(mean["mean"]), number(mean["sem"]), mean["n"])
            for name, mean in scores.items()
        }

    return Trained(
        means(values["test"]),
        means(values["validation"]),
        [(step, number(loss)) for step, loss in values["curve"]],
        values["diverged_at"],
        values["seconds"],
    )


def number(value: float | None) -> Any:
    """Returns the number, or nan for None: JSON has null in place of nan."""
    return float("nan") if value is None else value


# Name of the variant, seed, learning rate, and if it is not 1, the steps over the subject's.
Key = tuple[str, int, float] | tuple[str, int, float, int]


def _key(variant: Named, seed: int, rate: float, times: int) -> Key:
    # Members of the subject's own steps keep the keys and files that they always had.
    return (variant.name, seed, rate) if times == 1 else (variant.name, seed, rate, times)


class Store:
    """The members of one subject.

    Args:
      folder: None keeps them in memory.
      read: makes a member from the content of its file; a member is a NamedTuple.
    """

    def __init__(
        self, folder: Path | None, read: Callable[[Mapping[str, Any]], Any] = trained_of_json
    ):
        self.folder, self.read_member = folder, read
        self.members: dict[Key, Any] = {}
        self._params: dict[int, tuple[float, Any]] = {}  # {seed: (learning rate, parameters)}
        self._damaged: set[Path] = set()

    def get(self, variant: Named, seed: int, rate: float, times: int = 1) -> Any:
        """Returns a member, None if it was not trained or its file is damaged.

        Args:
          variant, seed, rate: what was trained.
          times: the steps of the training over those of the subject.
        """
        key: Any = _key(variant, seed, rate, times)
        if key not in self.members and self.folder:
            for file in (self._file(*key), self._other_file(*key)):
                if key not in self.members and file.exists() and file not in self._damaged:
                    self._read(file, key)
        return self.members.get(key)

    def put(self, variant: Named, seed: int, rate: float, trained: Any, times: int = 1) -> None:
        """Stores a member."""
        key: Any = _key(variant, seed, rate, times)
        self.members[key] = trained
        if self.folder:
            self.folder.mkdir(parents=True, exist_ok=True)
            file = self._file(*key)
            if file.exists() and self._is_of_a_namesake(file, key):
                file = self._other_file(*key)
            write_json(file, with_checksum({"member": key, **trained._asdict()}))

    def put_params(self, rate: float, params: Mapping[str, Any], seed: int = 0) -> None:
        """Stores the parameters of the whole network that was trained at this learning rate."""
        self._params[seed] = rate, params
        if self.folder:
            npz_store.write(self._params_file(seed), {RATE: rate, **paths.flatten(params)})

    def get_params(self, rate: float, seed: int = 0) -> Any:
        """Returns the parameters of the whole network at this rate, None if they are not stored."""
        if seed not in self._params and self.folder and self._params_file(seed).exists():
            file = self._params_file(seed)
            try:
                arrays = npz_store.load_verified(file)
                if RATE not in arrays:
                    raise ValueError("it has no learning rate")
                self._params[seed] = float(arrays.pop(RATE)), paths.unflatten(arrays)
            except ValueError as error:
                self._report_damage(file, error)
        stored_rate, params = self._params.get(seed, (None, None))
        return params if stored_rate == rate else None

    def _params_file(self, seed: int) -> Path:
        assert self.folder is not None
        return self.folder / (f"whole-seed{seed}.npz" if seed else "whole.npz")

    def _read(self, file: Path, key: Key) -> None:
        try:
            values = json.loads(file.read_bytes())
            if not has_checksum(values):
                raise ValueError("it has no checksum")
            values = without_checksum(values)
            if values["member"] != [*key]:
                if self._file(*values["member"]) == file:
                    return  # of a variant whose name differs in its punctuation only
                raise ValueError("it is the file of another member")
            self.members[key] = self.read_member(values)
        except (ValueError, TypeError, RecursionError) as error:
            self._report_damage(file, error)

    def _is_of_a_namesake(self, file: Path, key: Key) -> bool:
        """Whether an intact file is that of a variant whose name differs in punctuation only."""
        try:
            member = without_checksum(json.loads(file.read_bytes()))["member"]
            return member != [*key] and self._file(*member) == file
        except (ValueError, TypeError, KeyError, RecursionError):
            return False  # a damaged file is written again

    def _report_damage(self, file: Path, error: Exception) -> None:
        self._damaged.add(file)
        reason = one_line(error, 100)
        print(f"warning: {file} is damaged ({reason}); it is made again.", file=sys.stderr)

    def _file(self, name: str, seed: int, rate: float, times: int = 1) -> Path:
        assert self.folder is not None
        slug = re.sub(r"\W+", "-", name)
        longer = "" if times == 1 else f"-steps{times}x"
        return self.folder / f"{slug}-rate{float(rate)!r}-seed{seed}{longer}.json"

    def _other_file(self, name: str, seed: int, rate: float, times: int = 1) -> Path:
        """The file of a member whose own one has a variant with the same letters in its name."""
        file = self._file(name, seed, rate, times)
        return file.with_name(f"{sha256(name.encode())[:8]}-{file.name}")
