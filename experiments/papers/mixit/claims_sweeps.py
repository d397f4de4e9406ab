"""Sweeps of the MixiT papers: pairs (Figure 2), heads (Tables 5, 9), depth (Tables 6, 5)."""

import functools

from experiments.cli.describe import label
from experiments.ledger.item import CHANCE, OURS, Cell, Item
from experiments.ledger.rules import Rule, above, near, no_better_than_chance, of
from experiments.papers import row_numbers
from experiments.papers.mixit.claims_text import YELP_HEADS

# Keys and queries of 24 pairs need 96 symbols.
OF_FIGURE_2 = {"task.vocab": "96", "train.batch_size": "64", "train.steps": "1500"}
STEPS = {"train.steps": "2500"}


def small(task: str, variant: str, overrides: dict[str, str]) -> Cell:
    """A cell that is meant at scale small alone."""
    return Cell(f"configs/mixit/{task}.py:variant={variant}", overrides, scales=("small",))


PATIENT = row_numbers.patient("mixit")
PAIRS = (4, 8, 12, 16, 20, 24)
LONGER = "M=24, 6,000 steps"
# Where Frozen-QK might fail: with 24 pairs and 6,000 steps it does not. .003 is best there.
LAST = {"task.max_pairs": "48", "task.vocab": "192", "optim.learning_rate": "(3e-3,)"}


def of_pairs(variant: str, pairs: int, **more: str) -> Cell:
    changed = {"task.max_pairs": str(pairs)} | {f"train.{name}": n for name, n in more.items()}
    return small("retrieval", variant, OF_FIGURE_2 | changed)


UNSEEN = "accuracy_unseen"
fresh = functools.partial(of, metric=UNSEEN)
FRESH = "Rules read the test examples that no other set can have."
FIGURE_2 = Item(
    "Figure 2",
    "Frozen-QK and Frozen-MLP stay above MixiT, which deteriorates at once, as the number of pairs "
    "grows; in the end Frozen-QK deteriorates too, before Frozen-MLP and Standard.",
    {
        f"{name}, M={pairs}": of_pairs(name, pairs)
        for pairs in PAIRS
        for name in ("standard", "frozen_qk", "mixit")
    }
    | {f"frozen_mlp, M={pairs}": of_pairs("frozen_mlp", pairs) for pairs in (8, 16)}
    | {f"{name}, {LONGER}": of_pairs(name, 24, steps="6000") for name in ("standard", "frozen_qk")}
    | {f"mixit, M={pairs}, 6,000 steps": of_pairs("mixit", pairs, steps="6000") for pairs in (4, 8)}
    | {
        f"{name}, M=48, {steps:,} steps": small(
            "retrieval", name, OF_FIGURE_2 | LAST | {"train.steps": str(steps)}
        )
        for steps, names in (
            (6000, ("standard", "frozen_qk")),
            (24000, ("standard", "frozen_mlp", "frozen_qk")),
        )
        for name in names
    },
    {
        "Standard retrieves at M=16": near(fresh("standard, M=16"), 1.0, 0.02),
        "Frozen-MLP is on par with it": above(
            fresh("frozen_mlp, M=16"), fresh("standard, M=16"), -0.05
        ),
        "Frozen-QK stays .2 above MixiT with 6,000 steps at M=8": above(
            fresh("frozen_qk, M=8"), fresh("mixit, M=8, 6,000 steps"), 0.2
        ),
        "Frozen-MLP stays .2 above MixiT with 6,000 steps at M=8": above(
            fresh("frozen_mlp, M=8"), fresh("mixit, M=8, 6,000 steps"), 0.2
        ),
        "with 6,000 steps MixiT loses more than .2 between M=4 and 8": above(
            fresh("mixit, M=4, 6,000 steps"), fresh("mixit, M=8, 6,000 steps"), 0.2
        ),
    }
    | {
        f"with 24,000 steps Frozen-QK is .1 below {label(name)} at M=48": above(
            of(f"{name}, M=48, 24,000 steps"), of("frozen_qk, M=48, 24,000 steps"), 0.1
        )
        for name in ("standard", "frozen_mlp")
    },
    checks={
        "with 1,500 steps MixiT loses more than .2 between M=4 and 8": above(
            fresh("mixit, M=4"), fresh("mixit, M=8"), 0.2
        ),
        "with 1,500 steps Frozen-QK is .1 below Standard at M=16": above(
            fresh("standard, M=16"), fresh("frozen_qk, M=16"), 0.1
        ),
        "Frozen-QK still retrieves at M=12": above(fresh("frozen_qk, M=12"), 0.9),
        "at M=24 1,500 steps are too few for Standard": above(
            of(f"standard, {LONGER}"), of("standard, M=24"), 0.1
        ),
        "with 6,000 steps Standard retrieves at M=24": near(of(f"standard, {LONGER}"), 1.0, 0.02),
        "with 6,000 steps Frozen-QK retrieves at M=24": near(of(f"frozen_qk, {LONGER}"), 1.0, 0.02),
        "with 6,000 steps Standard does no better than guess at M=48": no_better_than_chance(
            "standard, M=48, 6,000 steps", "in_context_guess"
        ),
        "with 6,000 steps Frozen-QK is .1 below Standard at M=48": above(
            of("standard, M=48, 6,000 steps"), of("frozen_qk, M=48, 6,000 steps"), 0.1
        ),
        "with 24,000 steps Standard retrieves at M=48": near(
            of("standard, M=48, 24,000 steps"), 1.0, 0.02
        ),
        "at M=24 Frozen-QK retrieves from one or two pairs": above(
            of("frozen_qk, M=24", "accuracy/pairs=1-2"), 0.5
        ),
        "at M=24 it guesses among its pairs when there are many": above(
            0.2, of("frozen_qk, M=24", "accuracy/pairs=23-24")
        ),
        "MixiT does no better than guess at M=12": no_better_than_chance(
            "mixit, M=12", "in_context_guess"
        ),
    },
    baseline="in_context_guess",
    note="V = 96 up to M=24; batches of 64, 1,500 steps, or more where a rule says so. With 16 "
    "pairs Frozen-QK falls behind after 1,500, with 24 it retrieves after 6,000: it is slower. "
    "With 48 (V = 192) neither it nor Standard has learned it in 6,000; after 24,000, at one rate, "
    "two of its three seeds retrieve and none of Standard's. So nothing can fail before Standard, "
    "and seeds alone cannot decide it: that needs a rate at which Standard learns. Table 2 prints "
    f"97 % at M=30. From M=12 on MixiT has learned nothing in 1,500 steps. {FRESH}",
    late=True,
    also="version B, Figure 2",
)


def head_sweep(task: str, printed: str, rules: dict[str, Rule], note: str = "") -> Item:
    return Item(
        f"Table 5, {task}",
        f"More heads make MixiT better: {printed} with 4, 16, 64, 256 heads.",
        {f"H={n}": small(task, "mixit", {"model.heads": str(n)}) for n in (4, 16, 64)},
        rules,
        note=f"n = 512 there, 64 here, so that 64 heads have one dimension each. {note}".strip(),
        late=True,
        flags=(CHANCE,) * (task == "dyck"),
        also="version B, Table 9",
    )


HEAD_SWEEPS = (
    head_sweep(
        "addition",
        "34.7, 34.7, 50.7, 91.9 %",
        {f"64 heads beat {n}": above(of("H=64"), of(f"H={n}")) for n in (4, 16)},
        "50.7 % with 64 heads contradicts the 100 % of Table 1.",
    ),
    head_sweep(
        "dyck",
        "77.9, 81.7, 89.4, 91.8 %",
        {f"{n} heads beat 4": above(fresh(f"H={n}"), fresh("H=4")) for n in (16, 64)}
        | {"64 heads beat 16": above(fresh("H=64"), fresh("H=16"))},
        f"Comparing counts and the two ends scores 97.8 %, more than any of these. {FRESH}",
    ),
    YELP_HEADS,
)

WIDE = {"model.width": "256", "model.mlp_width": "1024"} | STEPS
RATES = {  # those of a network of which the embeddings alone are trained are far higher
    ("mixit", 2): "(1e-3, 3e-3)",
    ("mixit", 8): "(1e-3, 3e-3)",
    ("random", 2): "(1e-2, 3e-2, 1e-1)",
    ("random", 8): "(3e-2, 1e-1)",  # the two that are best with two layers
}
DEPTH = Item(
    "Table 6",
    "A random transformer loses addition with depth (100, 23.5, 22.9 % at 2, 8, 16 layers); MixiT "
    "keeps it.",
    {
        f"{name}, L={layers}": small(
            "addition", name, WIDE | {"optim.learning_rate": rates, "model.layers": str(layers)}
        )
        for (name, layers), rates in RATES.items()
    },
    {
        "the random transformer adds with 2 layers": above(of("random, L=2"), 0.95),
        "it loses between 2 and 8 layers": above(of("random, L=2"), of("random, L=8"), 0.1),
        "the random transformer of 8 layers knows no more than position and token": (
            no_better_than_chance("random, L=8", "by_position_and_token")
        ),
        "MixiT keeps its accuracy": near(of("mixit, L=8"), of("mixit, L=2"), 0.02),
        "MixiT adds with 8 layers": above(of("mixit, L=8"), 0.95),
    },
    baseline="by_position_and_token",
    note="Two and eight layers are run. 23.53 and 22.88 % are chance level: position and current "
    "token alone score 24.6 %. Width 256 here and 512 there: at 64 a random transformer adds "
    "90 % with 2 layers. Its best rate is .1; at .01 it adds 61 % with width 256.",
    flags=(CHANCE,),
    also="version B, Table 5",
)

ADDING = ("standard", "frozen_qk", "mixit")
HARDER_ADDITION = {"task.digits": "6"}
COMPOSED = {"task.max_hops": "4", "model.layers": "4", "train.steps": "6000"}
FOURFOLD = {"train.steps": "24000", "optim.learning_rate": "(1e-3,)"}
OPTIMISED = {"train.steps": "10000"}


def with_pairs(share: int) -> dict[str, str]:
    """Modular addition that trains on a share (in percent) of the 97^2 pairs."""
    return OPTIMISED | {"data.train_size": str(97**2 * share // 100)}


PUBLISHED = OPTIMISED | {
    "task.p": "599",
    "data.train_size": "40000",
    "data.test_size": "2000",
}
FEW_PAIRS = Item(
    "Table 1, modular addition, from few pairs",
    "Do small models (n = 64) reach 100 % on pairs never seen from the published 40,000 (11 %) of "
    "the pairs of p = 599, as all three do in the paper with n = 512?",
    {f"{name}, p = 599": small("modular_addition", name, PUBLISHED) for name in ADDING}
    | {
        f"{name}, {share} %": small("modular_addition", name, with_pairs(share))
        for share in (11, 20)
        for name in ADDING
    },
    {
        f"{label(name)} generalises from the published pairs": near(
            of(f"{name}, p = 599"), 1.0, 0.02
        )
        for name in ADDING
    },
    checks={
        f"{label(name)} generalises from {share} % of the pairs of p = 97": near(
            of(f"{name}, {share} %"), 1.0, 0.02
        )
        for share in (11, 20)
        for name in ADDING
    },
    baseline="best_constant",
    note="After 10,000 steps Standard and Frozen-QK nearly fit the published pairs (training loss "
    ".03 to .18), MixiT at .005 and .01 (.03 to .05), not at its chosen .02 (.8 to 1.5). None "
    "generalises, so that the row tells nothing of what is frozen. At p = 97 the share is kept: a "
    "residue stands in 21 pairs for training, in 134 with the published ones, which does not test "
    "the paper. The row of Table 1 trains on 93 %, an easier claim.",
    flags=(OURS,),
    also="version B, Table 3",
)

COMPOSITION = Item(
    "Table 2, k-hop, composed",
    "Frozen-QK answers questions of several hops (k up to 16); MixiT is far behind.",
    {name: small("hops", name, COMPOSED) for name in ("standard", "frozen_qk", "mixit")}
    | {PATIENT: small("hops", "mixit", COMPOSED | FOURFOLD)},
    {
        "Standard follows four hops": above(of("standard", "accuracy_existing/hops=4"), 0.9),
        "Frozen-QK follows four hops": above(of("frozen_qk", "accuracy_existing/hops=4"), 0.8),
        "after 24,000 steps MixiT stays .2 below Frozen-QK": above(
            of("frozen_qk"), of(PATIENT), 0.2
        ),
    },
    checks={
        "after 6,000 steps it does": above(of("frozen_qk"), of("mixit"), 0.2),
        "MixiT knows no more than hop count, position and letter": no_better_than_chance(
            PATIENT, "by_hops_position_and_letter"
        ),
        "Frozen-QK follows two hops": above(of("frozen_qk", "accuracy_existing/hops=2"), 0.8),
        "MixiT does not follow two": above(0.6, of(PATIENT, "accuracy_existing/hops=2")),
        "MixiT does not follow one": above(0.6, of(PATIENT, "accuracy_existing/hops=1")),
    },
    baseline="by_hops_position_and_letter",
    note="The row of Table 2 has k <= 1 at small scale, where nothing is composed; here k <= 4, "
    "four layers, 6,000 steps. MixiT still learns at their end: the rule reads it with 24,000, at "
    "the best of its rates, and what it would do with still more is not told. "
    "`accuracy_existing/hops=k` leaves out answers that do not exist.",
    late=True,
    flags=(CHANCE,),
    also="version B, Table 1",
)

MORE_DIGITS = Item(
    "Table 1, decimal addition, more digits",
    "All three solve ten-digit addition; here six digits.",
    {name: small("addition", name, HARDER_ADDITION) for name in ("standard", "frozen_qk", "mixit")},
    {
        "Frozen-QK is as good as Standard": above(of("frozen_qk"), of("standard"), -0.02),
        "MixiT is as good as Standard": above(of("mixit"), of("standard"), -0.02),
        "Standard adds six digits": above(of("standard"), 0.95),
    },
    baseline="by_position_and_token",
    note="Ten digits there, six here.",
    also="version B, Table 3",
)

# The table asks one bit of each parameter of Standard, which holds two (Table 4).
TUNED = "(5e-3, 1e-2, 2e-2, 5e-2)"  # of the variant that is said to fail; .005 for the others
LOADED = {"model.width": "24", "model.mlp_width": "96", "train.steps": "5000"}
FULL_TABLE = Item(
    "Table 1, memorisation, of a table of half the capacity",
    "All three memorise the whole table of random facts.",
    {name: small("memorization", name, LOADED) for name in ("standard", "frozen_qk", "mixit")}
    | {"frozen_mlp": small("memorization", "frozen_mlp", LOADED | {"optim.learning_rate": TUNED})},
    {
        "Standard memorises": near(of("standard"), 1.0, 0.02),
        "Frozen-QK memorises": near(of("frozen_qk"), 1.0, 0.02),
        "MixiT memorises": near(of("mixit"), 1.0, 0.02),
    },
    checks={"Frozen-MLP does not": above(of("standard"), of("frozen_mlp"), 0.05)},
    baseline="best_constant",
    note="The published table asks .07 bits of a trained parameter, the row of Table 1 .17; this "
    "one asks one of Standard, which stores two here (Table 4).",
    also="version B, Table 3",
)
