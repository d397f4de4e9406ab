"""Claims of the recall figures at the paper's N, T and d, with a batch small enough for a CPU.

N is the number of symbols, T of tokens, and d the width. `checks` are further rules that decide
nothing. Rows with late=True have rules that were written after numbers of the row were known.
"""

from typing import Any

from experiments.ledger.item import SMALLER, Cell, Item
from experiments.ledger.rules import above
from experiments.papers.associations import claims_recall
from experiments.papers.associations.claims_recall import (
    GAIN_WITHOUT_F1,
    GAIN_WITHOUT_F2,
    Claim,
    attends_to_answer,
    noise_peaks,
    plateau,
)

# Overrides of configs at the paper's N, T and d.
SIZES = {
    "train.batch_size": "16",
    "train.steps": "2000",
    "n_seeds": "3",
    "optim.learning_rate": "0.01",
    "recall.probe_every": "200",
    "data.test_size": "128",
}
PAPER_SEQUENCES = 2000 * 512  # steps times batch size in Appendix B.6
SEQUENCES = int(SIZES["train.steps"]) * int(SIZES["train.batch_size"])
RATE = SIZES["optim.learning_rate"].removeprefix("0")
NOTE_SIZES = (
    f"N = 65, T = 256, d = 256, rate {RATE}. Our {int(SIZES['train.steps']):,} steps of "
    f"{SIZES['train.batch_size']} sequences are 1/{PAPER_SEQUENCES / SEQUENCES:.0f} of the paper's "
    "2,000 steps of 512. At rate .03 and 8 sequences a step, all three seeds diverged between "
    "steps 1,700 and 2,700 (not recorded)."
)
RUN = Cell("configs/associations/recall.py", SIZES, scales=("paper",))
LINEAR_F2 = Cell(
    "configs/associations/architectures.py:layers=mlp_linear", SIZES, scales=("paper",)
)


def at_size(figure: str, claim: Claim, metric: str, cell: Cell = RUN, **more: Any) -> Item:
    """Returns the row of a figure at the paper's sizes."""
    fields: dict[str, Any] = {"note": NOTE_SIZES, "metric": metric, "flags": (SMALLER,)} | more
    name = f"Figure {figure}, the paper's sizes"
    return Item(name, claim.sentence, {"run": cell}, claim.rules, **fields)


ATTENTION = Claim(
    "Trained with noise, the second layer attends to the token after the trigger and avoids the "
    "noise.",
    attends_to_answer(),
)
PEAK = Claim(
    "From scratch the probability of the noise is near 1 within a few steps and then near one "
    "half.",
    noise_peaks(),
)
AT_SIZE = (
    at_size(
        "3",
        claims_recall.SURGERY,
        "p_correct_without_f2",
        checks=plateau(GAIN_WITHOUT_F2),
        late=True,
    ),
    at_size("4", ATTENTION, "attention_difference", late=True),
    at_size(
        "7",
        claims_recall.memories(65),
        "recall_previous",
        checks=plateau("previous_token"),
        late=True,
    ),
    at_size("8", PEAK, "p_noise_peak", late=True),
    at_size(
        "10",
        claims_recall.BOTH_MLPS,
        "p_correct_without_f2",
        checks=plateau(GAIN_WITHOUT_F2),
        late=True,
    ),
    at_size(
        "11",
        claims_recall.F2_LINEAR,
        GAIN_WITHOUT_F1,
        LINEAR_F2,
        checks=plateau(GAIN_WITHOUT_F1, GAIN_WITHOUT_F2),
    ),
    Item(
        "Appendix B.5, the best cut",
        "Dropping F2 whole helps more than any truncation of its first matrix.",
        {"run": RUN},
        {
            f"dropping F2 helps more than its first matrix at {share} of the rank": above(
                GAIN_WITHOUT_F2, f"p_correct_gain/block_1/mlp/in@{share}"
            )
            for share in ("0.01", "0.05", "0.1", "0.2", "0.5")
        },
        metric=GAIN_WITHOUT_F2,
        note=NOTE_SIZES,
        flags=(SMALLER,),
        late=True,
    ),
)
