"""The parts of a network and the variants that train it without each of them.

A part is a set of parameters, selected by patterns over their paths. A variant changes one part:

frozen         the part keeps its random initial values
removed        the part contributes nothing: its kernels are zero and stay zero
fixed mixing   attention is replaced by a random mixing that does not see the tokens
only           the part is trained and everything else keeps its initial values

Without queries and keys, every token attends equally to all tokens that it may see. Without the
output kernel of attention or of an MLP, the whole branch contributes nothing.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jaxformer.core import paths

WHOLE = "whole"
FROZEN, REMOVED, FIXED_MIXING, ONLY = "frozen", "removed", "fixed mixing", "only"
METHODS = (FROZEN, REMOVED, FIXED_MIXING, ONLY)
OTHER = "other"
BLOCK = re.compile(r"(?:.*/)?block_(\d+)/.*")


class Part(NamedTuple):
    """A named set of parameters, and how it is removed."""

    name: str
    pattern: str  # selects its parameters
    zeroed: str = ""  # the parameters that are zero when it is removed; "": it cannot be removed
    layer: int | None = None  # None: all layers


class Variant(NamedTuple):
    """The network with one part changed. Patterns that are "" select nothing."""

    part: str
    method: str
    layer: int | None = None
    fixed: str = ""  # the parameters that keep their initial values
    zeroed: str = ""  # the parameters that are zero and stay zero
    trained: str = ""  # if given, all other parameters keep their initial values

    @property
    def name(self) -> str:
        of_block = "" if self.layer is None else f" of block {self.layer}"
        return WHOLE if self.method == WHOLE else f"{self.part}{of_block}, {self.method}"

    def is_updated(self, path: str) -> bool:
        """Returns whether training changes the parameter."""
        if self.is_zero(path) or _matches(self.fixed, path):
            return False
        return not self.trained or _matches(self.trained, path)

    def is_zero(self, path: str) -> bool:
        """Returns whether the parameter is zero."""
        return _matches(self.zeroed, path)


WHOLE_NETWORK = Variant(WHOLE, WHOLE)
QUERIES_KEYS = "queries and keys"
ATTENTION, MLP = "attention", "MLP"
EMBEDDING, UNEMBEDDING, POSITIONS = "embedding", "unembedding", "positions"
# Attention and MLP come before their own parts, which matter less if the whole branch can go.
PARTS = (
    Part(ATTENTION, r".*/attn/(query|key|value|out)/.*", zeroed=r".*/attn/out/.*"),
    Part(MLP, r".*/mlp/.*", zeroed=r".*/mlp/out/.*"),
    Part(QUERIES_KEYS, r".*/attn/(query|key)/.*", zeroed=r".*/attn/(query|key)/.*"),
    Part("values", r".*/attn/value/.*"),
    Part("attention output", r".*/attn/out/.*"),
    Part("MLP in", r".*/mlp/(gate|in)/.*"),
    Part("MLP out", r".*/mlp/out/.*"),
    Part(EMBEDDING, r"(.*/)?embed/.*"),
    Part(UNEMBEDDING, r"(.*/)?(unembed|head)/.*"),
    Part("norms", r"(.*/)?\w*norm\w*/.*"),
    Part(POSITIONS, r"(.*/)?positions/.*", zeroed=r"(.*/)?positions/.*"),
)
# Encoders have no output kernel: attention contributes nothing if its values are zero.
NO_OUTPUT_KERNEL = Part(ATTENTION, r".*/attn/(query|key|value)/.*", zeroed=r".*/attn/value/.*")


def parts_of(params: Mapping[str, Any], by_layer: bool = False) -> list[Part]:
    """Returns the parts that a network has.

    Args:
      params: the parameters, or their shapes.
      by_layer: whether the result also has each part of each single block.
    """
    names = list(paths.flatten(params))
    parts = [part for part in PARTS if _selects(part.pattern, names)]
    if not _selects(r".*/attn/out/.*", names):
        parts = [NO_OUTPUT_KERNEL if part.name == ATTENTION else part for part in parts]
    parts = [_whole_if_no_output(part, names) if part.name == MLP else part for part in parts]
    covered = {name for part in parts for name in names if _matches(part.pattern, name)}
    # Each module with a parameter outside of these parts is a part of its own.
    modules = dict.fromkeys(
        name.rpartition("/")[0] or name for name in names if name not in covered
    )
    parts += [Part(f"{OTHER} {module}", f"{re.escape(module)}(/.*)?") for module in modules]
    if not by_layer:
        return parts
    layers = sorted({int(match[1]) for name in names if (match := BLOCK.fullmatch(name))})
    of_blocks = [_at_layer(part, layer) for layer in layers for part in parts]
    return parts + [part for part in of_blocks if _selects(part.pattern, names)]


def variants_of(parts: Sequence[Part], methods: Sequence[str], can_mix: bool) -> list[Variant]:
    """Returns the variants of a network, sorted by method, then by part.

    Args:
      methods: some of METHODS.
      can_mix: whether the network has a form with fixed mixing.
    """
    variants = []
    for method in methods:
        for part in parts:
            if method == FROZEN:
                variants.append(Variant(part.name, method, fixed=part.pattern, layer=part.layer))
            elif method == REMOVED and part.zeroed:
                removed = Variant(
                    part.name, method, layer=part.layer, fixed=part.pattern, zeroed=part.zeroed
                )
                variants.append(removed)
            elif method == FIXED_MIXING and can_mix and part == PARTS[0]:  # attention of all blocks
                variants.append(Variant(part.name, method))
            elif method == ONLY and part.layer is None:
                variants.append(Variant(part.name, method, trained=part.pattern))
    return variants


def _at_layer(part: Part, layer: int) -> Part:
    """Returns the part with patterns that select parameters of one block only."""

    def in_block(pattern: str) -> str:
        return f"(?=(.*/)?block_{layer}/)(?:{pattern})" if pattern else ""

    return Part(part.name, in_block(part.pattern), in_block(part.zeroed), layer)


def _whole_if_no_output(mlp: Part, names: Sequence[str]) -> Part:
    """The MLP with all parameters of those modules zero that have no output kernel.

    Without it nothing of them would be zero, and "removed" would be "frozen".
    """
    modules = {match[1] for name in names if (match := re.fullmatch(r"(.*/mlp)/.*", name))}
    whole = [m for m in sorted(modules) if not any(name.startswith(f"{m}/out/") for name in names)]
    return mlp._replace(zeroed="|".join([mlp.zeroed, *(f"{re.escape(m)}/.*" for m in whole)]))


def zeroed_as_a_whole(params: Mapping[str, Any]) -> dict[str, str]:
    """{MLP: what is zero when it is removed} if some MLP has no output kernel; else {}."""
    return {p.name: p.zeroed for p in parts_of(params) if p.name == MLP and p not in PARTS}


def _selects(pattern: str, names: Sequence[str]) -> bool:
    return any(_matches(pattern, name) for name in names)


def _matches(pattern: str, path: str) -> bool:
    return bool(pattern) and re.fullmatch(pattern, path) is not None
