"""Claims of ICLR 2025, arXiv 2406.03068: distributional associations and in-context reasoning.

We had seen numbers of recall, random embeddings and the theory before we wrote the rules of the
items in `late(..)`.
"""

import functools

from experiments.ledger.item import OUTSIDE, Cell, Item, Paper, cell_of, late
from experiments.ledger.rules import above
from experiments.papers.associations import claims_plateau, claims_recall
from experiments.papers.associations.claims_ioi import BEYOND_GUESSING, IOI_ADAM, IOI_SGD
from experiments.papers.associations.claims_plateau import (
    FEWER_IN_MLPS,
    beats_next_smaller,
    beats_none,
)
from experiments.papers.associations.claims_published import PUBLISHED
from experiments.papers.associations.claims_recall import F1_LINEAR_RULES, Claim
from experiments.papers.associations.claims_sizes import AT_SIZE
from experiments.papers.associations.claims_small_models import SMALL_MODELS
from experiments.papers.associations.claims_stable import OTHER_NOISE, STABLE
from experiments.papers.associations.claims_theory import (
    STATEMENTS,
    TOLERANCE_WIDENED,
    WRITTEN_BEFORE_NUMBERS,
)

config = functools.partial(cell_of, "associations")

SYMBOLS = 32  # in the runs of the quick protocol
RECALL = {"recall": config("recall")}
FINETUNED = RECALL | {"finetune": config("finetune")}
QUICK = (
    "Our runs have 32 symbols, T = 64, d = 128, rate .1 and 300 steps of 64 sequences. The paper's "
    "have 65 symbols, T = 256, d = 256, a rate of at most .03 and 2,000 steps of 512 sequences."
)
FINETUNING_NOTE = (
    "Fine-tuning has rate .03, 300 clean steps, then 400 noisy ones. At rate .1 it diverges on "
    "clean data."
)


def quick(
    figure: str, claim: Claim, cells: dict[str, Cell], metric: str = "p_correct", note: str = ""
) -> Item:
    """Returns a row whose runs use the quick protocol, the default of the configs."""
    return Item(
        f"Figure {figure}",
        claim.sentence,
        cells,
        claim.rules,
        metric,
        note=f"{QUICK} {note}".strip(),
        flags=(OUTSIDE,),
    )


def layers(kinds: str) -> dict[str, Cell]:
    """Returns the run whose F1 and F2 are of these kinds, such as "mlp_linear"."""
    return {"run": config("architectures", f"layers={kinds}")}


DIAGONAL = Claim(
    "With several triggers, each is matched only with itself: the memory is diagonal.",
    {
        "a trigger matches itself more than another trigger, by 5 deviations": above(
            "induction_triggers", "induction_mixed", by=5
        ),
        "a trigger matches itself more than other tokens match themselves, by 5 deviations": above(
            "induction_triggers", "induction_others", by=5
        ),
    },
)
F1_LINEAR = Claim(
    "F1 is linear, F2 is an MLP: dropping F2 helps and dropping F1 does not.", F1_LINEAR_RULES
)
# The gain in the answer's probability by cutting Wo of layer 1. "@0.05" keeps 5 % of its rank.
CUT_GAIN = "p_correct_gain/block_0/attn/out"
NO_FEED_FORWARD = Claim(
    "Without feed-forward layers, keeping 5 % of the rank of Wo in layer 1 helps a little, and "
    "keeping 1 % destroys the answer.",
    {
        "Wo of layer 1 at 5 % of its rank makes the answer likelier": above(
            f"{CUT_GAIN}@0.05", 0.0
        ),
        "Wo of layer 1 at 1 % of its rank makes the answer less likely": above(
            0.0, f"{CUT_GAIN}@0.01"
        ),
    },
)
SURGERY = quick("3", claims_recall.SURGERY, RECALL, "p_correct_without_f2")
ATTENTION = quick("4", claims_recall.ATTENTION, FINETUNED, "attention_difference", FINETUNING_NOTE)
MEMORIES = quick("7", claims_recall.memories(SYMBOLS), RECALL, "margin_f2")
FINETUNE = quick(
    "8",
    claims_recall.PEAK,
    FINETUNED,
    "p_noise_peak",
    f"{FINETUNING_NOTE} The peak is the largest probability of the noise within 20 steps.",
)
TRIGGERS = quick(
    "9",
    DIAGONAL,
    {"triggers": config("triggers")},
    "induction_triggers",
    "Our runs have three triggers, the paper's five.",
)
ARCHITECTURES = (
    # Figure 10 has the networks of Figure 3: both feed-forward layers are MLPs.
    quick("10", claims_recall.BOTH_MLPS, {"run": RECALL["recall"]}),
    quick("11", claims_recall.F2_LINEAR, layers("mlp_linear")),
    quick("12", F1_LINEAR, layers("linear_mlp")),
    quick(
        "13",
        NO_FEED_FORWARD,
        layers("none_none"),
        note='1 % of the rank is one direction of 128. The row "Figure 13, to the plateau" '
        "compares other shares and other figures.",
    ),
)

# Shares of the parameters in MLPs, from the multipliers 1, 2, 4 and 16.
SHARES = ("0.40", "0.57", "0.73", "0.91")
ALLOCATION = Item(
    "Figure 6",
    FEWER_IN_MLPS,
    {"allocation": config("allocation")},
    beats_none(200_000, SHARES)
    | beats_none(50_000, SHARES)
    | beats_next_smaller(200_000, SHARES)
    | beats_next_smaller(50_000, SHARES),
    metric="gain/total=200000/mlp=0.73",
    note="The paper gives no sizes. With a large share in MLPs the width is below the 65 symbols. "
    'The row "Figure 6, wide enough" avoids that. The best rates, .1 and .3, are inside the grid. '
    "The rate is chosen by the loss that is reported, so each loss is slightly too low.",
)

EMBEDDINGS = Item(
    "Figure 18",
    "Random embeddings: a memory cut to rank 2 has a lower loss on pure labels than the full "
    "memory.",
    {"memory": config("random_embeddings")},
    {
        f"d = {d}: the loss at rank 2 is below that of the full memory": above(
            f"loss/d={d}/full", f"loss/d={d}/rank 2"
        )
        for d in (12, 8)
    },
    metric="loss/d=12/rank 2",
    note="The paper gives neither the rate nor the number of steps. Its Appendix G.1 calls this "
    "figure Figure 5. The paper also says that a larger d is more stable; no rule tests it.",
)

DRAWINGS = (
    Item(
        "Figure 1",
        "A drawing: feed-forward layers learn distributional associations, and attention learns "
        "the context.",
        defines="`configs/associations/recall.py` is the experiment that the drawing summarises.",
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
        *claims_plateau.TO_THE_PLATEAU,
        *AT_SIZE,
        claims_plateau.WIDE_ENOUGH,
        *late(*STATEMENTS, *TOLERANCE_WIDENED),
        *WRITTEN_BEFORE_NUMBERS,
        *PUBLISHED,
        *SMALL_MODELS,
    ),
)
