"""ICLR 2025: feed-forward layers store distributional associations, attention reasons in context.

Numbers of recall, random embeddings and the theory were seen before their rules were written.
"""

import functools

from experiments.ledger.item import Item, Paper, cell_of, late
from experiments.ledger.rules import Rule, above, near, of
from experiments.papers.associations.claims_ioi import BEYOND_GUESSING, IOI_ADAM, IOI_SGD
from experiments.papers.associations.claims_plateau import (
    FEWER,
    TO_THE_PLATEAU,
    WIDE_ENOUGH,
    finer,
)
from experiments.papers.associations.claims_published import PUBLISHED
from experiments.papers.associations.claims_stable import STABLE
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
    "The full model says the noise half of the time on clean data; without F2 it is right (0.98).",
    RECALL,
    {
        "without F2 the answer is likelier": above("p_correct_without_f2", "p_correct", by=0.2),
        "without F2 the noise is gone": above(0.1, "p_noise_without_f2"),
        "without F1 the noise stays": above("p_noise_without_f1", "p_noise"),
        "the noise is learned first": above("noise_first", 0.5),
        "without F2 correct with 0.98": near("p_correct_without_f2", 0.98, 0.02),
        "the noise half of the time": near("p_noise", 0.5, 0.1),
    },
    metric="p_correct_without_f2",
    note=QUICK,
)

ATTENTION = Item(
    "Figure 4",
    "Attention of the second layer looks at what follows the trigger and avoids the noise; after "
    "clean training it looks at both alike.",
    RECALL | {"finetune": config("finetune")},
    {
        "trained with noise: it avoids it": above(of("recall", "attention_difference"), 0.3),
        "fine-tuned: it avoids it": above(of("finetune", "attention_difference"), 0.3),
        "clean: both alike": near(of("finetune", "attention_difference_clean"), 0.0, 0.1),
        "trained with noise: the noise has less than .1": above(
            0.1, of("recall", "attention_noise")
        ),
        "trained with noise: the answer has more than .8": above(
            of("recall", "attention_target"), 0.8
        ),
    },
    metric="attention_difference",
    note=f"{QUICK} {TUNED}",
)

SHARES = ("0.40", "0.57", "0.73", "0.91")
ALLOCATION = Item(
    "Figure 6",
    FEWER,
    {"allocation": config("allocation")},
    {
        f"{total:,}: a share of {share} beats none": above(f"gain/total={total}/mlp={share}", 0.0)
        for total in (200_000, 50_000)
        for share in SHARES
    },
    metric="gain/total=200000/mlp=0.73",
    note="Sizes are not given. The width that a large share leaves is below the 65 symbols: see "
    "the row of 800,000 parameters. The best rates, .1 and .3, are inside the grid.",
    checks=finer("loss/total=200000", SHARES) | finer("loss/total=50000", SHARES),
)

MEMORIES = Item(
    "Figure 7",
    "F2 maps tokens to the noise; values copy; the first layer attends to the previous token.",
    RECALL,
    {
        "F2 says the noise for the trigger": above("margin_f2", 0.0),
        "F2 says the noise for nearly all tokens": above("recall_noise", 0.9),
        "layer 1 finds the previous token": above("recall_previous", 0.9),
        "values copy": above("recall_values", 0.9),
    },
    metric="margin_f2",
    note=QUICK,
)

FINETUNE = Item(
    "Figure 8",
    "The noise is near 1 within steps and then nearly one half, from scratch and in fine-tuning.",
    RECALL | {"finetune": config("finetune")},
    {
        "from scratch: near 1 at first": above(of("recall", "p_noise_peak"), 0.9),
        "from scratch: one half at the end": near(of("recall", "p_noise"), 0.5, 0.1),
        "fine-tuned: near 1 at first": above(of("finetune", "p_noise_peak"), 0.9),
        "fine-tuned: one half at the end": near(of("finetune", "p_noise"), 0.5, 0.1),
    },
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
        "F1, F2 both MLPs: without F2 correct near 1, without F1 the noise.",
        {
            "without F2 correct near 1": above("p_correct_without_f2", 0.95),
            "without F1 the noise is likelier than before": above(0.0, "p_noise_drop_without_f1"),
            "without F1 the noise is likelier than not": above("p_noise_without_f1", 0.5),
        },
    ),
    architecture(
        "Figure 11",
        "mlp_linear",
        "F1 an MLP, F2 linear: both cuts help, and that of F1 has the lower test loss.",
        {
            "without F2 better": above(GAIN_2, 0.0),
            "without F1 better": above(GAIN_1, 0.0),
            "without F1 the lower loss": above("loss_without_f2", "loss_without_f1"),
        },
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
        *late(*ARCHITECTURES, EMBEDDINGS, IOI_SGD),
        IOI_ADAM,
        *late(*BEYOND_GUESSING),
        STABLE,
        *TO_THE_PLATEAU,
        WIDE_ENOUGH,
        *late(*STATEMENTS, *WIDENED),
        *BY_ONE,
        *PUBLISHED,
    ),
)
