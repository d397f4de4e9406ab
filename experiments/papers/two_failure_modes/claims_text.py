"""Claim of Figure 1f on real text: three regimes, six curves."""

from experiments.ledger.item import Cell, Item
from experiments.papers.two_failure_modes.claims_trained import FAILS, costs_loss, fails_to_train

TRAINABLE = ("trainable_1.5", "trainable_2")
ENTROPY_COLLAPSE = ("entropy_1", "entropy_1.5", "entropy_2")
COLLAPSED = ("rank_collapse", *ENTROPY_COLLAPSE)

SIX_CURVES = Item(
    "Figure 1f, six curves",
    "On text, networks that start in rank or entropy collapse fail to train. Both networks that "
    "start between these regimes train.",
    {
        name: Cell(f"configs/text/masked.py:curve={name}", scales=("paper", "small"))
        for name in ("rank_collapse", *TRAINABLE, *ENTROPY_COLLAPSE)
    },
    costs_loss(COLLAPSED, TRAINABLE) | fails_to_train(*COLLAPSED),
    metric="loss",
    baseline="unigram_loss",
    note=f"{FAILS} Small scale: tokens of tiny Shakespeare, eight layers and one learning rate, "
    ".002. beta = 0.5 with alpha_SA = 0.1, 1, 1.5 and beta = 4 with 0.7, 1, 1.5 replace the "
    "published pairs.",
    late=True,  # the rules were written after numbers were known
)
