"""Places the parts of a plan in the blocks of a network.

Time runs block by block: the heads of block b work at time 2 b, its MLP at time 2 b + 1. A part
comes after everything that it reads, and each head of a block computes one part. The hidden units
of several parts share the MLP of a block.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from jaxformer.core.errors import UserError
from jaxformer.interp.known.parts import Head, Neurons, Part, Plan
from jaxformer.interp.known.program import POSITION, TOKEN

EMBEDDED, LOGITS = "embedded", "logits"
TRIES = 100  # random placements before the earliest one is taken
DELAY = 0.3  # the probability that a random placement leaves a block out


@dataclass(frozen=True)
class Place:
    """The block of a part, and the number of its head; None for hidden units."""

    block: int
    head: int | None

    @property
    def node(self) -> str:
        """The name of the node, such as "block_0/attn/head_3" or "block_0/mlp"."""
        if self.head is None:
            return f"block_{self.block}/mlp"
        return f"block_{self.block}/attn/head_{self.head}"

    @property
    def time(self) -> int:
        return 2 * self.block + (self.head is None)


@dataclass(frozen=True)
class Placed:
    """The parts of a plan with their places, in the order of computation."""

    plan: Plan
    places: tuple[Place, ...]

    @cached_property
    def nodes(self) -> list[str]:
        """The nodes that compute something, in the order of the blocks."""
        places = sorted(set(self.places), key=lambda place: (place.time, place.head or 0))
        return [place.node for place in places]

    @property
    def layers(self) -> int:
        """The number of blocks that the parts need."""
        return max(place.block for place in self.places) + 1

    @property
    def heads(self) -> int:
        """The largest number of heads in a block."""
        by_block: dict[int, int] = {}
        for place in self.places:
            if place.head is not None:
                by_block[place.block] = max(by_block.get(place.block, 0), place.head + 1)
        return max(by_block.values(), default=1)

    def hidden_units(self) -> dict[int, int]:
        """{block: the number of hidden units of its MLP}."""
        counts: dict[int, int] = {}
        for part, place in zip(self.plan.parts, self.places, strict=True):
            if isinstance(part, Neurons):
                counts[place.block] = counts.get(place.block, 0) + len(part.bias)
        return counts

    def writers(self, variable: str, number: int) -> list[int]:
        """The numbers of the parts before this one that write a variable."""
        return writers(self.plan.parts, variable, number)

    def reader(self, number: int, letter: str) -> str:
        """The name of a reader, such as "block_0/attn/head_3/query" or "block_0/mlp"."""
        node = self.places[number].node
        return f"{node}/{letter}" if letter else node


def writers(parts: tuple[Part, ...], variable: str, number: int) -> list[int]:
    """The numbers of the parts before `number` that write a variable."""
    return [i for i, part in enumerate(parts[:number]) if part.writes == variable]


def place(
    plan: Plan,
    heads: int | None,
    layers: int | None,
    hidden: int | None,
    random: np.random.Generator | None,
) -> Placed:
    """Places all parts; raises UserError if they do not fit.

    Args:
        heads: the heads of a block; None for as many as needed.
        layers: the number of blocks; None for as many as needed.
        hidden: the hidden units of an MLP; None for as many as needed.
        random: draws the places; None takes the earliest block and the first head.
    """
    if random is not None:
        for _ in range(TRIES):
            placed = _placed(plan, heads, hidden, random, DELAY)
            if layers is None or placed.layers <= layers:
                return placed
    placed = _placed(plan, heads, hidden, random, 0.0)
    if layers is not None and placed.layers > layers:
        of_heads = "" if heads is None else f" of {heads} heads"
        raise UserError(
            f"the program needs {placed.layers} layers{of_heads}, got layers={layers}: give "
            f"layers={placed.layers}, more heads, or fewer steps."
        )
    return placed


def _placed(
    plan: Plan,
    heads: int | None,
    hidden: int | None,
    random: np.random.Generator | None,
    delay: float,
) -> Placed:
    """Gives each part the first free place after what it reads, and sometimes a later one."""
    places: list[Place] = []
    taken: dict[int, set[int]] = {}  # {block: its heads}
    units: dict[int, int] = {}  # {block: its hidden units}
    for number, part in enumerate(plan.parts):
        ready = 0
        for reads in part.reads.values():
            for read in reads:
                for writer in writers(plan.parts, read.variable, number):
                    ready = max(ready, places[writer].time + 1)
        block = (ready + 1) // 2 if isinstance(part, Head) else ready // 2
        if random is not None and random.random() < delay:
            block += 1
        if isinstance(part, Head):
            while heads is not None and len(taken.get(block, ())) >= heads:
                block += 1
            used = taken.setdefault(block, set())
            free = [i for i in range(heads or len(used) + 1) if i not in used]
            head = free[0] if random is None else int(random.choice(free))
            used.add(head)
            places.append(Place(block, head))
        else:
            n_units = len(part.bias)
            while hidden is not None and 0 < units.get(block, 0) > hidden - n_units:
                block += 1
            units[block] = units.get(block, 0) + n_units
            places.append(Place(block, None))
    return Placed(plan, tuple(places))


def source_of(variable: str) -> str | None:
    """The node that writes a variable that no part writes."""
    return EMBEDDED if variable in (TOKEN, POSITION) else None
