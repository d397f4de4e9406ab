"""Claims on trained networks: Figures 1f, 4 and C.2, and the line beta_c of Figure 1c.

A network "learns no more than frequencies" if it ends at most .1 nats below the loss of a predictor
that knows token frequencies only ("unigram_loss"). The paper says that such a network fails to
train.
"""

import functools
from collections.abc import Callable, Iterable

from experiments.ledger.item import GROWS, OURS, Cell, Item, cell_of
from experiments.ledger.rules import Rule, above, gap, near, of, trivial

figure = functools.partial(cell_of, "two_failure_modes")
loss = functools.partial(of, metric="loss")
starts_at = functools.partial(of, metric="attention_entropy_start")

LEARNS_NOTHING = 0.1  # nats below the loss of frequencies, at most
FAILS = (
    "A network learns no more than frequencies if it ends at most .1 nats below the loss of token "
    "frequencies; the paper says that it fails to train."
)
BETAS = ("0.5", "1.0", "1.4", "1.8", "3.0", "4.0")


def fails_to_train(*cells: str) -> dict[str, Rule]:
    """Returns the rules that cells end at most .1 nats below the loss of token frequencies."""
    return {
        f"{cell.replace('_', ' ').replace('=', ' = ')} learns no more than frequencies": above(
            loss(cell), trivial(cell, "unigram_loss"), -LEARNS_NOTHING
        )
        for cell in cells
    }


def costs_loss(collapsed: Iterable[str], trainable: Iterable[str]) -> dict[str, Rule]:
    """Returns the rules that each collapsed cell ends .02 nats above each trainable one."""
    trainable = tuple(trainable)
    return {
        f"{bad} ends .02 nats above {good}".replace("_", " "): above(loss(bad), loss(good), by=0.02)
        for bad in collapsed
        for good in trainable
    }


def by_beta(cell_at: Callable[[str, str], Cell], file: str, prefix: str = "") -> dict[str, Cell]:
    """Returns a cell for each beta, called "PREFIXbeta=BETA"."""
    return {f"{prefix}beta={b}": cell_at(file, f"beta_{b.replace('.', '_')}") for b in BETAS}


def costs(beta: str, lower: str, rate: str = "") -> dict[str, Rule]:
    """Returns the rule that the loss is higher at `beta` than at `lower`.

    `rate` is "low " for runs at the smaller learning rate.
    """
    when = "at the smaller rate " if rate else ""
    return {
        f"{when}beta = {beta} ends at a higher loss than beta = {lower}": above(
            loss(f"{rate}beta={beta}"), loss(f"{rate}beta={lower}")
        )
    }


def losses_agree(within: float) -> dict[str, Rule]:
    """Returns the rule that two losses below the transition differ by at most `within` nats."""
    return {
        f"below the transition the losses of beta = 0.5 and 1.0 agree within {within} nats": near(
            loss("beta=1.0"), loss("beta=0.5"), within
        )
    }


COLLAPSED = ("rank_collapse", "entropy_collapse")
LOSSES = Item(
    "Figure 1f",
    "Networks that start in rank or entropy collapse fail to train. Networks that start between "
    "these regimes train.",
    {
        regime: figure("fig1_losses", f"variant={regime}")
        for regime in ("trainable", "rank_collapse", "entropy_collapse")
    },
    costs_loss(COLLAPSED, ("trainable",)) | fails_to_train(*COLLAPSED),
    metric="loss",
    baseline="unigram_loss",
    note=f"{FAILS} Small scale: 8 layers on a chain of characters, beta = 4 for entropy collapse, "
    "and one rate, .002.",
)


def variant(file: str, name: str) -> Cell:
    return figure(file, f"variant={name}")


HIGH, LOW = by_beta(variant, "fig4_entropy"), by_beta(variant, "figC2_low_rate", "low ")
ENTROPY = Item(
    "Figure 4",
    "Beyond beta = sqrt 2 training is prevented. Below sqrt 2 losses do not depend on beta.",
    HIGH,
    costs("4.0", "0.5") | costs("1.8", "1.0") | losses_agree(0.03) | fails_to_train("beta=4.0"),
    "loss",
    "unigram_loss",
    f"{FAILS} The figure's entropies are in the row 'Figure 4, T = 32'.",
)
MITIGATED = "A smaller learning rate mitigates entropy collapse, which should be avoided anyhow."
MITIGATES = {
    "a smaller rate shrinks the gap between the losses of beta = 4.0 and 0.5": above(
        gap("beta=4.0", "beta=0.5", "loss"), gap("low beta=4.0", "low beta=0.5", "loss")
    ),
} | costs("4.0", "0.5", "low ")
LOW_RATE = Item(
    "Figure C.2",
    MITIGATED,
    HIGH | LOW,
    MITIGATES,
    "loss",
    "unigram_loss",
    "As many steps as in Figure 4, and the same seeds.",
    checks=costs("1.8", "1.0", "low "),
)


def line(cells: dict[str, Cell]) -> Item:
    """Returns the row that tests the line beta_c by the entropies of attention before training."""
    return Item(
        "Figure 1c, the line beta_c",
        "Does the entropy of attention show the transition at beta_c = sqrt 2 in networks of 32 "
        "tokens?",
        {name: cells[name] for name in ("beta=1.0", "beta=1.4", "beta=1.8")},
        {
            "entropy falls faster across beta_c (1.4 to 1.8) than before it (1.0 to 1.4)": above(
                gap("beta=1.4", "beta=1.8", "attention_entropy_start"),
                gap("beta=1.0", "beta=1.4", "attention_entropy_start"),
            ),
            "beyond beta_c, at 1.8, the entropy is below a tenth of ln T": above(
                0.1, starts_at("beta=1.8")
            ),
        },
        "attention_entropy_start",
        note="The entropies are those of the networks of 'Figure 4, T = 32' before training. The "
        "exact theory has no jump at any length in use either (Figure 1a, b).",
        flags=(GROWS, OURS),
    )
