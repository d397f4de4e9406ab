"""The fresh part of a confirmation: seeds, one sample, or nothing, if no number is random.

A row that compares constants is computed again by the same code, so it cannot fail and confirms
nothing. The plan does not tell such rows from rows that draw a sample of their own and store no
error, but a constant comes back with the same digits, and a new sample does not.
"""

import math
from collections.abc import Mapping

from experiments.confirmation.plan import PlannedConfig, PlannedRow
from experiments.ledger.confirmed import ONE_SEED, RECOMPUTED, SAMPLES_AS_EXACT
from experiments.ledger.item import Item
from experiments.ledger.record import Record
from experiments.ledger.record_numbers import read_side
from experiments.ledger.rules import Side

SAME_DIGITS = {"rel_tol": 1e-6, "abs_tol": 1e-12}  # a sum in another order differs by less


def what_was_fresh(
    row: PlannedRow,
    item: Item,
    runs: Mapping[str, PlannedConfig],
    new: Mapping[str, Record],
    explored: Mapping[str, Record],
) -> str:
    """A text such as "9 new seeds", `RECOMPUTED`, or "one new seed, its own sample of 500".

    Args:
      row: the planned row, of which all runs are recorded.
      item: the row's item, with the replicas of its cells.
      runs: the runs of the plan.
      new: the records of the plan by cell.
      explored: the records of results/ by cell; without one, a number does not count as constant.
    """
    seeds, samples, is_new = set[int](), set[int](), False
    planned_seeds = {cell: runs[names[0]].seeds for cell, names in row.cells.items()}
    sides = [side for rule in item.rules.values() for side in rule.sides]
    for side in sides:
        if not side.metric or side.is_baseline:
            continue
        try:
            number = read_side(new, side)
        except KeyError:  # the record lacks the metric, which `Confirmed.problems` says
            continue
        if number is None:
            continue
        n_planned = min(planned_seeds.get(cell, number.n) for cell in side.cells)
        if not number.n:
            is_new = is_new or not _has_same_digits(number.mean, side, explored)
        elif n_planned and side.among:
            seeds.add(number.n)
        elif n_planned:
            seeds.add(min(number.n, n_planned))
        else:
            samples.add(number.n)
    if seeds:
        sample = f", and one sample of {_range(samples)}" if samples else ""
        return f"{_range(seeds)} new seeds{sample}"
    if samples:
        return f"{ONE_SEED}, its own sample of {_range(samples)}"
    return SAMPLES_AS_EXACT if is_new else RECOMPUTED


def _has_same_digits(mean: float, side: Side, explored: Mapping[str, Record]) -> bool:
    try:
        before = read_side(explored, side)
    except KeyError:
        return False
    return before is not None and math.isclose(mean, before.mean, **SAME_DIGITS)


def _range(numbers: set[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
