"""When a claim counts as true: comparisons of measured numbers with their standard errors.

An item says its rules as {"the claim in words": above(left, right)}. A side is a number, or names
one measured in a cell: `of("standard")`, `of("standard", "loss")`, `trivial("standard", "guess")`.
Of an item with a single cell the cell is left out: "loss" is that metric, `trivial("", "guess")`
that baseline. Differences count beyond TWO combined standard errors. A rule says what follows if it
holds and if it does not; where the errors are too large to tell, it is undecided.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

REPRODUCED = "reproduced"
DIFFERS = "differs at this scale"
REFUTED = "refuted"
CHANCE = "chance level"
UNDECIDED = "undecided"
NOT_RUN = "not yet run"
DEFINITION = "definition"  # of an item that claims no number
# Of several findings the ledger shows the gravest first.
VERDICTS = (REFUTED, DIFFERS, CHANCE, UNDECIDED, REPRODUCED, NOT_RUN)
# Columns, best first.
SHOWN = (REPRODUCED, UNDECIDED, DIFFERS, REFUTED, CHANCE, NOT_RUN, DEFINITION)
ERRORS = 2.0  # combined standard errors


class Side(NamedTuple):
    """A number of a record; without a metric it is the number `value` itself."""

    cell: str
    metric: str
    value: float = 0.0
    is_baseline: bool = False


Given = Side | str | float  # a side as `above` and `near` take it


class Number(NamedTuple):
    """A mean and its standard error (0 for an exact number or a single seed)."""

    mean: float
    sem: float


# (side) -> its number, or None if there is no record; raises KeyError if the record lacks it.
Read = Callable[[Side], Number | None]


class Finding(NamedTuple):
    """What became of one rule."""

    text: str
    verdict: str
    numbers: str  # "0.9997 ± 0.0003 against 0.9987 ± 0.0013"


class Rule(NamedTuple):
    """`left` lies above `right` + by, or (within) no further than `by` from it, for certain."""

    left: Side
    right: Side
    by: float = 0.0
    within: bool = False
    yes: str = REPRODUCED
    no: str = DIFFERS

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.left, self.right

    def judge(self, text: str, read: Read) -> Finding:
        left, right = map(read, self.sides)
        if left is None or right is None:
            return Finding(text, NOT_RUN, "")
        error = ERRORS * math.hypot(left.sem, right.sem)
        gap = left.mean - right.mean
        if self.within:
            holds, may_hold = abs(gap) + error <= self.by, abs(gap) <= self.by + error
        else:
            holds, may_hold = gap > self.by + error, gap > self.by
        verdict = self.yes if holds else UNDECIDED if may_hold and self.no != CHANCE else self.no
        measured, other = (left, right) if self.left.cell else (right, left)
        return Finding(text, verdict, f"{_format(measured)} against {_format(other)}")


def of(cell: str, metric: str = "accuracy") -> Side:
    """A metric measured in a cell."""
    return Side(cell, metric)


def trivial(cell: str, name: str) -> Side:
    """A trivial predictor's score on the very set of a cell, or a theory's number beside it."""
    return Side(cell, name, is_baseline=True)


def above(left: Given, right: Given, by: float = 0.0, **verdicts) -> Rule:
    """left > right + by, beyond two combined standard errors."""
    return Rule(_side(left), _side(right), by, **verdicts)


def near(left: Given, right: Given, by: float, **verdicts) -> Rule:
    """|left - right| <= by, with two combined standard errors to spare."""
    return Rule(_side(left), _side(right), by, within=True, **verdicts)


def beyond_chance(cell: str, predictor: str) -> Rule:
    """The accuracy of a cell is above that of a trivial predictor; else it is chance level."""
    return above(of(cell), trivial(cell, predictor), no=CHANCE)


def gravest(verdicts: list[str]) -> str:
    """The verdict of an item: the first of VERDICTS among those of its rules."""
    known = [verdict for verdict in VERDICTS if verdict in verdicts]
    return known[0] if known else NOT_RUN


def _side(given: Given) -> Side:
    if isinstance(given, Side):
        return given
    return of("", given) if isinstance(given, str) else Side("", "", float(given))


def _format(number: Number) -> str:
    return f"{number.mean:.4g}" + (f" ± {number.sem:.2g}" if number.sem else "")
