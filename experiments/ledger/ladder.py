"""A ladder: one quantity at several sizes, and a rule about its trend.

A row of the ledger asks whether a claim holds at our size. A ladder asks what happens to the effect
as networks grow towards the paper's size. Its rule is written before its runs, and it decides the
ladder alone: no extrapolation changes the verdict of a row.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from experiments.ledger.item import Cell
from experiments.ledger.ladder_rule import KINDS, Trend
from experiments.ledger.rules import Side
from jaxformer.core.errors import UserError, check_choice

LEAST_RUNGS = 3
LEAST_STEP, LARGEST_STEP = 1.4, 4.0  # the factor between neighbouring sizes; "about twice"
SEEDS, LEAST_SEEDS = 5, 3
# By their plans (`--target=h100:1`), sizes for a card take at least 1/900 of the time of a core.
# Runs on an H100 took about twice the bound (docs/devices.md), once started and compiled.
CARD_SPEEDUP, CARD_START_SECONDS = 400.0, 40.0
LONG_MINUTES = 60.0  # of a seed at the longest rung, above which LEAST_SEEDS suffice
SEED_FIELDS = ("seed", "n_seeds", "data.seed")


class Rung(NamedTuple):
    """One size of a ladder."""

    size: float
    overrides: Mapping[str, str] = {}  # of every cell, as on the command line
    minutes: float = 1.0  # of one core for all cells and seeds, guessed before any run
    on_card: bool = False  # needs an accelerator: it tests the prediction and decides nothing


def card_seconds(core_seconds: float) -> float:
    """The guessed time on an H100 of a run that would take so long on one core."""
    return CARD_START_SECONDS + core_seconds / CARD_SPEEDUP


@dataclass(frozen=True)
class Ladder:
    """A claim about a trend. A UserError in one line says what is wrong with it."""

    name: str  # "retrieval-pairs"
    row: str  # "mixit: Table 2, retrieval", the row whose claim it follows
    claim: str  # the rule as a sentence, with its reason
    quantity: str  # "accuracy of Standard minus that of MixiT"
    parameter: str  # "M, key-value pairs"
    cells: Mapping[str, Cell]  # with complete configs: "..:variant=mixit,scale=small"
    left: Side  # the quantity is left - right; "{size}" in a metric is the size of the rung
    right: Side
    rule: Trend
    rungs: tuple[Rung, ...]  # smallest first
    paper_size: float | None = None
    published: float | None = None  # the quantity in the paper, if it prints numbers
    seeds: int = SEEDS
    limits: tuple[float, float] = (-math.inf, math.inf)  # that the quantity cannot exceed
    # A cell whose accuracy must reach `judgement.SOLVED`. Where it does not, the task is too hard
    # for these steps, a difference of two failures says nothing, and the rung is left out.
    solved: str = ""
    seen: tuple[float, ...] = ()  # sizes at which other seeds had been seen before the rule

    def __post_init__(self):
        sizes = [rung.size for rung in self.rungs]
        text = ", ".join(f"{size:g}" for size in sizes)
        check_choice(f"kind of trend of the ladder {self.name}", self.rule.kind, KINDS)
        if len([rung for rung in self.rungs if not rung.on_card]) < LEAST_RUNGS:
            raise self._error(
                f"needs at least {LEAST_RUNGS} rungs without an accelerator, because a line "
                f"through fewer cannot be wrong; its sizes are {text or 'none'}: add sizes"
            )
        if any(upper <= lower for lower, upper in pairwise(sizes)):
            raise self._error(f"needs its rungs in order, smallest first; they are {text}: sort it")
        if any(not LEAST_STEP <= b / a <= LARGEST_STEP for a, b in pairwise(sizes) if a > 0):
            raise self._error(
                f"needs rungs each about twice the one before (factors {LEAST_STEP:g} to "
                f"{LARGEST_STEP:g}); they are {text}: choose other sizes"
            )
        if not self.paper_size or self.paper_size < 0 or sizes[0] <= 0:
            raise self._error(
                "needs the paper's size and positive sizes, because it predicts the quantity "
                f"there; it has paper_size={self.paper_size} and sizes {text}: add paper_size=.."
            )
        on_card = [rung.on_card for rung in self.rungs]
        if on_card != sorted(on_card):
            raise self._error("has a rung for a card below one for a CPU: put it last")
        self._check_seeds()
        for side in (self.left, self.right):
            for cell in filter(None, side.cells):
                check_choice(f"cell of the ladder {self.name}", cell, self.cells)
        if self.solved:
            check_choice(f"solved cell of the ladder {self.name}", self.solved, self.cells)

    def _check_seeds(self) -> None:
        changed = {
            name
            for overrides in [rung.overrides for rung in self.rungs]
            + [cell.overrides for cell in self.cells.values()]
            for name in overrides
            if name in SEED_FIELDS
        }
        if changed:
            raise self._error(
                f"has unequal seeds: a rung or a cell sets {', '.join(sorted(changed))}, but all "
                "rungs share the seeds that the plan draws; set Ladder.seeds instead"
            )
        longest = max(rung.minutes for rung in self.rungs) / max(self.seeds, 1)
        least = LEAST_SEEDS if longest > LONG_MINUTES else SEEDS
        if self.seeds < least:
            raise self._error(
                f"needs {least} seeds, got {self.seeds}; {LEAST_SEEDS} suffice only where a rung "
                f"takes more than {LONG_MINUTES:.0f} minutes a seed"
            )

    def _error(self, problem: str) -> UserError:
        return UserError(f"the ladder {self.name} {problem}.")


def over(
    sizes: Mapping[float, float], overrides: Mapping[str, str] = {}, card: Sequence[float] = ()
) -> tuple[Rung, ...]:
    """The rungs of these sizes.

    Args:
      sizes: the minutes that each size takes on one core, for all cells and seeds.
      overrides: of every rung; "{size}" in a value is the size, and "{size*4}" four times it.
      card: the sizes that need an accelerator.
    """
    return tuple(
        Rung(size, {n: _filled(v, size) for n, v in overrides.items()}, minutes, size in card)
        for size, minutes in sizes.items()
    )


def _filled(text: str, size: float) -> str:
    return text.replace("{size}", f"{size:g}").replace("{size*4}", f"{4 * size:g}")
