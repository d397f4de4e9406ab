"""arXiv 2505.24333, trained networks: figures 1f, 4 and C.2."""

import functools

from experiments.ledger.item import GROWS, Cell, Item, cell_of
from experiments.ledger.rules import Rule, above, gap, near, of, trivial

figure = functools.partial(cell_of, "two_failure_modes")
loss = functools.partial(of, metric="loss")

LEARNS_NOTHING = 0.1  # nats below the loss of frequencies: what "fails to train" means here
FAILS = "It is said to fail to train if it ends within .1 nats of the loss of frequencies."


def fails_to_train(cell: str) -> dict[str, Rule]:
    return {
        f"{cell.replace('_', ' ')} learns no more than frequencies": above(
            loss(cell), trivial(cell, "unigram_loss"), -LEARNS_NOTHING
        )
    }


LOSSES = Item(
    "Figure 1f",
    "Networks that start in rank or entropy collapse fail to train, and those that start between "
    "do not.",
    {
        regime: figure("fig1_losses", f"variant={regime}")
        for regime in ("trainable", "rank_collapse", "entropy_collapse")
    },
    {
        "rank collapse costs loss": above(loss("rank_collapse"), loss("trainable"), by=0.02),
        "entropy collapse costs loss": above(loss("entropy_collapse"), loss("trainable"), by=0.02),
        **fails_to_train("rank_collapse"),
        **fails_to_train("entropy_collapse"),
    },
    metric="loss",
    baseline="unigram_loss",
    note=f"{FAILS} Small scale: 8 layers on a chain of characters, beta = 4 for entropy collapse, "
    "and one rate, .002.",
)


BETAS = ("0.5", "1.0", "1.4", "1.8", "3.0", "4.0")


def by_beta(file: str, word: str = "") -> dict[str, Cell]:
    return {f"{word}beta={b}": figure(file, f"variant=beta_{b.replace('.', '_')}") for b in BETAS}


HIGH, LOW = by_beta("fig4_entropy"), by_beta("figC2_low_rate", "low ")
ENTROPY = Item(
    "Figure 4",
    "Beyond beta = sqrt 2 training is prevented; below it losses do not depend on beta.",
    HIGH,
    {
        "beta = 4 trains worse than 0.5": above(loss("beta=4.0"), loss("beta=0.5")),
        "beta = 1.8, beyond the transition, trains worse than 1.0": above(
            loss("beta=1.8"), loss("beta=1.0")
        ),
        "below the transition (0.5 and 1.0) losses agree": near(
            loss("beta=1.0"), loss("beta=0.5"), 0.03
        ),
        **fails_to_train("beta=4.0"),
    },
    "loss",
    "unigram_loss",
    f"{FAILS} The entropies, which the figure shows too, are in the row of T = 32.",
)
MITIGATED = "A smaller learning rate mitigates entropy collapse, which should be avoided anyhow."
MITIGATES = {
    "the gap between beta = 4 and 0.5 shrinks": above(
        gap("beta=4.0", "beta=0.5", "loss"), gap("low beta=4.0", "low beta=0.5", "loss")
    ),
    "a gap is left": above(loss("low beta=4.0"), loss("low beta=0.5")),
}
LOW_RATE = Item(
    "Figure C.2",
    MITIGATED,
    HIGH | LOW,
    MITIGATES,
    "loss",
    "unigram_loss",
    "As many steps as in Figure 4, and the same seeds.",
    checks={
        "at the low rate beta = 1.8 trains worse than 1.0": above(
            loss("low beta=1.8"), loss("low beta=1.0")
        ),
    },
)
starts_at = functools.partial(of, metric="attention_entropy_start")


def line(cells: dict[str, Cell]) -> Item:
    """Whether the line beta_c is seen in the entropies with which networks start."""
    return Item(
        "Figure 1c, the line beta_c",
        "At beta_c = sqrt 2 attention passes from many tokens to a few.",
        {name: cells[name] for name in ("beta=1.0", "beta=1.4", "beta=1.8")},
        {
            "entropy falls faster across beta_c (1.4 to 1.8) than before (1.0 to 1.4)": above(
                gap("beta=1.4", "beta=1.8", "attention_entropy_start"),
                gap("beta=1.0", "beta=1.4", "attention_entropy_start"),
            ),
            "beyond it the entropy is below a tenth of ln T": above(0.1, starts_at("beta=1.8")),
        },
        "attention_entropy_start",
        note="T = 32: entropies of the networks of Figure 4, T = 32, before training. The exact "
        "theory has no jump at any length in use either (Figure 1a, b).",
        flags=(GROWS,),
    )
