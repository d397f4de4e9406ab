"""A run of one's own beside the record of the same cell: number by number, seed by seed.

same bits         every digit is the same, of every seed that both have
within rounding   apart by less than a millionth
within error      the 95 % interval of the difference holds zero; of the seeds that both have, the
                  difference is taken seed by seed
differs           it does not
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from experiments.ledger import tables
from experiments.ledger.ledger import Row
from experiments.ledger.record import Record
from experiments.ledger.statistics import Number, half_width, of_record
from jaxformer.training.metrics import over_seeds

SAME, ROUNDING, WITHIN, DIFFERS = "same bits", "within rounding", "within error", "differs"
UNKNOWN = "no error is known"  # of a difference that is more than rounding
VERDICTS = (SAME, ROUNDING, WITHIN, DIFFERS, UNKNOWN)
CLOSE = 1e-6  # of the larger number


class Pair(NamedTuple):
    """One number, mine and the recorded one."""

    cell: str
    metric: str
    mine: dict[str, Any]
    recorded: dict[str, Any]
    published: float | None
    gap: float  # mine - recorded
    error: float  # its standard error; nan where nothing is known
    seeds: int  # that the difference is paired over; 0: two separate means
    verdict: str

    def words(self) -> list[str]:
        """Of a table: cell, metric, mine, recorded, paper, difference, verdict."""
        how = f" ({self.seeds} seeds)" if self.seeds else ""
        error = "" if math.isnan(self.error) else f" ± {self.error:.2g}"
        gap = "0" if self.verdict == SAME else f"{self.gap:+.2g}{error}{how}"
        paper = tables.number(self.published)
        numbers = (tables.measured(self.mine), tables.measured(self.recorded), paper)
        return [self.cell, self.metric, *numbers, gap, self.verdict]


def pairs(row: Row, cell: str, mine: Record) -> list[Pair]:
    """The numbers of a cell that the ledger shows, those that both runs have."""
    record, found = row.records[cell], []
    for line in tables.lines(row):
        ours = mine.metrics.get(line.metric)
        if line.cell == cell and line.value and ours:
            values = (line.value, ours)
            if None not in [value["mean"] for value in values]:
                found.append(_pair(cell, line.metric, mine, record, line.published))
    return found


def why(mine: Record, record: Record) -> list[str]:
    """What is known to be other about the two runs, so that their bits may differ."""
    said = []
    if mine.scale != record.scale:
        said.append(f"scale {mine.scale} here, {record.scale} there")
    if {*mine.seeds} != {*record.seeds}:
        said.append(f"{len(mine.seeds)} seeds here, {len(record.seeds)} there")
    here, there = ({**r.environment, **r.environment.get("versions", {})} for r in (mine, record))
    names = [*mine.environment.get("versions", {}), "platform", "device", "devices", "cores"]
    for name in names:
        if here.get(name) != there.get(name):
            said.append(f"{name} {here.get(name)} here, {there.get(name)} there")
    if not said and here.get("commit") != there.get("commit"):
        said.append(f"code {tables.commit(mine)} here, {tables.commit(record)} there")
    return said


def _pair(cell: str, metric: str, mine: Record, record: Record, published) -> Pair:
    values = (mine.metrics[metric], record.metrics[metric])
    ours, theirs = (of_record(r.metrics[metric], r.members, metric) for r in (mine, record))
    gap, error, seeds, half = _apart(ours, theirs)
    largest = max(abs(value["mean"]) for value in values)
    gaps = [abs(one) for one in _by_seed(ours, theirs)] or [abs(gap)]
    more_seeds = {*ours.by_seed} != {*theirs.by_seed}  # then the means are of other seeds
    if max(gaps) == 0 and (more_seeds or values[0] == values[1]):
        verdict = SAME
    elif max(gaps) <= CLOSE * largest:
        verdict = ROUNDING
    elif math.isnan(half):
        verdict = UNKNOWN
    else:
        verdict = WITHIN if abs(gap) <= half else DIFFERS
    return Pair(cell, metric, *values, published, gap, error, seeds, verdict)


def _apart(ours: Number, theirs: Number) -> tuple[float, float, int, float]:
    """(mine - recorded, its standard error, paired seeds, half of its 95 % interval)."""
    shared = _by_seed(ours, theirs)
    if len(shared) > 1:
        found = over_seeds(shared)
        return found.mean, found.sem, len(shared), half_width([(found.sem, found.n)], 0.0)
    gap, error = ours.mean - theirs.mean, math.hypot(ours.sem, theirs.sem)
    if shared:  # of one seed only its test set's error is known
        error = math.hypot(ours.test, theirs.test) or math.nan
        return shared[0], error, 1, half_width([], error) if error > 0 else math.nan
    parts = [(side.sem, side.n) for side in (ours, theirs)]
    return gap, error, 0, math.nan if math.isnan(error) else half_width(parts, 0.0)


def _by_seed(ours: Number, theirs: Number) -> list[float]:
    """mine - recorded of each seed that both have."""
    return [ours.by_seed[s] - theirs.by_seed[s] for s in ours.by_seed if s in theirs.by_seed]


def summary(found: list[Pair]) -> Mapping[str, int]:
    """How many numbers got each verdict."""
    counts = {verdict: sum(pair.verdict == verdict for pair in found) for verdict in VERDICTS}
    return {verdict: n for verdict, n in counts.items() if n}
