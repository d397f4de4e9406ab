"""Claims about sweeps in the MixiT papers: pairs (Figure 2), heads, depth, and harder tasks."""

from collections.abc import Mapping

from experiments.ledger.item import CHANCE, OURS, Cell, Item
from experiments.ledger.rules import (
    Rule,
    above,
    near,
    no_better_than_chance,
    of,
    seeds_that_reach,
)
from experiments.papers.mixit.claims_common import (
    LONGER,
    MAIN_VARIANTS,
    UNSEEN,
    UNSEEN_NOTE,
    as_good_as_standard,
    below,
    reaches,
    small,
    solved,
    unseen,
)
from experiments.papers.mixit.claims_text import YELP_HEADS
from jaxformer.core.variants import label

# `late=True`: the rules were written after numbers were known. M: key-value pairs, V: symbols.
PAIRS = (4, 8, 12, 16, 20, 24)
# Keys and queries of 24 pairs need 96 symbols, those of 48 pairs 192.
FIGURE_2_SETTINGS = {"task.vocab": "96", "train.batch_size": "64", "train.steps": "1500"}
MOST_PAIRS = {"task.max_pairs": "48", "task.vocab": "192", "optim.learning_rate": "(3e-3,)"}


def with_pairs(variant: str, pairs: int, **train: str) -> Cell:
    """Returns the cell of a variant that is trained with up to so many key-value pairs."""
    changes = {"task.max_pairs": str(pairs)} | {f"train.{name}": n for name, n in train.items()}
    return small("retrieval", variant, FIGURE_2_SETTINGS | changes)


def at_48_pairs(other: str, steps: int) -> dict[str, Rule]:
    """Returns the rule that Frozen-QK is .1 below another variant with 48 pairs."""
    cell = f"M=48, {steps:,} steps"
    when = f"at M=48, after {steps:,} steps "
    return below(f"frozen_qk, {cell}", f"{other}, {cell}", 0.1, when=when)


FIGURE_2 = Item(
    "Figure 2",
    "As the number of pairs grows, MixiT deteriorates at once and stays below Frozen-QK and "
    "Frozen-MLP; in the end Frozen-QK deteriorates too, before Frozen-MLP and Standard.",
    {f"{name}, M={pairs}": with_pairs(name, pairs) for pairs in PAIRS for name in MAIN_VARIANTS}
    | {f"frozen_mlp, M={pairs}": with_pairs("frozen_mlp", pairs) for pairs in (8, 16)}
    | {
        f"{name}, M={pairs}, 6,000 steps": with_pairs(name, pairs, steps="6000")
        for name, pairs in (("standard", 24), ("frozen_qk", 24), ("mixit", 4), ("mixit", 8))
    }
    | {
        f"{name}, M=48, {steps:,} steps": small(
            "retrieval", name, FIGURE_2_SETTINGS | MOST_PAIRS | {"train.steps": str(steps)}
        )
        for steps, names in (
            (6000, ("standard", "frozen_qk")),
            (24000, ("standard", "frozen_mlp", "frozen_qk")),
        )
        for name in names
    },
    {
        "with 1,500 steps Standard reaches 100 % at M=16, within .02": near(
            unseen("standard, M=16"), 1.0, 0.02
        ),
        "with 1,500 steps Frozen-MLP is on par with Standard at M=16": above(
            unseen("frozen_mlp, M=16"), unseen("standard, M=16"), -0.05
        ),
    }
    | {
        f"at M=8 MixiT with 6,000 steps is .2 below {label(name)} with 1,500": above(
            unseen(f"{name}, M=8"), unseen("mixit, M=8, 6,000 steps"), 0.2
        )
        for name in ("frozen_qk", "frozen_mlp")
    }
    | {
        "with 6,000 steps MixiT loses more than .2 between M=4 and 8": above(
            unseen("mixit, M=4, 6,000 steps"), unseen("mixit, M=8, 6,000 steps"), 0.2
        ),
    }
    | at_48_pairs("standard", 24000)
    | at_48_pairs("frozen_mlp", 24000),
    checks={
        "with 1,500 steps MixiT loses more than .2 between M=4 and 8": above(
            unseen("mixit, M=4"), unseen("mixit, M=8"), 0.2
        ),
    }
    | below("frozen_qk, M=16", "standard, M=16", 0.1, UNSEEN, "at M=16, after 1,500 steps ")
    | reaches("frozen_qk, M=12", 0.9, UNSEEN, "at M=12, after 1,500 steps ")
    | {
        "with 1,500 steps Standard is .1 below Standard with 6,000 steps at M=24": above(
            of("standard, M=24, 6,000 steps"), of("standard, M=24"), 0.1
        ),
    }
    | solved(
        "with 6,000 steps {} reaches 100 % at M=24, within .02",
        ("standard", "frozen_qk"),
        "{}, M=24, 6,000 steps",
    )
    | {
        "with 6,000 steps Standard is at most .02 above a guess at M=48": no_better_than_chance(
            "standard, M=48, 6,000 steps", "in_context_guess"
        ),
    }
    | {
        "at M=48, after 24,000 steps more than half of Frozen-QK's seeds reach 95 %": above(
            seeds_that_reach(0.95, "frozen_qk, M=48, 24,000 steps"), 0.5
        ),
    }
    | at_48_pairs("standard", 6000)
    | solved(
        "with 24,000 steps {} reaches 100 % at M=48, within .02",
        ("standard",),
        "{}, M=48, 24,000 steps",
    )
    | reaches("frozen_qk, M=24", 0.5, "accuracy/pairs=1-2", "trained with M=24, on 1 or 2 pairs ")
    | {
        "trained with M=24, on 23 or 24 pairs Frozen-QK is below 20 %": above(
            0.2, of("frozen_qk, M=24", "accuracy/pairs=23-24")
        ),
        "MixiT is at most .02 above a guess at M=12": no_better_than_chance(
            "mixit, M=12", "in_context_guess"
        ),
    },
    baseline="in_context_guess",
    note="Up to M = 24 pairs there are V = 96 symbols. Batches have 64 sequences. Runs have "
    "1,500 steps where a rule names no other number. "
    "Frozen-QK is slower than Standard: it is behind with 16 pairs after 1,500 steps, and solves "
    "24 pairs after 6,000. With 48 pairs (V = 192) Standard and Frozen-QK learn nothing in 6,000 "
    "steps. After 24,000 steps, at one learning rate, two of three seeds of Frozen-QK retrieve "
    "and no seed of Standard. So no variant is seen to fail before Standard; a test needs a rate "
    "at which Standard learns. Table 2 prints 97 % at M=30. From M=12 on MixiT learns nothing in "
    f"1,500 steps. {UNSEEN_NOTE}",
    late=True,
)


def head_sweep(
    task: str,
    printed: str,
    rules: dict[str, Rule],
    note: str = "",
    checks: Mapping[str, Rule] = {},
) -> Item:
    return Item(
        f"Table 5, {task}",
        f"More heads make MixiT better: {printed} with 4, 16, 64, 256 heads.",
        {f"H={n}": small(task, "mixit", {"model.heads": str(n)}) for n in (4, 16, 64)},
        rules,
        note="The paper has n = 512, our runs n = 64: with 64 heads each head has one dimension. "
        f"{note}",
        late=True,
        checks=checks,
        flags=(CHANCE,) * (task == "dyck"),
    )


HEAD_SWEEPS = (
    head_sweep(
        "addition",
        "34.7, 34.7, 50.7, 91.9 %",
        {"64 heads beat 4": above(of("H=64"), of("H=4"))},
        "The 50.7 % with 64 heads contradict the 100 % of Table 1. 16 heads are right in 99.94 %, "
        "so that 64 cannot be seen to beat them. Seven of eight seeds with 4 heads are as good.",
        {
            "64 heads beat 16": above(of("H=64"), of("H=16")),
            "with 4 heads more than half of the seeds reach 95 %": above(
                seeds_that_reach(0.95, "H=4"), 0.5
            ),
        },
    ),
    head_sweep(
        "dyck",
        "77.9, 81.7, 89.4, 91.8 %",
        {
            f"{more} heads beat {fewer}": above(unseen(f"H={more}"), unseen(f"H={fewer}"))
            for more, fewer in ((16, 4), (64, 4), (64, 16))
        },
        "A predictor from counts and the two ends scores 97.8 %, more than any of these numbers. "
        f"{UNSEEN_NOTE}",
    ),
    YELP_HEADS,
)

# Networks of which only the embeddings are trained need far higher learning rates.
DEPTH_RATES = {
    ("mixit", 2): "(1e-3, 3e-3)",
    ("mixit", 8): "(1e-3, 3e-3)",
    ("random", 2): "(1e-2, 3e-2, 1e-1)",
    ("random", 8): "(3e-2, 1e-1)",  # the two best rates with two layers
}
WIDE = {"model.width": "256", "model.mlp_width": "1024", "train.steps": "2500"}
DEPTH = Item(
    "Table 6",
    "With depth a random transformer loses the ability to add (100, 23.5, 22.9 % at 2, 8, 16 "
    "layers); MixiT keeps it.",
    {
        f"{name}, L={layers}": small(
            "addition", name, WIDE | {"optim.learning_rate": rates, "model.layers": str(layers)}
        )
        for (name, layers), rates in DEPTH_RATES.items()
    },
    {
        "the random transformer of 2 layers reaches 95 %": above(of("random, L=2"), 0.95),
        "the random transformer of 8 layers is .1 below that of 2": above(
            of("random, L=2"), of("random, L=8"), 0.1
        ),
        "the random transformer of 8 layers is at most .02 above the predictor from position and "
        "token": no_better_than_chance("random, L=8", "by_position_and_token"),
        "MixiT of 8 layers is within .02 of MixiT of 2": near(
            of("mixit, L=8"), of("mixit, L=2"), 0.02
        ),
        "MixiT of 8 layers reaches 95 %": above(of("mixit, L=8"), 0.95),
    },
    baseline="by_position_and_token",
    note="Two and eight layers are run. The published 23.53 and 22.88 % are chance level: "
    "position and current token alone score 24.6 %. The paper has width 512, our runs 256; a "
    "random transformer of width 64 and 2 layers reaches 90 %. The best rate of the random "
    "transformer is .1; at .01 and width 256 it reaches 61 %.",
    flags=(CHANCE,),
)

MORE_STEPS = {"train.steps": "10000"}
PUBLISHED_PAIRS = {"task.p": "599", "data.train_size": "40000", "data.test_size": "2000"}


def share_of_pairs(percent: int) -> dict[str, str]:
    """Returns the changes that train modular addition on a share of the 97^2 pairs."""
    return MORE_STEPS | {"data.train_size": str(97**2 * percent // 100)}


FEW_PAIRS = Item(
    "Table 1, modular addition, from few pairs",
    "Do small models (n = 64) that train on the published 40,000 (11 %) of the pairs of p = 599 "
    "reach 100 % on new pairs, as Standard, Frozen-QK and MixiT do in the paper with n = 512?",
    {
        f"{name}, p = 599": small("modular_addition", name, MORE_STEPS | PUBLISHED_PAIRS)
        for name in MAIN_VARIANTS
    }
    | {
        f"{name}, {percent} %": small("modular_addition", name, share_of_pairs(percent))
        for percent in (11, 20)
        for name in MAIN_VARIANTS
    },
    solved("{} generalises from the published pairs, within .02", cell="{}, p = 599"),
    checks=solved("{} generalises from 11 % of the pairs of p = 97, within .02", cell="{}, 11 %")
    | solved("{} generalises from 20 % of the pairs of p = 97, within .02", cell="{}, 20 %"),
    baseline="best_constant",
    note="After 10,000 steps Standard and Frozen-QK nearly fit the published pairs (training loss "
    ".03 to .18). MixiT does so at the rates .005 and .01 (.03 to .05), but not at the chosen .02 "
    "(.8 to 1.5). No variant generalises, so this row shows nothing about freezing. The runs at "
    "p = 97 keep the share of pairs, but a residue then occurs in 21 training pairs instead of "
    "134: they do not test the paper. The row of Table 1 trains on 93 %, an easier claim.",
    flags=(OURS,),
    also="version B, Table 3",
)

FOUR_HOPS = {"task.max_hops": "4", "model.layers": "4", "train.steps": "6000"}
EXISTING = "accuracy_existing/hops={}"  # accuracy on questions whose answer exists
FOURFOLD_STEPS = {"train.steps": "24000", "optim.learning_rate": "(1e-3,)"}


COMPOSITION = Item(
    "Table 2, k-hop, composed",
    "Frozen-QK answers questions of several hops (k up to 16); MixiT is far behind.",
    {name: small("hops", name, FOUR_HOPS) for name in MAIN_VARIANTS}
    | {LONGER: small("hops", "mixit", FOUR_HOPS | FOURFOLD_STEPS)},
    reaches("standard", 0.9, EXISTING.format(4), "on four hops ")
    | reaches("frozen_qk", 0.8, EXISTING.format(4), "on four hops ")
    | below(LONGER, "frozen_qk", 0.2, when="after 24,000 steps "),
    checks=below("mixit", "frozen_qk", 0.2, when="after 6,000 steps ")
    | {
        "MixiT is at most .02 above the predictor from hop count, position and letter": (
            no_better_than_chance(LONGER, "by_hops_position_and_letter")
        ),
    }
    | reaches("frozen_qk", 0.8, EXISTING.format(2), "on two hops ")
    | {
        "on two hops MixiT is below 60 %": above(0.6, of(LONGER, EXISTING.format(2))),
        "on one hop MixiT is below 60 %": above(0.6, of(LONGER, EXISTING.format(1))),
    },
    baseline="by_hops_position_and_letter",
    note="At small scale the row of Table 2 has k <= 1, which needs no composition. This row has "
    "k <= 4, four layers and 6,000 steps. MixiT still improves at their end, so the rule uses "
    "24,000 steps at the best of its rates; longer runs were not made. `accuracy_existing/hops=k` "
    "leaves out questions whose answer does not exist.",
    late=True,
    flags=(CHANCE,),
)

MORE_DIGITS = Item(
    "Table 1, decimal addition, more digits",
    "Standard, Frozen-QK and MixiT solve ten-digit addition (here six digits).",
    {name: small("addition", name, {"task.digits": "6"}) for name in MAIN_VARIANTS},
    as_good_as_standard("frozen_qk", "mixit") | reaches("standard", 0.95, when="on six digits "),
    checks={
        "in more than half of its seeds MixiT reaches 95 %": above(
            seeds_that_reach(0.95, "mixit"), 0.5
        ),
    },
    baseline="by_position_and_token",
    note="The paper has ten digits, our runs six. Seeds of MixiT either solve six digits or do "
    "not, so that a share of seeds describes them better than a mean.",
)

SMALL_NETWORK = {"model.width": "24", "model.mlp_width": "96", "train.steps": "5000"}
# Frozen-MLP is claimed to fail, so it has four learning rates; the others have .005 only.
FROZEN_MLP_RATES = {"optim.learning_rate": "(5e-3, 1e-2, 2e-2, 5e-2)"}
FULL_TABLE = Item(
    "Table 1, memorisation, of a table of half the capacity",
    "Standard, Frozen-QK and MixiT memorise the whole table of random facts.",
    {name: small("memorization", name, SMALL_NETWORK) for name in MAIN_VARIANTS}
    | {"frozen_mlp": small("memorization", "frozen_mlp", SMALL_NETWORK | FROZEN_MLP_RATES)},
    solved("{} memorises 100 %, within .02"),
    checks=below("frozen_mlp", "standard", 0.05),
    baseline="best_constant",
    note="This table needs one bit for each trained parameter of Standard, whose capacity is two "
    "bits here (Table 4). The published table needs .07 bits, our table in the row of Table 1 .17.",
)
