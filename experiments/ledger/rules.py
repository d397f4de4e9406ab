"""Rules that decide whether a claim holds, and their verdicts.

An item has rules {"sentence": above(left, right)}. A side is a constant or a metric of a cell:
`of("standard")`, `of("standard", "loss")`, `trivial("standard", "guess")`. An item with a single
cell may omit the cell: "loss" is a metric and `trivial("", "guess")` a baseline of this cell.

A rule holds if the whole 95 % interval of the difference satisfies it, and fails if the whole
interval contradicts it. Otherwise its verdict is "cannot tell yet" (see `jaxformer.stats`).

An item holds if all its rules hold. It fails if a rule fails whose p value stays below .05 when it
is multiplied by the number of rules (Holm), because the worst of many rules fails by chance.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from jaxformer.stats.differences import (
    ABOVE,
    BELOW,
    LEVEL,
    Difference,
    Number,
    difference,
    p_value,
)

HELD = "held"
NOT_HELD = "did not hold"
OPEN = "cannot tell yet"
NOT_RUN = "not run"
MISSING = "not implemented"  # it needs data, weights or hardware that are not available
DEFINITION = "definition"  # the item claims no number
DIVERGED = "seeds that diverged"  # a pseudo metric: the share of a record's seeds
# Columns of tables, best first.
SHOWN = (HELD, NOT_HELD, OPEN, NOT_RUN, MISSING, DEFINITION)


class Side(NamedTuple):
    """One side of a rule: a number of a record, or the constant `value` if it has no metric."""

    cell: str
    metric: str
    value: float = 0.0
    is_baseline: bool = False
    is_exact: bool = False  # computed instead of sampled: no error in the record means none
    times: float = 1.0  # factor of the number
    minus: str = ""  # a cell whose metric is subtracted, seed by seed
    among: tuple[str, ...] = ()  # the mean over these cells, such as splits of the data
    trials: int = 1  # of each seed: the metric is the share of so many outcomes
    reached: float | None = None  # the share of the seeds whose metric is at least this

    @property
    def cells(self) -> tuple[str, ...]:
        if self.among:
            return self.among
        return (self.cell, self.minus) if self.minus else (self.cell,)


Given = Side | str | float  # an argument of `above` and `near`
# Returns the number of a side, None without a record; raises KeyError for an unknown metric.
Read = Callable[[Side], Number | None]


class Finding(NamedTuple):
    """The verdict of one rule with its numbers."""

    text: str
    verdict: str
    numbers: str  # "0.9997 ± 0.0003 against 0.9987 ± 0.0013"
    compared: Difference | None = None  # None: not run
    p: float = math.nan  # two-sided, of the rule's border; 0: exact numbers; nan: no error known
    q: float = math.nan  # p, corrected for the number of rules of its family
    family: str = ""  # "primary" or "secondary" (see multiplicity.py)


class Rule(NamedTuple):
    """A comparison: left > right + by, or |left - right| <= by if `within`."""

    left: Side
    right: Side
    by: float = 0.0
    within: bool = False

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.left, self.right

    def can_fail(self) -> bool:
        """Returns whether some numbers contradict the rule; an accuracy lies between 0 and 1."""
        if self.left == self.right or not (self.left.metric or self.right.metric):
            return False
        ends = [
            (side.value, side.value) if not side.metric else (0.0, side.times)
            for side in self.sides
            if not side.metric or side.metric == "accuracy"
        ]
        if len(ends) < 2 or any(side.minus for side in self.sides):
            return True
        (left_low, left_high), (right_low, right_high) = ends
        if self.within:
            return max(left_high - right_low, right_high - left_low) > self.by
        return left_low - right_high <= self.by

    def judge(self, text: str, read: Read) -> Finding:
        left, right = map(read, self.sides)
        if left is None or right is None:
            return Finding(text, NOT_RUN, "")
        left, right = left.scaled(self.left.times), right.scaled(self.right.times)
        compared, p = difference(left, right), p_value(left, right, self.by)
        if self.within:
            opposite = p_value(left, right, -self.by)
            is_inside = abs(compared.gap) <= self.by
            p = max(p, opposite) if is_inside else min(p, opposite)
            holds = -self.by <= compared.low and compared.high <= self.by
            fails = compared.low > self.by or compared.high < -self.by
        else:
            side = compared.verdict(self.by)
            is_exact = compared.half == 0
            holds = side == ABOVE
            fails = side == BELOW or (is_exact and compared.gap <= self.by)
        verdict = HELD if holds else NOT_HELD if fails else OPEN
        measured, other = (left, right) if self.left.cell else (right, left)
        return Finding(text, verdict, f"{measured} against {other}", compared, p)


def of(cell: str, metric: str = "accuracy", trials: int = 1) -> Side:
    """Returns a side: a metric of a cell, which may be a share of so many outcomes of a seed."""
    return Side(cell, metric, trials=trials)


def seeds_that_reach(value: float, cell: str, metric: str = "accuracy") -> Side:
    """Returns a side: the share of the seeds of a cell whose metric is at least `value`.

    It describes seeds of two kinds, those that solve a task and those that do not, whose mean does
    not.
    """
    return Side(cell, metric, reached=value)


def gap(cell: str, other: str, metric: str = "accuracy") -> Side:
    """Returns a side: the metric of a cell minus that of another cell."""
    return Side(cell, metric, minus=other)


def share_of(side: Side, times: float) -> Side:
    """Returns a side multiplied by a factor, such as 2/3 of what Standard stores."""
    return side._replace(times=times)


def over(cells: Sequence[str], metric: str) -> Side:
    """Returns a side: the mean of a metric over cells, with the error between the cells."""
    return Side(cells[0], metric, among=tuple(cells))


def computed(cell: str, metric: str) -> Side:
    """Returns a side: a metric that was computed and has no error."""
    return Side(cell, metric, is_exact=True)


def lost(cell: str) -> Side:
    """Returns a side: the share of the seeds of a cell that diverged."""
    return of(cell, DIVERGED)


def trivial(cell: str, name: str) -> Side:
    """Returns a side: a baseline of a cell, such as a trivial predictor or a theory."""
    return Side(cell, name, is_baseline=True)


def above(left: Given, right: Given, by: float = 0.0) -> Rule:
    """Returns the rule left > right + by."""
    return Rule(_side(left), _side(right), by)


def near(left: Given, right: Given, by: float) -> Rule:
    """Returns the rule |left - right| <= by."""
    return Rule(_side(left), _side(right), by, within=True)


def beyond_chance(cell: str, predictor: str, by: float = 0.0) -> Rule:
    """Returns the rule that the accuracy of a cell is above a trivial predictor's."""
    return above(of(cell), trivial(cell, predictor), by)


def no_better_than_chance(cell: str, predictor: str, by: float = 0.02) -> Rule:
    """Returns the rule that the accuracy of a cell is at most `by` above a trivial predictor's."""
    return Rule(trivial(cell, predictor), of(cell), -by)


def overall(findings: Sequence[Finding]) -> str:
    """Returns the verdict of an item: held if all rules hold, did not hold if any fails."""
    verdicts = {finding.verdict for finding in findings}
    if verdicts <= {NOT_RUN}:
        return NOT_RUN
    failing = [finding.p for finding in findings if finding.verdict == NOT_HELD]
    sampled = sum(finding.p > 0 for finding in findings)
    if failing and min(failing) * max(sampled, 1) <= 1 - LEVEL:
        return NOT_HELD
    return HELD if verdicts == {HELD} else OPEN


def _side(given: Given) -> Side:
    if isinstance(given, Side):
        return given
    return of("", given) if isinstance(given, str) else Side("", "", float(given))
