"""Draws pictures/calibration.png: the confirmation against the runs in which claims were explored.

    python docs/calibration.py

Left: the distance of each decided rule from its border, in fresh runs against first ones. Right:
the differences of the numbers in units of their errors. Only numbers with new seeds count.
"""

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.confirmation import plan, runs
from experiments.confirmation.judgement import item_with_replicas, records_of_row
from experiments.ledger import read
from experiments.ledger.ledger import ledger
from experiments.ledger.record_numbers import read_side
from experiments.ledger.rules import Rule, Side
from experiments.papers import PAPERS, plots
from jaxformer.runtime.command_line import Parser, command
from jaxformer.stats.differences import Number, difference

ROOT = Path(__file__).parents[1]
FIGURE = ROOT / "docs/pictures/calibration.png"


class Calibration(NamedTuple):
    """The distances of rules from their borders, and the differences of numbers."""

    before: np.ndarray  # (rules,) absolute distances in the first runs
    after: np.ndarray  # (rules,) in the fresh ones; negative on the other side of the border
    z: np.ndarray  # (numbers,) fresh - first, over the error of the difference


def measured() -> Calibration:
    planned = plan.read(ROOT / "confirmation/PLAN.json")
    made = runs.read_records(planned, ROOT / "confirmation/records", planned.runs)
    rows = ledger(PAPERS, read.load(ROOT / "results")[0])
    first = {(row.paper.key, row.item.name): row.records for row in rows}
    pairs, numbers = [], {}
    for row in planned.rows:
        item = plan.item_of(PAPERS, row)
        new_item = item_with_replicas(item, row)
        new, old = records_of_row(row, made), first[row.paper, row.item]
        for rule, new_rule in zip(item.rules.values(), new_item.rules.values(), strict=True):
            was = [_read(old, side) for side in rule.sides]
            now = [_read(new, side) for side in new_rule.sides]
            first_numbers, fresh_numbers = [n for n in was if n], [n for n in now if n]
            if len(first_numbers) < 2 or len(fresh_numbers) < 2:
                continue  # a record or a metric is missing
            if distances := _distances(rule, first_numbers, fresh_numbers):
                pairs.append(distances)
            for side, before, after in zip(rule.sides, first_numbers, fresh_numbers, strict=True):
                where = {cell: old[cell].where for cell in side.cells if cell in old}
                if z := _z(before, after):
                    numbers[str((where, side.metric, side.among, side.minus))] = z
    before, after = np.array(pairs).T
    return Calibration(before, after, np.array([*numbers.values()]))


def _read(records, side: Side) -> Number | None:
    try:
        number = read_side(records, side)
    except KeyError:
        return None
    return number.scaled(side.times) if number else None


def _distances(rule: Rule, was: Sequence, now: Sequence) -> tuple[float, float] | None:
    """(first, fresh) distance from the border; None if the first was undecided or is exact."""
    old, new = difference(*was), difference(*now)
    if not 0 < old.half < math.inf or not 0 < new.half < math.inf:
        return None

    def signed(compared) -> float:
        return rule.by - abs(compared.gap) if rule.within else compared.gap - rule.by

    if abs(signed(old)) <= old.half:
        return None
    return abs(signed(old)), signed(new) * math.copysign(1, signed(old))


def _z(before: Number, after: Number) -> float:
    """The difference over its error; 0 for numbers without seeds or without an error."""
    error = math.hypot(before.error, after.error)
    has_seeds = min(before.n, after.n) > 1 and not (before.trials or after.trials)
    if not has_seeds or not 0 < error < math.inf:
        return 0.0
    return (after.mean - before.mean) / error


def draw(found: Calibration, file: Path = FIGURE) -> None:
    from scipy import stats

    figure, (left, right) = plots.row(2, (plots.PAGE, 2.6))
    shown = found.after > 0
    ends = [found.before.min() / 2, found.before.max() * 2]
    left.loglog(found.before[shown], found.after[shown], ".", ms=4, alpha=0.6)
    left.plot(ends, ends, color="0.4", lw=1)
    left.set(
        xlim=ends,
        ylim=ends,
        xlabel="distance from the border, first runs",
        ylabel="fresh runs",
        title=f"{len(found.before)} decided rules",
    )
    bins = np.linspace(-5, 5, 41)
    right.hist(np.clip(found.z, -5, 5), bins, density=True, histtype="stepfilled", alpha=0.5)
    grid = np.linspace(-5, 5, 201)
    right.plot(grid, stats.norm.pdf(grid), color="0.2", lw=1, label="normal")
    right.set(
        xlabel="(fresh - first) / error",
        ylabel="density",
        title=f"{len(found.z)} numbers",
    )
    right.legend(frameon=False)
    figure.savefig(file, dpi=150)


@command
def main(argv: Sequence[str]) -> int:
    Parser(__doc__).parse_args(argv)
    found = measured()
    draw(found)
    low, median, high = np.quantile(found.after / found.before, (0.25, 0.5, 0.75))
    print(
        f"{len(found.before)} rules: fresh / first distance {median:.3f} ({low:.2f} to {high:.2f})"
    )
    size = np.abs(found.z)
    print(
        f"{len(size)} numbers: median |z| {np.median(size):.2f}, above 2: {(size > 2).mean():.3f}, "
        f"above 3: {(size > 3).mean():.3f}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
