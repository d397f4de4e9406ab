"""ICLR 2025: feed-forward layers store distributional associations, attention reasons in context.

Numbers of recall, random embeddings and the theory were seen before their rules were written.
"""

import functools

from experiments.ledger.item import Item, Paper, cell_of, late
from experiments.ledger.rules import Rule, above
from experiments.papers.associations import claims_plateau as plateau
from experiments.papers.associations import claims_recall as recall
from experiments.papers.associations.claims_ioi import BEYOND_GUESSING, IOI_ADAM, IOI_SGD
from experiments.papers.associations.claims_published import PUBLISHED
from experiments.papers.associations.claims_sizes import AT_SIZE
from experiments.papers.associations.claims_stable import OTHER_NOISE, STABLE
from experiments.papers.associations.claims_theory import BY_ONE, STATEMENTS, WIDENED

config = functools.partial(cell_of, "associations")

RECALL = {"recall": config("recall")}
QUICK = (
    "32 symbols, T = 64, d = 128, rate .1, 300 steps of 64 sequences, instead of 65, 256, 256, at "
    "most .03 and 2,000 steps of 512."
)
TUNED = (
    "Fine-tuning: rate .03, 300 clean steps, then 400 noisy ones; at .1 it diverges on clean data."
)
SURGERY = Item(
    "Figure 3",
    recall.HALF_THEN_RIGHT,
    RECALL,
    recall.SURGERY,
    metric="p_correct_without_f2",
    note=QUICK,
)

ATTENTION = Item(
    "Figure 4",
    recall.LOOKS,
    RECALL | {"finetune": config("finetune")},
    recall.AVOIDS,
    metric="attention_difference",
    note=f"{QUICK} {TUNED}",
)

SHARES = ("0.40", "0.57", "0.73", "0.91")
ALLOCATION = Item(
    "Figure 6",
    plateau.FEWER,
    {"allocation": config("allocation")},
    {
        f"{total:,}: a share of {share} beats none": above(f"gain/total={total}/mlp={share}", 0.0)
        for total in (200_000, 50_000)
        for share in SHARES
    }
    | plateau.finer("loss/total=200000", SHARES)
    | plateau.finer("loss/total=50000", SHARES),
    metric="gain/total=200000/mlp=0.73",
    note="Sizes are not given. The width that a large share leaves is below the 65 symbols: see "
    "the row of 800,000 parameters. The best rates, .1 and .3, are inside the grid.",
)

MEMORIES = Item(
    "Figure 7",
    recall.MAPPED,
    RECALL,
    recall.MEMORIES,
    metric="margin_f2",
    note=QUICK,
)

FINETUNE = Item(
    "Figure 8",
    recall.PEAKS,
    RECALL | {"finetune": config("finetune")},
    recall.PEAK,
    metric="p_noise_peak",
    note=f"{QUICK} {TUNED} The peak is that of 20 steps.",
)

TRIGGERS = Item(
    "Figure 9",
    "With several triggers each finds its own target: the memory is diagonal.",
    {"triggers": config("triggers")},
    {
        "a trigger is matched with itself": above("induction_triggers", "induction_mixed", by=5),
        "other tokens are not": above("induction_triggers", "induction_others", by=5),
    },
    metric="induction_triggers",
    note=f"{QUICK} Three triggers instead of five.",
)


def architecture(
    name: str, layers: str, claim: str, rules: dict[str, Rule], note: str = ""
) -> Item:
    cell = config("architectures", f"layers={layers}") if layers else RECALL["recall"]
    return Item(
        name, claim, {"run": cell}, rules, metric="p_correct", note=f"{QUICK} {note}".strip()
    )


GAIN_1, GAIN_2 = (f"p_correct_gain_without_f{i}" for i in (1, 2))
FIVE_PERCENT = "p_correct_gain/block_0/attn/out@0.05"
ONE_PERCENT = "p_correct_gain/block_0/attn/out@0.01"
ARCHITECTURES = (
    architecture(
        "Figure 10",
        "",  # These networks, both layers MLPs, are those of Figure 3.
        recall.BOTH_MLPS,
        recall.LIKELY,
    ),
    architecture(
        "Figure 11",
        "mlp_linear",
        recall.BOTH_CUTS,
        recall.EITHER,
    ),
    architecture(
        "Figure 12",
        "linear_mlp",
        "F1 linear, F2 an MLP: only the cut of F2 helps.",
        {"without F2 better": above(GAIN_2, 0.1), "without F1 worse": above(0.0, GAIN_1)},
    ),
    architecture(
        "Figure 13",
        "none_none",
        "No feed-forward layers: Wo of layer 1 at 5 % of its rank helps a little, 1 % destroys.",
        {"5 % helps": above(FIVE_PERCENT, 0.0), "1 % destroys": above(0.0, ONE_PERCENT)},
        "1 % is one direction of 128. Other shares and other figures are compared in the row to "
        "the plateau.",
    ),
)

EMBEDDINGS = Item(
    "Figure 18",
    "Random embeddings: a memory cut to rank 2 has a lower loss on pure labels than the full one.",
    {"memory": config("random_embeddings")},
    {
        "d = 12: rank 2 below full": above("loss/d=12/full", "loss/d=12/rank 2"),
        "d = 8: rank 2 below full": above("loss/d=8/full", "loss/d=8/rank 2"),
    },
    metric="loss/d=12/rank 2",
    note="Rate and steps are not given. G.1 calls it Figure 5.",
)


DRAWINGS = (
    Item(
        "Figure 1",
        "A drawing: feed-forward layers learn distributional associations, attention the context.",
        defines="`configs/associations/recall.py` is the experiment that it summarises.",
    ),
    Item(
        "Figure 2",
        "A drawing of noisy in-context recall: triggers, targets and the generic noise token.",
        defines="`jaxformer/tasks/recall.py`.",
    ),
)

PAPER = Paper(
    "associations",
    "Distributional Associations vs In-Context Reasoning",
    "ICLR 2025, arXiv 2406.03068",
    (
        *DRAWINGS,
        *late(SURGERY, ATTENTION, ALLOCATION, MEMORIES, FINETUNE, TRIGGERS),
        *late(*ARCHITECTURES, EMBEDDINGS, IOI_SGD, IOI_ADAM, *BEYOND_GUESSING),
        STABLE,
        OTHER_NOISE,
        *plateau.TO_THE_PLATEAU,
        *AT_SIZE,
        plateau.WIDE_ENOUGH,
        *late(*STATEMENTS, *WIDENED),
        *BY_ONE,
        *PUBLISHED,
    ),
)
