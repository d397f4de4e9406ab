"""Rules about a trend: what each asks of the slope, the sizes that ran and the paper's size."""

from collections.abc import Sequence
from typing import NamedTuple

from experiments.ledger.rules import HELD, NOT_HELD, OPEN
from jaxformer.stats.trend import Estimate

KINDS = ("grows", "shrinks", "stays above", "stays below", "vanishes")


class Trend(NamedTuple):
    """A rule about a trend; see `judge` for what each kind of rule asks."""

    kind: str  # one of KINDS
    by: float = 0.0  # of "grows" and "shrinks": the least change per doubling; else the border

    def judge(self, slope: Estimate, rungs: Sequence[Estimate], predicted: Estimate) -> str:
        """Decides the rule by 95 % intervals, as the rules of the ledger do.

        Args:
          slope: the change per doubling.
          rungs: the quantity at each size.
          predicted: the quantity at the paper's size.

        Returns:
          HELD or NOT_HELD if an interval decides, otherwise OPEN.
        """
        if self.kind == "grows":
            return _decided(slope.low > self.by, slope.high < self.by)
        if self.kind == "shrinks":
            return _decided(slope.high < -self.by, slope.low > -self.by)
        if self.kind == "vanishes":  # little is left at the paper's size, and it does not grow
            is_held = predicted.high < self.by and not slope.low > 0
            return _decided(is_held, slope.low > 0 or predicted.low > self.by)
        # Above (or below) the border at every size that ran, and by the trend at the paper's.
        above = [x.low > self.by for x in (*rungs, predicted)]
        below = [x.high < self.by for x in (*rungs, predicted)]
        if self.kind == "stays above":
            return _decided(all(above), any(below))
        return _decided(all(below), any(above))

    def __str__(self) -> str:
        if self.kind in ("grows", "shrinks"):
            return f"{self.kind} by more than {self.by:g} per doubling" if self.by else self.kind
        return f"{self.kind}{' to below' * (self.kind == 'vanishes')} {self.by:g}"


def _decided(is_held: bool, is_not: bool) -> str:
    return HELD if is_held else NOT_HELD if is_not else OPEN
