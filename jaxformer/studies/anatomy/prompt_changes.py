"""The loss or gain of each pair of prompts by each method: the numbers behind the effects."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jaxformer.core.errors import UserError, did_you_mean
from jaxformer.studies.anatomy.effects import Changes


@dataclass(frozen=True)
class PromptChanges:
    """Changes of the score, by network, part or group, method, and pair of prompts.

    Attributes:
        networks: {(part or group, method): (B,)} of each network. The first one has heads and
            pairs of parts, which others have no counterparts of.
        prompts: a text for each pair.

    Example:
        report = jaxformer.examine(run)
        report.changes["block_0/attn", "mean ablation"]  # (networks, prompts)
        report.changes.frame()  # rows for pandas.DataFrame
        report.changes.to_npz("changes.npz")
    """

    networks: tuple[Changes, ...] = ()
    prompts: tuple[str, ...] = ()

    @property
    def parts(self) -> list[str]:
        """The parts and groups."""
        return list(dict.fromkeys(part for part, _ in self._keys()))

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(method for _, method in self._keys()))

    def __getitem__(self, key: tuple[str, str]) -> np.ndarray:
        """The change of each prompt, (networks, B), of the networks that have this part."""
        found = [changes[key] for changes in self.networks if key in changes]
        if not found:
            part, method = key
            known, wrong = self.parts, part
            if part in known:
                known, wrong = self.methods, method
            hint = did_you_mean(wrong, known)
            raise UserError(f"no changes of {part!r} by {method!r}.{hint}")
        return np.stack(found)

    def of_first(self, part: str, method: str) -> np.ndarray | None:
        """The change of each prompt in the first network, (B,); None if it was not measured."""
        return self.networks[0].get((part, method)) if self.networks else None

    def frame(self) -> list[dict[str, Any]]:
        """One dict for each network, part, method and prompt, for `pandas.DataFrame`."""
        rows = []
        for network, changes in enumerate(self.networks):
            for (part, method), change_B in changes.items():
                for prompt, change in zip(self.prompts, change_B, strict=True):
                    row = {"network": network, "part": part, "method": method, "prompt": prompt}
                    rows.append(row | {"change": float(change)})
        return rows

    def to_npz(self, file: str | Path) -> None:
        """Writes one array "part|method" (networks, B) for each part and method, and "prompts"."""
        arrays: dict[str, Any] = {
            f"{part}|{method}": self[part, method] for part, method in self._keys()
        }
        np.savez_compressed(file, prompts=np.array(self.prompts), **arrays)

    def _keys(self) -> Iterator[tuple[str, str]]:
        yield from self.networks[0] if self.networks else ()
