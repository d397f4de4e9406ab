"""Version B: Is random attention sufficient for sequence modeling?

What both versions claim stands once, in `claims`, with both table numbers; here is what only B has,
and the theorem that it builds on.
"""

from experiments.ledger.item import Cell, Item, Paper
from experiments.ledger.rules import above, near, of
from experiments.papers.mixit import claims_theory

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
            0.1, "error/linear/frozen_qk/previous/H=128"
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
    "Is random attention sufficient for sequence modeling?",
    "version B of arXiv 2506.01115, anonymous",
    (claims_theory.SDE, claims_theory.COVARIANCE, UNIVERSAL, SCALE),
)
