"""Version B: Is random attention sufficient for sequence modeling? Shares tables with A."""

from experiments.ledger.item import Cell, Item, Paper
from experiments.ledger.rules import REFUTED, above, near, of
from experiments.papers.mixit import claims, claims_given, claims_theory
from experiments.papers.mixit import claims_sweeps as sweeps


def same(item: Item, name: str) -> Item:
    """A table of version A under its name in version B."""
    return item._replace(name=name)


UNIVERSAL = Item(
    "Theorem 5.1",
    "One layer of attention with enough frozen random heads, and an MLP, fits any causal function; "
    "MixiT cannot.",
    {"heads": Cell("configs/mixit/universality.py")},
    {
        "the error of a look-up falls with the heads": above(
            "error/linear/frozen_qk/lookup/H=1", "error/linear/frozen_qk/lookup/H=128", by=0.1
        ),
        "MixiT's stays above it": above(
            "error/linear/mixit/lookup/H=128", "error/linear/frozen_qk/lookup/H=128", by=0.1
        ),
        "without positions the token before is found too": above(
            0.1, "error/linear/frozen_qk/previous/H=128", no=REFUTED
        ),
    },
    metric="error/linear/frozen_qk/lookup/H=128",
    note="An existence statement without a rate. (B.1) has no positions, so the order of the past "
    "is out of reach for any number of heads; with rotary positions it is not.",
    late=True,
)

SCALE = Item(
    "Section 3, the scale of frozen queries and keys",
    "Frozen-QK works with weights at their initialisation of standard deviation 0.02.",
    {
        f"std={std}": Cell(f"configs/mixit/qk_scale.py:std={std}", scales=("small",))
        for std in ("0.02", "fan_in")
    },
    {
        "Frozen-QK retrieves with 0.02 at n = 64": near(of("std=0.02"), 1.0, 0.05),
        "Frozen-QK retrieves with 1/sqrt(n)": near(of("std=fan_in"), 1.0, 0.05),
    },
    baseline="in_context_guess",
    note="0.02 suits n = 1024; at n = 64 it makes frozen attention almost uniform.",
    late=True,
)

PAPER = Paper(
    "random_attention",
    "Is random attention sufficient for sequence modeling? Disentangling trainable components",
    "version B of arXiv 2506.01115, anonymous",
    (
        claims_given.VARIANTS,
        same(claims.HOPS, "Table 1, k-hop"),
        same(claims.RETRIEVAL, "Table 1, retrieval"),
        same(sweeps.FIGURE_2, "Figure 2"),
        *(same(item, item.name.replace("Table 3", "Table 2")) for item in claims_given.LANGUAGE),
        same(claims.ADDITION, "Table 3, decimal addition"),
        same(claims.DYCK, "Table 3, Dyck-1"),
        same(claims.MODULAR, "Table 3, modular addition"),
        same(claims.MEMORIZATION, "Table 3, memorisation"),
        same(claims_given.YELP, "Table 3, Yelp polarity"),
        claims.BITS,
        claims.FIGURE_3,
        same(sweeps.DEPTH, "Table 5"),
        claims_theory.COVARIANCE,
        claims_given.GRID,
        claims_given.OPTIMA,
        *(same(item, item.name.replace("Table 5", "Table 9")) for item in sweeps.HEAD_SWEEPS),
        claims_theory.SDE,
        UNIVERSAL,
        SCALE,
        same(claims_given.THROUGHPUT, "Appendix D, throughput"),
    ),
)
