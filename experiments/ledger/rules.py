"""When a claim counts as true: comparisons of measured numbers with their standard errors.

A rule compares two sides. A side is a number or names one measured in a cell: `of("standard")`,
`of("standard", "loss")`, `trivial("standard", "best_constant")`. Differences count beyond TWO
combined standard errors. A rule says what follows if it holds and if it does not; where the errors
are too large to tell, it is undecided.
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
    """A number of a record: cell "" is the number `value` itself."""

    cell: str
    metric: str
    value: float = 0.0
    is_baseline: bool = False


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

    text: str  # the claim in words
    left: Side
    right: Side
    by: float = 0.0
    within: bool = False
    yes: str = REPRODUCED
    no: str = DIFFERS

    def judge(self, read: Read) -> Finding:
        left, right = read(self.left), read(self.right)
        if left is None or right is None:
            return Finding(self.text, NOT_RUN, "")
        error = ERRORS * math.hypot(left.sem, right.sem)
        gap = left.mean - right.mean
        if self.within:
            holds, may_hold = abs(gap) + error <= self.by, abs(gap) <= self.by + error
        else:
            holds, may_hold = gap > self.by + error, gap > self.by
        verdict = self.yes if holds else UNDECIDED if may_hold and self.no != CHANCE else self.no
        measured, other = (left, right) if self.left.cell else (right, left)
        return Finding(self.text, verdict, f"{_say(measured)} against {_say(other)}")


def of(cell: str, metric: str = "accuracy") -> Side:
    """A metric measured in a cell."""
    return Side(cell, metric)


def trivial(cell: str, name: str) -> Side:
    """A trivial predictor's score on the very set of a cell, or a theory's number beside it."""
    return Side(cell, name, is_baseline=True)


def above(text: str, left: Side | float, right: Side | float, by: float = 0.0, **verdicts) -> Rule:
    """left > right + by, beyond two combined standard errors."""
    return Rule(text, _side(left), _side(right), by, **verdicts)


def near(text: str, left: Side | float, right: Side | float, by: float, **verdicts) -> Rule:
    """|left - right| <= by, with two combined standard errors to spare."""
    return Rule(text, _side(left), _side(right), by, within=True, **verdicts)


def gravest(verdicts: list[str]) -> str:
    """The verdict of an item: the first of VERDICTS among those of its rules."""
    known = [verdict for verdict in VERDICTS if verdict in verdicts]
    return known[0] if known else NOT_RUN


def _side(value: Side | float) -> Side:
    return value if isinstance(value, Side) else Side("", "", float(value))


def _say(number: Number) -> str:
    return f"{number.mean:.4g}" + (f" ± {number.sem:.2g}" if number.sem else "")
