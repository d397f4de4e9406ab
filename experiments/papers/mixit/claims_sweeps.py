"""Sweeps of the MixiT papers: pairs (Figure 2), heads (Tables 5, 9), depth (Tables 6, 5)."""

from experiments.ledger.item import CHANCE, Cell, Item
from experiments.ledger.rules import above, near, no_better_than_chance, of
from experiments.papers.mixit.claims_text import YELP_HEADS

TUNED = {"train.batch_size": "64", "train.steps": "1500"}
RATE = {"optim.learning_rate": "0.01"}


def small(task: str, variant: str, overrides: dict[str, str]) -> Cell:
    """A cell that is meant at scale small alone."""
    return Cell(f"configs/mixit/{task}.py:variant={variant}", overrides, scales=("small",))


FIGURE_2 = Item(
    "Figure 2",
    "Trained queries and keys are needed as the number of pairs grows; MixiT deteriorates at once.",
    {
        f"{name}, M={pairs}": small("retrieval", name, {"task.max_pairs": str(pairs)} | TUNED)
        for pairs in (4, 8, 12)
        for name in ("standard", "frozen_qk", "mixit")
    },
    {
        "Standard retrieves at M=12": near(of("standard, M=12"), 1.0, 0.02),
        "Frozen-QK loses accuracy between M=4 and 12": above(
            of("frozen_qk, M=4"), of("frozen_qk, M=12")
        ),
        "MixiT loses accuracy between M=4 and 12": above(of("mixit, M=4"), of("mixit, M=12")),
        "MixiT does no better than guess at M=12": no_better_than_chance(
            "mixit, M=12", "in_context_guess"
        ),
    },
    baseline="in_context_guess",
    note="The figure prints no values.",
    late=True,
    also="version B, Figure 2",
)


def head_sweep(task: str, printed: str, note: str = "") -> Item:
    return Item(
        f"Table 5, {task}",
        f"More heads make MixiT better: {printed} with 4, 16, 64, 256 heads.",
        {f"H={n}": small(task, "mixit", {"model.heads": str(n)} | RATE) for n in (4, 16, 32)},
        {"32 heads beat 4": above(of("H=32"), of("H=4"))},
        note=f"n = 512 there, 64 here. {note}".strip(),
        also="version B, Table 9",
    )


HEAD_SWEEPS = (
    head_sweep(
        "addition",
        "34.7, 34.7, 50.7, 91.9 %",
        "50.7 % with 64 heads contradicts the 100 % of Table 1.",
    ),
    head_sweep("dyck", "77.9, 81.7, 89.4, 91.8 %"),
    YELP_HEADS,
)

DEPTH = Item(
    "Table 6",
    "A random transformer loses addition with depth (100, 23.5, 22.9 % at 2, 8, 16 layers); MixiT "
    "keeps it.",
    {
        f"{name}, L={layers}": small("addition", name, {"model.layers": str(layers)} | RATE)
        for name in ("mixit", "random")
        for layers in (2, 8)
    },
    {
        "the random transformer loses between 2 and 8 layers": above(
            of("random, L=2"), of("random, L=8")
        ),
        "MixiT keeps its accuracy": near(of("mixit, L=8"), of("mixit, L=2"), 0.02),
        "the random transformer of 8 layers knows no more than position and token": (
            no_better_than_chance("random, L=8", "by_position_and_token")
        ),
    },
    baseline="by_position_and_token",
    note="23.53 and 22.88 % are chance level: position and current token alone score 24.8 %.",
    flags=(CHANCE,),
    also="version B, Table 5",
)
