"""Figure 1's training runs on real text: three regimes, six curves."""

import functools

from experiments.ledger.item import Cell, Item
from experiments.ledger.rules import above, of

CURVES = (
    *("rank_collapse", "trainable_1.5", "trainable_2"),
    *("entropy_1", "entropy_1.5", "entropy_2"),
)
loss = functools.partial(of, metric="loss")

SIX_CURVES = Item(
    "Figure 1f, six curves",
    "On text, networks that start in rank or entropy collapse train worse than both that start "
    "between.",
    {
        name: Cell(f"configs/text/masked.py:curve={name}", scales=("paper", "small"))
        for name in CURVES
    },
    {
        f"{bad.replace('_', ' ')} costs loss against {good.replace('_', ' ')}": above(
            loss(bad), loss(good), by=0.02
        )
        for bad in CURVES
        if not bad.startswith("trainable")
        for good in ("trainable_1.5", "trainable_2")
    },
    metric="loss",
    baseline="unigram_loss",
    note="Small scale: tokens of tiny Shakespeare, eight layers; beta = 0.5 with alpha_SA = "
    "0.1, 1, 1.5 and beta = 4 with 0.7, 1, 1.5 stand for the published pairs.",
)
