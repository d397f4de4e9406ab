"""Ladders of the MixiT papers: retrieval, k-hop, addition, capacity, language, and random networks.

Each sentence says what the paper's claim asks of the trend. `seen` lists the sizes at which other
seeds had been looked at, in the ledger, before the rule was written.
"""

from collections.abc import Mapping

from experiments.ledger.item import Cell
from experiments.ledger.ladder import Ladder, Rung, over
from experiments.ledger.ladder_rule import Trend
from experiments.ledger.rules import Side, gap, of, trivial

SHARE, SHARE_GAP = (0.0, 1.0), (-1.0, 1.0)  # limits of an accuracy and of a difference of two
NOTHING = Side("", "", 0.0)  # is subtracted
WIDTH = {"model.width": "{size}", "model.mlp_width": "{size*4}"}


def small(config: str, *variants: str, **overrides: Mapping[str, str]) -> dict[str, Cell]:
    """A cell for each variant at scale small; `overrides` are those of a variant, or of `all`."""
    common = overrides.get("all", {})
    return {
        v: Cell(f"configs/{config}.py:variant={v},scale=small", {**common, **overrides.get(v, {})})
        for v in variants
    }


# Retrieval over the number of pairs. 6,000 steps solved 24 pairs in the ledger, 1,500 did not.
PAIRS = {"task.vocab": "128", "train.batch_size": "64", "train.steps": "6000"}
PAIRS_OVERRIDE = {"task.max_pairs": "{size}"}
PAIRS_CELLS = small("mixit/retrieval", "standard", "frozen_qk", "mixit", all=PAIRS)
RETRIEVAL_PAIRS_QK = Ladder(
    "retrieval-pairs-frozen-qk",
    "mixit: Table 2, retrieval",
    "Frozen-QK retrieves on par with Standard (97.0 against 100 % at M = 30), so with more pairs "
    "it must not fall behind.",
    "accuracy of Standard minus that of Frozen-QK",
    "M, key-value pairs",
    {name: PAIRS_CELLS[name] for name in ("standard", "frozen_qk")},
    of("standard"),
    of("frozen_qk"),
    Trend("stays below", 0.05),
    over({4: 15, 8: 27, 16: 52, 32: 106}, PAIRS_OVERRIDE),
    paper_size=30,
    published=0.0299,
    limits=SHARE_GAP,
    solved="standard",
    seen=(4, 8, 16),
)
RETRIEVAL_PAIRS_MIXIT = Ladder(
    "retrieval-pairs-mixit",
    "mixit: Figure 2",
    "MixiT deteriorates as the number of pairs grows, to 11.2 % at M = 30, where guessing a value "
    "of the context gives 13.3 %: what it retrieves beyond a guess must vanish.",
    "accuracy of MixiT minus that of a guess among the values of the context",
    "M, key-value pairs",
    {"mixit": PAIRS_CELLS["mixit"]},
    of("mixit"),
    trivial("mixit", "in_context_guess"),
    Trend("vanishes", 0.05),
    over({4: 9, 8: 17, 16: 31, 32: 61}, PAIRS_OVERRIDE),
    paper_size=30,
    published=-0.021,
    limits=SHARE_GAP,
    seen=(4, 8),
)

# Retrieval over the width, with up to 8 pairs and the steps of the config.
WIDTH_CELLS = small("mixit/retrieval", "standard", "frozen_qk", "mixit")
RETRIEVAL_WIDTH_QK = Ladder(
    "retrieval-width-frozen-qk",
    "mixit: Table 2, retrieval",
    "Random queries and keys suffice at n = 1024, so what Frozen-QK lacks at small widths must "
    "vanish as the width grows.",
    "accuracy of Standard minus that of Frozen-QK",
    "n, width",
    {name: WIDTH_CELLS[name] for name in ("standard", "frozen_qk")},
    of("standard"),
    of("frozen_qk"),
    Trend("vanishes", 0.05),
    over({16: 1.5, 32: 3, 64: 9, 128: 35, 256: 140}, WIDTH, card=(256,)),
    paper_size=1024,
    published=0.0299,
    limits=SHARE_GAP,
    solved="standard",
    seen=(64,),
)
RETRIEVAL_WIDTH_MIXIT = Ladder(
    "retrieval-width-mixit",
    "mixit: Table 2, retrieval",
    "Fixed mixing cannot retrieve at n = 1024, so width must not close the gap to Standard.",
    "accuracy of Standard minus that of MixiT",
    "n, width",
    {name: WIDTH_CELLS[name] for name in ("standard", "mixit")},
    of("standard"),
    of("mixit"),
    Trend("stays above", 0.2),
    over({16: 2, 32: 7, 64: 26, 128: 103, 256: 410}, WIDTH, card=(256,)),
    paper_size=1024,
    published=0.8876,
    limits=SHARE_GAP,
    solved="standard",
    seen=(64,),
)

HOPS_WIDTH = Ladder(
    "hops-width-mixit",
    "mixit: Table 2, k-hop",
    "MixiT fails at k-hop at n = 512 (48.6 against 100 %), so width must not close its gap to "
    "Standard, here with at most one hop.",
    "accuracy of Standard minus that of MixiT",
    "n, width",
    small("mixit/hops", "standard", "mixit"),
    of("standard"),
    of("mixit"),
    Trend("stays above", 0.1),
    over({16: 1.5, 32: 5.5, 64: 21, 128: 83}, WIDTH),
    paper_size=512,
    published=0.5141,
    limits=SHARE_GAP,
    solved="standard",
    seen=(64,),
)
# Validation chose these rates at k = 4 in the ledger; one rate each, since a size takes an hour.
HOPS = {"model.layers": "4", "train.steps": "4000"}
HOPS_CELLS = small(
    "mixit/hops",
    "standard",
    "frozen_qk",
    "mixit",
    all=HOPS,
    standard={"optim.learning_rate": "(3e-3,)"},
    frozen_qk={"optim.learning_rate": "(1e-2,)"},
    mixit={"optim.learning_rate": "(1e-3,)"},
)
HOPS_OVERRIDE = {"task.max_hops": "{size}"}
HOPS_K_QK = Ladder(
    "hops-k-frozen-qk",
    "mixit: Table 2, k-hop",
    "Frozen-QK composes up to 16 hops nearly as well as Standard (96.7 against 100 %), so more "
    "hops must not separate them.",
    "accuracy of Standard minus that of Frozen-QK",
    "k, hops",
    {name: HOPS_CELLS[name] for name in ("standard", "frozen_qk")},
    of("standard"),
    of("frozen_qk"),
    Trend("stays below", 0.05),
    over({1: 53, 2: 53, 4: 53, 8: 53}, HOPS_OVERRIDE, card=(8,)),
    paper_size=16,
    published=0.0326,
    limits=SHARE_GAP,
    solved="standard",
    seen=(4,),
)
HOPS_K_MIXIT = Ladder(
    "hops-k-mixit",
    "mixit: Table 2, k-hop",
    "Each hop needs attention that depends on the input, so MixiT must fall further behind with "
    "more hops.",
    "accuracy of Standard minus that of MixiT",
    "k, hops",
    {name: HOPS_CELLS[name] for name in ("standard", "mixit")},
    of("standard"),
    of("mixit"),
    Trend("grows", 0.02),
    over({1: 50, 2: 50, 4: 50, 8: 50}, HOPS_OVERRIDE, card=(8,)),
    paper_size=16,
    published=0.5141,
    limits=SHARE_GAP,
    solved="standard",
    seen=(4,),
)

ADDITION = Ladder(
    "addition-digits-mixit",
    "mixit: Table 1, decimal addition",
    "MixiT adds numbers of 10 digits as well as Standard (100 against 98.6 %), so more digits must "
    "not set it back.",
    "accuracy of Standard minus that of MixiT",
    "digits",
    small("mixit/addition", "standard", "mixit"),
    of("standard"),
    of("mixit"),
    Trend("stays below", 0.05),
    over({2: 25, 4: 41, 8: 75}, {"task.digits": "{size}"}),
    paper_size=10,
    published=-0.014,
    limits=SHARE_GAP,
    solved="standard",
    seen=(4,),
)

# The complete table needs 4.2 bits of each parameter of Standard at every width, and a batch is a
# ninth of the table, so that all sizes see each entry equally often.
TABLES = {
    8: (52, 300, 1.5),
    16: (96, 1024, 8.0),
    32: (176, 3442, 100.0),
    64: (330, 12_100, 1400.0),
}
CAPACITY_RUNGS = tuple(
    Rung(
        n,
        {"model.width": f"{n}", "model.mlp_width": f"{4 * n}", "task.symbols": f"{symbols}"}
        | {"train.batch_size": f"{batch}"},
        minutes,
        on_card=n == 64,
    )
    for n, (symbols, batch, minutes) in TABLES.items()
)
CAPACITY_CELLS = small("mixit/capacity", "standard", "frozen_mlp", "mixit")


def capacity(name: str, variant: str, claim: str, published: float) -> Ladder:
    """The ladder of what a variant stores less than Standard, in bits per trained parameter."""
    return Ladder(
        name,
        "mixit: Table 4",
        claim,
        f"bits per parameter of Standard minus those of {variant}",
        "n, width",
        {v: CAPACITY_CELLS[v] for v in ("standard", variant)},
        of("standard", "bits_per_parameter"),
        of(variant, "bits_per_parameter"),
        Trend("grows"),
        CAPACITY_RUNGS,
        paper_size=128,
        published=published,
        seen=(16,),
    )


CAPACITY = (
    capacity(
        "capacity-width-mixit",
        "mixit",
        "MixiT stores .8 bits less than Standard at n = 128 and .34 less at n = 16 in the ledger: "
        "if both are right, the gap grows.",
        0.80,
    ),
    capacity(
        "capacity-width-frozen-mlp",
        "frozen_mlp",
        "Frozen-MLP stores 1.85 bits less than Standard at n = 128 and .95 less at n = 16 in the "
        "ledger: if both are right, the gap grows.",
        1.85,
    ),
)

# Language on the King James text. The paper's numbers are those of WikiText-103, in nats a token.
RATES = {"optim.learning_rate": "(3e-3, 1e-2)"}
LANGUAGE_CELLS = small("text/king_james", "standard", "frozen_qk", "mixit", all=RATES)
LANGUAGE_QK = Ladder(
    "language-width-frozen-qk",
    "mixit: Table 3, on the King James text",
    "Frozen-QK is closer to Standard than to MixiT at n = 512, so it must be at every width.",
    "nats from Frozen-QK up to MixiT minus nats from Standard up to Frozen-QK",
    "n, width",
    LANGUAGE_CELLS,
    gap("mixit", "frozen_qk", "loss"),
    gap("frozen_qk", "standard", "loss"),
    Trend("stays above", 0.0),
    over({24: 9, 48: 25, 96: 76, 192: 260}, WIDTH, card=(192,)),
    paper_size=512,
    published=0.37,
    seen=(48,),
)
LANGUAGE_MIXIT = Ladder(
    "language-width-mixit",
    "mixit: Table 3, on the King James text",
    "Language needs attention that depends on the input: at n = 512 MixiT loses .95 nats a token, "
    "so width must not close the gap.",
    "loss of MixiT minus that of Standard, nats a token",
    "n, width",
    {name: LANGUAGE_CELLS[name] for name in ("standard", "mixit")},
    of("mixit", "loss"),
    of("standard", "loss"),
    Trend("stays above", 0.1),
    over({24: 6, 48: 17, 96: 51, 192: 173}, WIDTH, card=(192,)),
    paper_size=512,
    published=0.95,
    seen=(48,),
)
# 19,043 rows of 64 tokens are the whole training text; the size counts thousands of tokens.
TEXT_ROWS = {305: 4761, 609: 9522, 1219: 19_043}
LANGUAGE_TEXT = Ladder(
    "language-text-mixit",
    "mixit: Table 3, on the King James text",
    "With more text Standard learns more of what only attention can use, so MixiT must fall "
    "further behind; the paper trains on 100 million tokens.",
    "loss of MixiT minus that of Standard, nats a token",
    "thousand tokens of text",
    small("text/king_james", "standard", "mixit"),
    of("mixit", "loss"),
    of("standard", "loss"),
    Trend("grows"),
    tuple(Rung(k, {"data.train_size": f"{rows}"}, 8.0) for k, rows in TEXT_ROWS.items()),
    paper_size=100_000,
    published=0.95,
    seen=(1219,),
)

# Random networks: the covariance equation, and rank collapse. One run has all sizes.
SDE = Ladder(
    "sde-width",
    "random_attention: Theorem 2.1",
    "The covariance of random networks converges to the equation as width and depth grow together, "
    "so at depth / width = 1 the distance of the two distributions must vanish.",
    "distance of Kolmogorov and Smirnov between networks and equation, correlation of two tokens",
    "n, width",
    {"paths": Cell("configs/mixit/sde_paths.py:scale=paper", {"figure.widths": "(4, 8, 16, 32)"})},
    of("paths", "ks/correlation/tau=1/n={size}"),
    NOTHING,
    Trend("vanishes", 0.03),
    over({4: 1, 8: 1, 16: 1, 32: 1}),
    paper_size=512,
    limits=SHARE,
    seen=(4, 8, 16, 32),
)
COLLAPSE = Ladder(
    "collapse-depth",
    "random_attention: Section 2, rank collapse",
    "The paper says that random mixing avoids rank collapse. If it does not, the correlation of "
    "two tokens grows with depth; the paper's own networks have a depth / width of .02.",
    "|correlation| of two tokens, median of networks",
    "depth / width",
    {
        "networks": Cell(
            "configs/mixit/rank_collapse.py:scale=small",
            {"figure.times": "(0.2, 0.4, 0.8, 1.6)", "figure.paths": "400"},
        )
    },
    of("networks", "correlation/networks/tau={size}"),
    NOTHING,
    Trend("grows", 0.02),
    over({0.2: 1, 0.4: 1, 0.8: 1, 1.6: 1}),
    paper_size=0.0234,
    limits=SHARE,
    seen=(0.2, 0.4, 0.8, 1.6),
)

LADDERS = (
    RETRIEVAL_PAIRS_QK,
    RETRIEVAL_PAIRS_MIXIT,
    RETRIEVAL_WIDTH_QK,
    RETRIEVAL_WIDTH_MIXIT,
    HOPS_WIDTH,
    HOPS_K_QK,
    HOPS_K_MIXIT,
    ADDITION,
    *CAPACITY,
    LANGUAGE_QK,
    LANGUAGE_MIXIT,
    LANGUAGE_TEXT,
    SDE,
    COLLAPSE,
)
