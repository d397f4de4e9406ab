"""arXiv 2505.24333, trained networks: figures 1f, 4 and C.2."""

import functools

from experiments.ledger.item import Item, cell_of
from experiments.ledger.rules import above, near, of

figure = functools.partial(cell_of, "two_failure_modes")
loss = functools.partial(of, metric="loss")

LOSSES = Item(
    "Figure 1f",
    "Networks that start in rank or entropy collapse train worse than those that start between.",
    {
        regime: figure("fig1_losses", f"variant={regime}")
        for regime in ("trainable", "rank_collapse", "entropy_collapse")
    },
    {
        "rank collapse costs loss": above(loss("rank_collapse"), loss("trainable"), by=0.02),
        "entropy collapse costs loss": above(loss("entropy_collapse"), loss("trainable"), by=0.02),
    },
    metric="loss",
    baseline="unigram_loss",
    note="Small scale: 8 layers on a chain of characters, beta = 4 for entropy collapse.",
)


def by_beta(file: str, name: str, claim: str, note: str) -> Item:
    cells = {f"beta={b}": figure(file, f"variant=beta_{b.replace('.', '_')}") for b in BETAS}
    half, one, beyond, four = (loss(f"beta={b}") for b in ("0.5", "1.0", "1.8", "4.0"))
    rules = {
        "beta = 4 trains worse than 0.5": above(four, half),
        "beta = 1.8, beyond the transition, trains worse than 1.0": above(beyond, one),
        "below the transition (0.5 and 1.0) losses agree": near(one, half, 0.03),
    }
    return Item(name, claim, cells, rules, "loss", "unigram_loss", note)


BETAS = ("0.5", "1.0", "1.4", "1.8", "3.0", "4.0")
ENTROPY = by_beta(
    "fig4_entropy",
    "Figure 4",
    "The initial entropy of attention has a transition at beta = sqrt 2; beyond it losses rise.",
    "The entropy at step 0 is the exact theory's; at finite T it falls smoothly.",
)
LOW_RATE = by_beta(
    "figC2_low_rate",
    "Figure C.2",
    "A smaller learning rate mitigates entropy collapse.",
    "Compare the gaps of Figure 4.",
)
