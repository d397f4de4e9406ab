"""Sweeps of the MixiT papers: pairs (Figure 2), heads (Tables 5, 9), depth (Tables 6, 5)."""

from experiments.ledger.item import Cell, Item
from experiments.ledger.rules import CHANCE, above, near, of, trivial

TUNED = {"task.max_pairs": "12", "train.batch_size": "64", "train.steps": "1500"}
SMALL = ("small",)


PAIRS = (4, 8, 12)
FIGURE_2 = Item(
    "Figure 2",
    "Trained queries and keys are needed as the number of pairs grows; MixiT deteriorates at once.",
    {
        f"{name}, M={pairs}": Cell(
            f"configs/mixit/retrieval.py:variant={name}",
            TUNED | {"task.max_pairs": str(pairs)},
            scales=SMALL,
        )
        for pairs in PAIRS
        for name in ("standard", "frozen_qk", "mixit")
    },
    (
        near("Standard retrieves at M=12", of("standard, M=12"), 1.0, 0.02),
        above(
            "Frozen-QK loses accuracy between M=4 and 12",
            of("frozen_qk, M=4"),
            of("frozen_qk, M=12"),
        ),
        above("MixiT loses accuracy between M=4 and 12", of("mixit, M=4"), of("mixit, M=12")),
        above(
            "MixiT does more than guess at M=12",
            of("mixit, M=12"),
            trivial("mixit, M=12", "in_context_guess"),
            no=CHANCE,
        ),
    ),
    baseline="in_context_guess",
    note="The figure prints no values.",
    late=True,
)

HEADS = (4, 16, 32)


def head_sweep(task: str, printed: str, note: str = "") -> Item:
    cells = {
        f"H={heads}": Cell(
            f"configs/mixit/{task}.py:variant=mixit",
            {"model.heads": str(heads), "optim.learning_rate": "0.01"},
            scales=SMALL,
        )
        for heads in HEADS
    }
    return Item(
        f"Table 5, {task}",
        f"More heads make MixiT better: {printed} with 4, 16, 64, 256 heads.",
        cells,
        (above("32 heads beat 4", of("H=32"), of("H=4")),),
        note=f"n = 512 there, 64 here. {note}".strip(),
    )


HEAD_SWEEPS = (
    head_sweep(
        "addition",
        "34.7, 34.7, 50.7, 91.9 %",
        "50.7 % with 64 heads contradicts the 100 % of Table 1.",
    ),
    head_sweep("dyck", "77.9, 81.7, 89.4, 91.8 %"),
    Item(
        "Table 5, Yelp polarity",
        "The number of heads hardly matters: 92.5, 92.6, 92.5, 91.7 %.",
        needs="Yelp reviews and the Llama tokenizer",
    ),
)

DEPTHS = (2, 8)
DEPTH = Item(
    "Table 6",
    "A random transformer loses addition with depth (100, 23.5, 22.9 % at 2, 8, 16 layers); MixiT "
    "keeps it.",
    {
        f"{name}, L={layers}": Cell(
            f"configs/mixit/addition.py:variant={name}",
            {"model.layers": str(layers), "optim.learning_rate": "0.01"},
            scales=SMALL,
        )
        for name in ("mixit", "random")
        for layers in DEPTHS
    },
    (
        above(
            "the random transformer loses between 2 and 8 layers",
            of("random, L=2"),
            of("random, L=8"),
        ),
        near("MixiT keeps its accuracy", of("mixit, L=8"), of("mixit, L=2"), 0.02),
        above(
            "the random transformer of 8 layers knows more than position and token",
            of("random, L=8"),
            trivial("random, L=8", "by_position_and_token"),
            no=CHANCE,
        ),
    ),
    baseline="by_position_and_token",
    note="23.53 and 22.88 % are chance level: position and current token alone score 24.8 %.",
)
