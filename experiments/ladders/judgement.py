"""The numbers of a ladder at each size, and its verdict.

A size is left out, with the reason, if a seed diverged, if a record does not belong to the plan, or
if the task was not solved there. With fewer than three sizes there is no trend.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from experiments.ledger.ladder import LEAST_RUNGS, Ladder, Rung
from experiments.ledger.record import Record
from experiments.ledger.record_numbers import read_side
from experiments.ledger.rules import NOT_RUN, OPEN, Side, of
from jaxformer.stats import trend
from jaxformer.stats.differences import Number
from jaxformer.stats.members import diverged, number_over_seeds
from jaxformer.stats.trend import Estimate

Records = Mapping[str, Sequence[Record]]  # of one size: cell -> its runs
VERSIONS = ("jax", "jaxlib", "flax", "optax")  # that must be the same at all sizes
SOLVED = 0.9  # the accuracy above which a task counts as solved


class Measured(NamedTuple):
    """One size of a ladder: its number, or why it has none."""

    rung: Rung
    number: Number | None = None
    value: Estimate | None = None
    problem: str = ""
    core_seconds: float = 0.0

    @property
    def counts(self) -> bool:
        return self.number is not None and not self.problem


class Judged(NamedTuple):
    """A ladder with its trend. Without a trend there are too few sizes for one."""

    ladder: Ladder
    measured: tuple[Measured, ...]
    verdict: str  # NOT_RUN, OPEN, HELD or NOT_HELD
    is_complete: bool  # whether all sizes without an accelerator were tried
    slope: Estimate | None = None  # per doubling
    predicted: Estimate | None = None  # at the paper's size


def judge(ladder: Ladder, measured: Sequence[Measured]) -> Judged:
    """Judges a ladder by its sizes without an accelerator, as far as they have run."""
    on_cpu = [m for m in measured if not m.rung.on_card]
    used = [m for m in on_cpu if m.counts]
    is_complete = all(m.counts or m.core_seconds for m in on_cpu)
    if len(used) < LEAST_RUNGS:
        verdict = OPEN if is_complete else NOT_RUN
        return Judged(ladder, tuple(measured), verdict, is_complete)
    slope, predicted = line(ladder, used, float(ladder.paper_size or 0))
    values = [m.value for m in used if m.value]
    verdict = ladder.rule.judge(slope, values, predicted)
    return Judged(ladder, tuple(measured), verdict, is_complete, slope, predicted)


def line(ladder: Ladder, used: Sequence[Measured], at: float) -> tuple[Estimate, Estimate]:
    """The slope per doubling, and the prediction at a size."""
    sizes, numbers = [m.rung.size for m in used], [m.number for m in used if m.number]
    predicted = trend.prediction(sizes, numbers, at).within(*ladder.limits)
    return trend.slope(sizes, numbers), predicted


def measure(ladder: Ladder, rung: Rung, records: Records, versions: Mapping[str, str]) -> Measured:
    """Reads the quantity at one size from its records.

    Args:
      ladder: the ladder.
      rung: the size.
      records: the records of all cells, complete.
      versions: the packages of the ladder's first size, which must be the same here.
    """
    used = {name for side in (ladder.left, ladder.right) for name in side.cells} | {ladder.solved}
    distinct = {record.where: record for runs in records.values() for record in runs}
    core_seconds = sum(_core_seconds(record) for record in distinct.values())
    problem = ""
    for cell in filter(None, used):
        for record in records[cell]:
            if seeds := diverged(record.members):
                problem = f"{cell}: seed {seeds[0]} diverged"
            if others := {k: v for k, v in versions.items() if versions_of(record).get(k) != v}:
                problem = f"{cell} ran with other versions of {', '.join(others)}: run it again"
    if problem:
        return Measured(rung, problem=problem, core_seconds=core_seconds)
    try:
        number = trend.gap(*(_number(side, rung, records) for side in (ladder.left, ladder.right)))
        if ladder.solved:
            solved = _number(of(ladder.solved), rung, records)
            if solved.mean < SOLVED:
                problem = f"{ladder.solved} reaches {solved.mean:.2g}, so the task is not solved"
        value = trend.estimate([number], [1.0])
    except KeyError as error:
        problem = f"no record has the metric {error.args[0]}"
        return Measured(rung, problem=problem, core_seconds=core_seconds)
    return Measured(rung, number, value, problem, core_seconds)


def versions_of(record: Record) -> dict[str, str]:
    """The packages on which a run's numbers depend."""
    versions = record.environment.get("versions", {})
    return {name: versions[name] for name in VERSIONS if name in versions}


def _number(side: Side, rung: Rung, records: Records) -> Number:
    side = side._replace(metric=side.metric.replace("{size}", f"{rung.size:g}"))
    if not side.metric:
        return Number(side.value)
    runs = records[side.cell]
    if len(runs) == 1 and runs[0].members:
        first = {cell: of_cell[0] for cell, of_cell in records.items() if of_cell}
        number = read_side(first, side)
        assert number is not None  # all records are there
        return number
    if side.is_baseline:
        values = {record.seeds[0]: record.baselines[side.metric] for record in runs}
    else:
        values = {record.seeds[0]: record.metrics[side.metric]["mean"] for record in runs}
    return number_over_seeds(values, side.metric)


def _core_seconds(record: Record) -> float:
    seconds = record.seconds
    return seconds.get("cpu") or seconds["compile"] + seconds["run"]
