"""Claims of the associations paper on published models.

The rules were written before we had any numbers: the weights are not in the repository, and each
config names their source. P(the) is the probability of the token " the", IO the indirect object.
LASER cuts a matrix to a low rank: "block_15/mlp/in@0.0125" keeps 1.25 % of the rank of the first
MLP matrix in block 15, counted from 0. `computed` is a metric without an error; `of` has an error
over prompts. `computed("", metric)` reads the row's only run.
"""

from experiments.ledger.item import Cell, Item
from experiments.ledger.rules import Rule, above, computed, near, of

WEIGHTS = "published weights"
KEPT = 0.05  # a probability that falls by less than this counts as kept
AFTER_STEP_16 = 17  # a checkpoint by step 16 has a smaller step
# Cuts of Pythia-1B for prompts on facts and on indirect objects, and a cut of Pythia-410M.
FACT_CUT_1B, IO_CUT_1B = "block_15/mlp/in@0.0125", "block_10/mlp/in@0.008"
IO_CUT_410M = "block_21/mlp/in@0.02"


def published(what: str) -> Cell:
    """Returns a cell that exists only at scale paper, as a smaller scale is another model."""
    return Cell(f"configs/associations/published.py:what={what}", scales=("paper",))


def gsm8k(model: str, shots: int) -> Cell:
    """Returns the cell of a model on GSM8K with so many examples in the prompt."""
    arguments = f"model={model},shots={shots}"
    return Cell(f"configs/associations/gsm8k.py:{arguments}", scales=("paper",))


def learned_early(cell: str) -> dict[str, Rule]:
    """Returns the rule that "the" is among the first ten tokens by step 16."""
    return {
        f'{cell}: "the" ranks among the first ten by step 16': above(
            AFTER_STEP_16, computed(cell, "step_of_the")
        )
    }


def ratio_rises(cell: str, cut: str, token: str) -> dict[str, Rule]:
    """Returns the rule that LASER raises the ratio of a token's probability to that of "the"."""
    return {
        f"{cell}: LASER raises P({token}) / P(the)": above(
            computed(cell, f"ratio/{cut}"), computed(cell, "ratio")
        )
    }


def the_falls(cell: str, cut: str, token: str) -> dict[str, Rule]:
    """Returns the rules that LASER lowers P(the) and raises P(right token) / P(the)."""
    falls = {f"{cell}: LASER lowers P(the)": above(0.0, of(cell, f"p_the_gain/{cut}"))}
    return falls | ratio_rises(cell, cut, token)


TABLE_1 = Item(
    "Table 1",
    'LASER on Pythia-1B: after "Madrid is located in" P(the) falls from .499 to .027 and P(Spain) '
    "rises from .079 to .300.",
    {"madrid": published("table1")},
    {
        f"{name} is {printed}, within .01": near(computed("", metric), float(printed), 0.01)
        for name, metric, printed in (
            ("P(the)", "p_the", ".499"),
            ("P(Spain)", "p_target", ".079"),
            ("P(the) after LASER", f"p_the/{FACT_CUT_1B}", ".027"),
            ("P(Spain) after LASER", f"p_target/{FACT_CUT_1B}", ".300"),
        )
    },
    metric="p_target",
    needs=WEIGHTS,
    note="The paper's checkpoint is ambiguous: Figure 5 has the ratios of this table at 14K steps.",
)
FIGURE_5 = Item(
    "Figure 5",
    "Pythia-1B learns the generic word first; LASER raises P(IO) / P(the) and P(Spain) / P(the).",
    {"ioi": published("figure5_ioi"), "fact": published("figure5_fact")},
    ratio_rises("ioi", IO_CUT_1B, "IO")
    | ratio_rises("fact", FACT_CUT_1B, "Spain")
    | learned_early("ioi")
    | learned_early("fact"),
    metric="p_target",
    needs=WEIGHTS,
    note="The paper's ratios rise from 2.3 to 12.3 and from .16 to 11.3, at 14K steps. The rules "
    "on ratios test only that they rise, at the last checkpoint.",
)
FIGURE_14_CELLS = {
    f"{kind}, {size}": published(f"figure14_{kind}_{size}")
    for kind in ("words", "sentences")
    for size in ("160m", "410m", "1b")
}
FIGURE_14 = Item(
    "Figure 14",
    'Pythia ranks "the" among its first words after about 10 steps.',
    FIGURE_14_CELLS,
    {text: rule for cell in FIGURE_14_CELLS for text, rule in learned_early(cell).items()},
    metric="rank_the",
    needs=WEIGHTS,
)
FIGURE_15 = Item(
    "Figure 15",
    "Pythia-410M and 1B: LASER lowers P(the) and keeps P(IO).",
    {"410M": published("figure15_410m"), "1B": published("figure15_1b")},
    the_falls("410M", IO_CUT_410M, "IO")
    | the_falls("1B", IO_CUT_1B, "IO")
    | {
        f"{cell}: LASER lowers P(IO) by less than {KEPT}": above(
            of(cell, f"p_target_gain/{cut}"), -KEPT
        )
        for cell, cut in {"410M": IO_CUT_410M, "1B": IO_CUT_1B}.items()
    },
    metric="p_target",
    needs=WEIGHTS,
    note="The 100 sentences have our own names; the paper does not give its names.",
)
FIGURE_16 = Item(
    "Figure 16",
    "Pythia-1B to 2.8B: LASER lowers P(the) relative to P(answer) on 20 facts of Table 5.",
    {size: published(f"figure16_{size.lower()}") for size in ("1B", "1.4B", "2.8B")},
    the_falls("1B", FACT_CUT_1B, "answer")
    | the_falls("1.4B", "block_23/mlp/in@0.025", "answer")
    | the_falls("2.8B", "block_31/mlp/in@0.04", "answer"),
    metric="p_target",
    needs=WEIGHTS,
    note="An answer of several tokens is scored by its first token.",
)
LAYERS, SHARES = (9, 10, 11), (0.1, 0.2, 0.4, 0.6, 0.8)
FIGURE_17 = Item(
    "Figure 17",
    "GPT-2 small: truncating the first MLP matrix of layer 9, 10 or 11 to .1 to .8 of its rank "
    "lowers P(the) and P(them).",
    {"gpt2": published("figure17")},
    {
        f"layer {layer} at {share} of its rank: P({word}) falls": above(
            computed("", f"p_{word}"), computed("", f"p_{word}/block_{layer - 1}/mlp/in@{share}")
        )
        for layer in LAYERS
        for share in SHARES
        for word in ("the", "them")
    },
    metric="p_target",
    needs=WEIGHTS,
    note="The full model already ranks Mary, the answer, first.",
    checks={
        f"layer {layer} at .1 of its rank: Mary ranks first": near(
            computed("", f"rank_target/block_{layer - 1}/mlp/in@0.1"), 1.0, 0.0
        )
        for layer in LAYERS
    },
)
TABLE_5 = Item(
    "Table 5",
    "20 prompts on facts with their answers. Figure 16 is their average.",
    defines="`experiments/papers/associations/prompts.json`.",
)
MODELS = {"phi3": "Phi-3", "llama": "Llama-3.1-8B", "llama_instruct": "Llama-3.1-8B-Instruct"}
TABLE_2 = Item(
    "Table 2",
    "GSM8K: LASER raises the accuracy with one and two shots (Phi-3 56.0 -> 66.1) and lowers it "
    "with eight.",
    {
        f"{name}, {shots} shots": gsm8k(model, shots)
        for model, name in MODELS.items()
        for shots in (1, 2, 4, 8)
    },
    {
        f"{name}, {shots} shots: LASER raises the accuracy": above(
            of(f"{name}, {shots} shots", "accuracy_gain"), 0.0
        )
        for name in MODELS.values()
        for shots in (1, 2)
    }
    | {
        f"{name}, 8 shots: LASER lowers the accuracy": above(
            0.0, of(f"{name}, 8 shots", "accuracy_gain")
        )
        for name in MODELS.values()
    },
    metric="accuracy_cut",
    needs=f"{WEIGHTS} and GSM8K's files",
    note="The paper states neither the examples in the prompt, nor the decoding, nor the variant "
    "of Phi-3.",
)
PUBLISHED = (
    TABLE_1,
    TABLE_2,
    FIGURE_5,
    FIGURE_14,
    FIGURE_15,
    FIGURE_16,
    TABLE_5,
    FIGURE_17,
)
