"""The confirmation of a row: outcome, verdict of the new runs, and what was fresh in them."""

from collections.abc import Mapping
from typing import NamedTuple

from experiments.ledger.rules import HELD, NOT_HELD

CONFIRMED, NOT_CONFIRMED, REVERSED = "confirmed", "not confirmed", "reversed"
NOT_YET_RUN, STILL_OPEN = "not yet run", "still open"
DECIDED = {HELD: "decided: held", NOT_HELD: "decided: did not hold"}
ORDER = (REVERSED, NOT_CONFIRMED, STILL_OPEN, *DECIDED.values(), CONFIRMED, NOT_YET_RUN)
# What was fresh if it was not "9 new seeds".
RECOMPUTED = "recomputed, without a random number"
SAMPLES_AS_EXACT = "new samples, judged as exact"
ONE_SEED = "one new seed"  # a config that draws its own sample, such as 500 networks


class Confirmed(NamedTuple):
    """The confirmation of one row."""

    paper: str
    item: str
    outcome: str  # one of ORDER
    exploratory: str  # the verdict of the ledger when the plan was made
    verdict: str  # the verdict of the new runs
    seeds: int  # of the plan; `fresh` says how many the runs have
    primary: str  # the sentence of the primary rule
    primary_verdict: str
    primary_q: float | None  # by Holm's method, over the primary rules of this confirmation
    rules: Mapping[str, tuple[str, str]]  # sentence -> verdict and numbers
    fresh: str = ""  # what was fresh, such as "9 new seeds"; "" before the runs
    problems: tuple[str, ...] = ()  # such as a metric that a new record lacks

    @property
    def is_run(self) -> bool:
        return self.outcome != NOT_YET_RUN

    @property
    def has_fresh_error(self) -> bool:
        """Whether new runs had a chance to give another verdict, with an error that says so."""
        return self.is_run and self.fresh not in (RECOMPUTED, SAMPLES_AS_EXACT)
