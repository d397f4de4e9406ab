"""Figure 1's training runs on real text: three regimes, six curves."""

import functools

from experiments.ledger.item import Cell, Item
from experiments.ledger.rules import above, of
from experiments.papers.two_failure_modes.claims_trained import FAILS, fails_to_train

CURVES = (
    *("rank_collapse", "trainable_1.5", "trainable_2"),
    *("entropy_1", "entropy_1.5", "entropy_2"),
)
loss = functools.partial(of, metric="loss")

SIX_CURVES = Item(
    "Figure 1f, six curves",
    "On text, networks that start in rank or entropy collapse fail to train; both that start "
    "between do not.",
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
    }
    | {
        text: rule
        for bad in CURVES
        if not bad.startswith("trainable")
        for text, rule in fails_to_train(bad).items()
    },
    metric="loss",
    baseline="unigram_loss",
    note=f"{FAILS} Small scale: tokens of tiny Shakespeare, eight layers, one rate of .002; beta = "
    "0.5 with alpha_SA = 0.1, 1, 1.5 and beta = 4 with 0.7, 1, 1.5 stand for the published pairs.",
    late=True,
)
