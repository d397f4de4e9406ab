"""The number of a rule's side, read from records."""

from collections.abc import Mapping
from typing import Any

from experiments.ledger.record import Record
from experiments.ledger.rules import DIVERGED, Side
from jaxformer.stats.differences import Number, mean_of, minus
from jaxformer.stats.members import record_number, share_diverged, share_of_seeds


def read_side(records: Mapping[str, Record], side: Side) -> Number | None:
    """Returns the number of a side; None without a record, KeyError without the metric."""
    if not side.metric:
        return Number(side.value)
    if side.among:
        several = [read_side(records, side._replace(cell=c, among=())) for c in side.among]
        return None if None in several else mean_of(several)  # type: ignore[arg-type]
    if side.minus:
        both = [
            read_side(records, side._replace(cell=c, minus="")) for c in (side.cell, side.minus)
        ]
        return None if None in both else minus(*both)  # type: ignore[arg-type]
    if side.cell not in records:
        return None
    record = records[side.cell]
    if side.metric == DIVERGED:
        return share_diverged(record.members)
    if side.reached is not None:
        number = record_number(record.metrics[side.metric], record.members, side.metric)
        return share_of_seeds([value >= side.reached for value in number.by_seed.values()])
    if side.is_baseline:
        value: Any = {"mean": record.baselines[side.metric], "sem": 0.0, "n": 0}
    else:
        value = record.metrics[side.metric]
    if value["mean"] is None:
        raise KeyError(f"{side.metric} (its mean is not finite)")
    if side.is_baseline or (side.is_exact and value["sem"] is None):
        return Number(value["mean"])
    return record_number(value, record.members, side.metric, side.trials)
