"""arXiv 2505.24333, trained networks: figures 1c, 1f, 4 and C.2. Rules written before the runs."""

import functools

from experiments.ledger.item import Cell, Item, cell_of
from experiments.ledger.rules import above, gap, near, of, trivial

figure = functools.partial(cell_of, "two_failure_modes")
loss = functools.partial(of, metric="loss")
ends_at = functools.partial(of, metric="attention_entropy_end")
starts_at = functools.partial(of, metric="attention_entropy_start")

TRAINED = {
    regime: figure("fig1_losses", f"variant={regime}")
    for regime in (
        "trainable",
        "trainable_1_5",
        "rank_collapse",
        "entropy_collapse",
        "entropy_collapse_1_0",
        "entropy_collapse_2_0",
        "shallow",
    )
}

TRAINABILITY = Item(
    "Figure 1c",
    "A line beta_c = sqrt 2 and a curve alpha_c(beta) bound the trainable region.",
    {"diagram": figure("fig1_trainability"), **TRAINED},
    {
        "networks collapse exactly below the paper's alpha_c": above(
            of("diagram", "limit_on_their_side"), 0.99
        ),
        "60 layers train worse below alpha_c (alpha = 1) than above it (1.5)": above(
            loss("rank_collapse"), loss("trainable_1_5")
        ),
        "12 layers train worse beyond beta_c (1.8) than before it (0.02)": above(
            loss("entropy_collapse"), loss("shallow")
        ),
    },
    metric="loss",
    note="The paper gives no threshold for collapse; here rho_L > 0.99. Networks within 5 % of the "
    "line belong to neither side.",
    checks={
        "networks collapse exactly below the exact theory's alpha_c": above(
            of("diagram", "exact_on_their_side"), 0.99
        ),
    },
)

ENTROPIES = ("entropy_collapse", "entropy_collapse_1_0", "entropy_collapse_2_0")
LOSSES = Item(
    "Figure 1f",
    "Networks that start in rank or entropy collapse train worse than those that start between.",
    TRAINED,
    {
        f"{worse} is worse than {better}": above(loss(worse), loss(better), by=0.02)
        for worse in ("rank_collapse", *ENTROPIES)
        for better in ("trainable", "trainable_1_5")
    },
    metric="loss",
    baseline="unigram_loss",
    note="The paper's three alphas at beta = 1.8 with 12 layers, and at 0.02 with 60; small scale: "
    "width 64, a chain of characters.",
    checks={
        "of 12 layers, beta = 1.8 is worse than 0.02": above(
            loss("entropy_collapse"), loss("shallow"), by=0.02
        ),
        "rank collapse learns nothing": near(
            loss("rank_collapse"), trivial("rank_collapse", "unigram_loss"), 0.05
        ),
    },
)

BETAS = ("0.5", "1.0", "1.4", "1.8", "3.0", "4.0")


def by_beta(file: str, word: str = "") -> dict[str, Cell]:
    return {f"{word}beta={b}": figure(file, f"variant=beta_{b.replace('.', '_')}") for b in BETAS}


HIGH, LOW = by_beta("fig4_entropy"), by_beta("figC2_low_rate", "low ")

ENTROPY = Item(
    "Figure 4",
    "Beyond beta = sqrt 2 attention collapses to a few tokens and stays there, and losses rise.",
    HIGH,
    {
        "beta = 4: the entropy ends below a tenth of ln T": above(0.1, ends_at("beta=4.0")),
        "beta = 0.5: attention stays diverse (above a half)": above(ends_at("beta=0.5"), 0.5),
        "beta = 1.8, beyond the transition, trains worse than 1.0": above(
            loss("beta=1.8"), loss("beta=1.0")
        ),
        "beta = 4 trains worse than 0.5": above(loss("beta=4.0"), loss("beta=0.5")),
        "below the transition (0.5 and 1.0) losses agree": near(
            loss("beta=1.0"), loss("beta=0.5"), 0.05
        ),
    },
    "loss",
    "unigram_loss",
    "The entropy at step 0 is the exact theory's; at finite T it falls smoothly through sqrt 2.",
    checks={
        "the entropy falls from the start at beta = 1.8": above(
            starts_at("beta=1.8"), ends_at("beta=1.8")
        ),
    },
)

BLOCKED = Item(
    "Section 3.2, blocked training",
    "Entropy collapse freezes attention and blocks training completely.",
    {"beta=4.0": HIGH["beta=4.0"]},
    {
        "beta = 4 learns no more than frequencies (within .1 nats)": near(
            loss("beta=4.0"), trivial("beta=4.0", "unigram_loss"), 0.1
        ),
    },
    "loss",
    "unigram_loss",
)

LOW_RATE = Item(
    "Figure C.2",
    "A smaller learning rate mitigates entropy collapse, which should be avoided anyhow.",
    LOW | HIGH,
    {
        "the gap between beta = 4 and 0.5 shrinks": above(
            gap("beta=4.0", "beta=0.5", "loss"), gap("low beta=4.0", "low beta=0.5", "loss")
        ),
        "the entropy of beta = 4 ends higher": above(ends_at("low beta=4.0"), ends_at("beta=4.0")),
        "a gap is left": above(loss("low beta=4.0"), loss("low beta=0.5")),
    },
    "loss",
    "unigram_loss",
    "As many steps as in Figure 4, the same seeds.",
    checks={
        "the small rate is no worse for beta = 0.5 (within .1 nats)": near(
            loss("low beta=0.5"), loss("beta=0.5"), 0.1
        ),
    },
)
