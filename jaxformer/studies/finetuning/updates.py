"""The updates that a study compares: a part of the model, trained itself or by adapters."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxformer.core import adapters, paths, small_parts
from jaxformer.core.adapters import Lora
from jaxformer.core.errors import unknown
from jaxformer.studies.anatomy import parts

RANKS = (1, 4, 16)
EVERYTHING, NORMS, BIASES = "everything", "norms", "biases"
THIRDS = ("first", "middle", "last")
# Weights in float32, and for each trained one its gradient and the two moments of AdamW.
WEIGHT_BYTES, TRAINED_BYTES = 4, 12


class Update(NamedTuple):
    """A part of the model, and how it is trained; everything else is frozen."""

    part: str
    pattern: str  # selects the parameters of the part
    rank: int = 0  # of adapters on the kernels of the part; 0: the parameters are trained

    @property
    def method(self) -> str:
        return f"rank {self.rank}" if self.rank else "full"

    @property
    def name(self) -> str:
        return f"{self.part}, {self.method}"

    def selects(self, path: str) -> bool:
        return paths.matches(self.pattern, path)

    def loras(self, shapes: Mapping[str, Any]) -> dict[str, Lora]:
        """The adapter of each kernel; {} for a full update."""
        return {path: Lora(self.rank) for path in kernels(shapes, self.pattern) if self.rank}

    def trained(self, shapes: Mapping[str, Any]) -> int:
        """The number of trained parameters."""
        flat = paths.flatten(shapes)
        if self.rank:
            return sum(self.rank * sum(flat[path].shape) for path in self.loras(shapes))
        return sum(math.prod(leaf.shape) for path, leaf in flat.items() if self.selects(path))

    def memory(self, shapes: Mapping[str, Any]) -> int:
        """Bytes of all weights, and of gradients and moments of the trained ones, in float32.

        Activations come on top. They depend on the batch, and they are fewer if the blocks below
        the first trained one are frozen: `jaxformer.plan` compiles a step and tells.
        """
        flat, trained = paths.flatten(shapes), self.trained(shapes)
        weights = sum(math.prod(leaf.shape) for leaf in flat.values()) + trained * bool(self.rank)
        return WEIGHT_BYTES * weights + TRAINED_BYTES * trained


FULL = Update(EVERYTHING, ".*")  # the update with which all others are compared


def updates_of(shapes: Mapping[str, Any], ranks: Sequence[int] = RANKS) -> list[Update]:
    """All updates that a model allows: parts, thirds of the blocks, each in full and by rank.

    Args:
        shapes: the parameters, or their shapes.
        ranks: the ranks of adapters. A rank above that of a kernel of the part is left out.
    """
    names = list(paths.flatten(shapes))
    by_name = {part.name: part.pattern for part in parts.PARTS}
    chosen = {
        EVERYTHING: ".*",
        NORMS: small_parts.NORMS[0][0],
        BIASES: small_parts.BITFIT[0][0],
        **{name: by_name[name] for name in (parts.ATTENTION, parts.MLP, parts.QUERIES_KEYS)},
        "values": by_name["values"],
        **_thirds(names),
    }
    updates = []
    for part, pattern in chosen.items():
        if not any(paths.matches(pattern, name) for name in names):
            continue
        updates.append(Update(part, pattern))
        if adapted := kernels(shapes, pattern):
            largest = min(min(shape) for shape in adapted.values())
            updates += [Update(part, pattern, rank) for rank in ranks if rank <= largest]
    return updates


def chosen_updates(updates: Sequence[Update], names: Sequence[str]) -> list[Update]:
    """The updates with these names, in this order; the full one of everything is always there."""
    by_name = {update.name: update for update in updates}
    for name in names:
        if name not in by_name:
            raise unknown("update", name, by_name)
    return [by_name[name] for name in dict.fromkeys((FULL.name, *names))]


def kernels(shapes: Mapping[str, Any], pattern: str) -> dict[str, tuple[int, ...]]:
    """{path: shape} of the matrices in blocks that a pattern selects, which can have adapters."""
    return {
        path: tuple(leaf.shape)
        for path, leaf in paths.flatten(shapes).items()
        if path.endswith(f"/{adapters.KERNEL}")
        and len(leaf.shape) == 2
        and parts.BLOCK.fullmatch(path)
        and paths.matches(pattern, path)
    }


def is_vector(path: str) -> bool:
    """Tests whether a parameter is of a norm or a bias, which the low-rank program trains too."""
    vectors = (small_parts.NORMS[0][0], small_parts.BITFIT[0][0])
    return any(paths.matches(pattern, path) for pattern in vectors)


def _thirds(names: Sequence[str]) -> dict[str, str]:
    """{name: pattern} of three groups of neighbouring blocks; {} for fewer than three blocks."""
    blocks = sorted({int(match[1]) for name in names if (match := parts.BLOCK.fullmatch(name))})
    if len(blocks) < len(THIRDS):
        return {}
    groups = zip(THIRDS, np.array_split(blocks, len(THIRDS)), strict=True)
    return {
        f"{place} third of the blocks": f"block_({'|'.join(map(str, group))})/.*"
        for place, group in groups
    }
