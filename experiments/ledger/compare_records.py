"""Comparison of a rerun with the record of the same cell, metric by metric.

same bits         every digit is equal for every shared seed
within rounding   the values differ by less than a millionth
within error      the 95 % interval of the difference contains zero (jaxformer.stats); shared
                  seeds are compared one by one
differs           the interval excludes zero
no error is known  the values differ, and a single seed gives no interval
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from experiments.ledger import tables
from experiments.ledger.ledger import Row
from experiments.ledger.record import Record
from jaxformer.stats.differences import UNDECIDED, Difference, difference_on_shared_seeds
from jaxformer.stats.members import record_number

SAME, ROUNDING, WITHIN, DIFFERS = "same bits", "within rounding", "within error", "differs"
UNKNOWN = "no error is known"
VERDICTS = (SAME, ROUNDING, WITHIN, DIFFERS, UNKNOWN)
ROUNDING_LIMIT = 1e-6  # relative to the larger value


class Pair(NamedTuple):
    """One metric of a rerun and of its record."""

    cell: str
    metric: str
    rerun: dict[str, Any]  # {"mean", "sem", "n"}
    recorded: dict[str, Any]
    published: float | None  # the paper's number
    difference: Difference  # rerun - recorded
    verdict: str

    def columns(self) -> list[str]:
        """Returns a table row: cell, metric, rerun, recorded, paper, difference, verdict."""
        gap, half, sem = self.difference.gap, self.difference.half, self.difference.sem
        n_seeds = self.difference.pairs
        seeds = f" ({n_seeds} seeds)" if n_seeds else ""
        error = "" if math.isinf(half) else f" ± {sem:.2g}"
        text = "0" if self.verdict == SAME else f"{gap:+.2g}{error}{seeds}"
        published = tables.number(self.published)
        numbers = (tables.measured(self.rerun), tables.measured(self.recorded), published)
        return [self.cell, self.metric, *numbers, text, self.verdict]


def pairs(row: Row, cell: str, rerun: Record) -> list[Pair]:
    """Compares the metrics of a cell that the ledger shows and that both runs have."""
    record, compared = row.records[cell], []
    for line in tables.lines(row):
        rerun_value, recorded_value = rerun.metrics.get(line.metric), line.value
        if line.cell != cell or not recorded_value or not rerun_value:
            continue
        if recorded_value["mean"] is not None and rerun_value["mean"] is not None:
            compared.append(compare_metric(cell, line.metric, rerun, record, line.published))
    return compared


def setting_differences(rerun: Record, record: Record) -> list[str]:
    """Returns a line for each setting that differs and may explain a difference of the metrics.

    In a line, "here" is the rerun and "there" is the record.
    """
    lines = []
    if rerun.scale != record.scale:
        lines.append(f"scale {rerun.scale} here, {record.scale} there")
    if {*rerun.seeds} != {*record.seeds}:
        lines.append(f"{len(rerun.seeds)} seeds here, {len(record.seeds)} there")
    here, there = ({**r.environment, **r.environment.get("versions", {})} for r in (rerun, record))
    names = [*rerun.environment.get("versions", {}), "platform", "device", "devices", "cores"]
    for name in names:
        if here.get(name) != there.get(name):
            lines.append(f"{name} {here.get(name)} here, {there.get(name)} there")
    if not lines and here.get("commit") != there.get("commit"):
        lines.append(f"code {tables.commit(rerun)} here, {tables.commit(record)} there")
    return lines


def compare_metric(
    cell: str, metric: str, rerun: Record, record: Record, published: float | None
) -> Pair:
    """Compares one metric of a rerun with its record."""
    values = (rerun.metrics[metric], record.metrics[metric])
    left, right = (record_number(r.metrics[metric], r.members, metric) for r in (rerun, record))
    compared = difference_on_shared_seeds(left, right)
    shared = [seed for seed in left.by_seed if seed in right.by_seed]
    gaps = [abs(left.by_seed[s] - right.by_seed[s]) for s in shared] or [abs(compared.gap)]
    largest = max(abs(value["mean"]) for value in values)
    # Runs with the same seeds must also have the same mean and error.
    has_other_seeds = {*left.by_seed} != {*right.by_seed}
    if max(gaps) == 0 and (has_other_seeds or values[0] == values[1]):
        verdict = SAME
    elif max(gaps) <= ROUNDING_LIMIT * largest:
        verdict = ROUNDING
    elif math.isinf(compared.half):
        verdict = UNKNOWN
    else:
        verdict = WITHIN if compared.verdict() == UNDECIDED else DIFFERS
    return Pair(cell, metric, *values, published, compared, verdict)


def summary(compared: list[Pair]) -> Mapping[str, int]:
    """Counts the metrics by verdict."""
    counts = {verdict: sum(pair.verdict == verdict for pair in compared) for verdict in VERDICTS}
    return {verdict: n for verdict, n in counts.items() if n}
