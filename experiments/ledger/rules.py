"""Did a claim hold? Comparisons of measured numbers that know how sure they are.

An item says its rules as {"the claim in words": above(left, right)}. A side is a number, or names
one measured in a cell: `of("standard")`, `of("standard", "loss")`, `trivial("standard", "guess")`.
Of an item with a single cell the cell is left out: "loss" is that metric, `trivial("", "guess")`
that baseline. A rule holds or fails where the 95 % interval of the difference lies whole on one
side; else it cannot tell, whichever side the number itself is on (see `statistics.difference`).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from experiments.ledger.statistics import ABOVE, BELOW, Difference, Number, difference

HELD = "held"
NOT_HELD = "did not hold"
OPEN = "cannot tell yet"
NOT_RUN = "not run"
MISSING = "not implemented"  # it needs data, weights or code that are not here
DEFINITION = "definition"  # of an item that claims no number
DIVERGED = "seeds that diverged"  # the share of a record's seeds, in the place of a metric
# Columns, best first.
SHOWN = (HELD, NOT_HELD, OPEN, NOT_RUN, MISSING, DEFINITION)


class Side(NamedTuple):
    """A number of a record; without a metric it is the number `value` itself."""

    cell: str
    metric: str
    value: float = 0.0
    is_baseline: bool = False
    is_exact: bool = False  # computed, not sampled: a record without an error means none
    times: float = 1.0  # the share of the number that is compared
    minus: str = ""  # a cell whose number of the same metric is taken off, seed by seed
    among: tuple[str, ...] = ()  # cells, such as splits of the data, whose mean is taken

    @property
    def cells(self) -> tuple[str, ...]:
        if self.among:
            return self.among
        return (self.cell, self.minus) if self.minus else (self.cell,)


Given = Side | str | float  # a side as `above` and `near` take it
# (side) -> its number, or None if there is no record; raises KeyError if the record lacks it.
Read = Callable[[Side], Number | None]


class Finding(NamedTuple):
    """What became of one rule."""

    text: str
    verdict: str
    numbers: str  # "0.9997 ± 0.0003 against 0.9987 ± 0.0013"
    compared: Difference | None = None  # None: not run


class Rule(NamedTuple):
    """`left` lies above `right` + by, or (within) no further than `by` from it."""

    left: Side
    right: Side
    by: float = 0.0
    within: bool = False

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.left, self.right

    def judge(self, text: str, read: Read) -> Finding:
        left, right = map(read, self.sides)
        if left is None or right is None:
            return Finding(text, NOT_RUN, "")
        left, right = left.scaled(self.left.times), right.scaled(self.right.times)
        compared = difference(left, right)
        if self.within:
            distance = compared._replace(gap=abs(compared.gap))
            holds = distance.gap + distance.half <= self.by
            fails = distance.verdict(self.by) == ABOVE
        else:
            side = compared.verdict(self.by)
            is_exact = compared.half == 0
            holds = side == ABOVE
            fails = side == BELOW or (is_exact and compared.gap <= self.by)
        verdict = HELD if holds else NOT_HELD if fails else OPEN
        measured, other = (left, right) if self.left.cell else (right, left)
        return Finding(text, verdict, f"{measured} against {other}", compared)


def of(cell: str, metric: str = "accuracy") -> Side:
    """A metric measured in a cell."""
    return Side(cell, metric)


def gap(cell: str, other: str, metric: str = "accuracy") -> Side:
    """How far a metric of one cell is above that of another."""
    return Side(cell, metric, minus=other)


def share_of(side: Side, times: float) -> Side:
    """A share of a measured number: "two thirds of what Standard stores"."""
    return side._replace(times=times)


def over(cells: Sequence[str], metric: str) -> Side:
    """The mean of a metric over cells that differ by a factor; its error is that between them."""
    return Side(cells[0], metric, among=tuple(cells))


def computed(metric: str, cell: str = "") -> Side:
    """A metric that was computed and not sampled, so that it has no error."""
    return Side(cell, metric, is_exact=True)


def lost(cell: str) -> Side:
    """The share of a cell's seeds that diverged."""
    return computed(DIVERGED, cell)


def trivial(cell: str, name: str) -> Side:
    """A trivial predictor's score on the very set of a cell, or a theory's number beside it."""
    return Side(cell, name, is_baseline=True)


def above(left: Given, right: Given, by: float = 0.0) -> Rule:
    """left > right + by."""
    return Rule(_side(left), _side(right), by)


def near(left: Given, right: Given, by: float) -> Rule:
    """|left - right| <= by."""
    return Rule(_side(left), _side(right), by, within=True)


def beyond_chance(cell: str, predictor: str, by: float = 0.0) -> Rule:
    """The accuracy of a cell is above that of a trivial predictor."""
    return above(of(cell), trivial(cell, predictor), by)


def no_better_than_chance(cell: str, predictor: str, by: float = 0.02) -> Rule:
    """The accuracy of a cell is at most `by` above that of a trivial predictor."""
    return Rule(trivial(cell, predictor), of(cell), -by)


def overall(verdicts: list[str]) -> str:
    """The verdict of an item: it held if all its rules held, and fails with any that failed."""
    if not verdicts or set(verdicts) == {NOT_RUN}:
        return NOT_RUN
    if NOT_HELD in verdicts:
        return NOT_HELD
    return HELD if set(verdicts) == {HELD} else OPEN


def _side(given: Given) -> Side:
    if isinstance(given, Side):
        return given
    return of("", given) if isinstance(given, str) else Side("", "", float(given))
