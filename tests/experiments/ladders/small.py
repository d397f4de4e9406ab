"""A ladder of three sizes, and pretended results for it."""

import math

import numpy as np

from experiments.ladders.judgement import Measured
from experiments.ledger.item import Cell
from experiments.ledger.ladder import Ladder, over
from experiments.ledger.ladder_rule import Trend
from experiments.ledger.rules import of
from jaxformer.stats import trend
from jaxformer.stats.differences import Number

CELLS = {
    name: Cell(f"configs/mixit/retrieval.py:variant={name},scale=tiny")
    for name in ("standard", "mixit")
}
SIZES = (4, 8, 16)
LADDER = Ladder(
    "pairs",
    "mixit: Table 2, retrieval",
    "MixiT must fall behind with more pairs.",
    "Standard minus MixiT",
    "M, pairs",
    CELLS,
    of("standard"),
    of("mixit"),
    Trend("grows"),
    over({size: 1 for size in SIZES}, {"task.max_pairs": "{size}", "task.vocab": "64"}),
    paper_size=30,
    published=0.888,
    limits=(-1.0, 1.0),
    solved="standard",
)
JITTER = 0.001 * np.arange(-2, 3)


def measured(ladder: Ladder, values) -> list[Measured]:
    """Sizes whose five seeds have these means."""
    made = []
    rungs = [rung for rung in ladder.rungs if not rung.on_card]
    for rung, value in zip(rungs, values, strict=True):
        by_seed = dict(enumerate((value + JITTER).tolist()))
        number = Number(float(value), float(JITTER.std(ddof=1) / 5**0.5), 5, by_seed=by_seed)
        made.append(Measured(rung, number, trend.estimate([number], [1.0]), core_seconds=60.0))
    return made


def scores(variant: str, size: float, turn: int = 1) -> list[float]:
    """Accuracies of five seeds: Standard solves the task, MixiT loses .1 with every doubling."""
    middle = 0.98 if variant == "standard" else 0.7 - turn * 0.1 * math.log2(size / 8)
    return (middle + 0.002 * np.arange(-2, 3) * (1 if variant == "standard" else -1)).tolist()
