"""The recall figures at the paper's rate and to a plateau.

Rules were written before these runs, but for rows that are marked as late. d = 64, N = 32, T = 64,
a rate of .03, 4,000 steps of 64 sequences, five seeds; the last rows have the paper's N, T and d.
`the plateau is reached` says whether the last quarter of training still moved a number.
"""

import functools
import itertools
from typing import Any

from experiments.ledger.item import SMALLER, Cell, Item, cell_of
from experiments.ledger.rules import Rule, above, near, of

config = functools.partial(cell_of, "associations")
PLATEAU = "protocol=plateau"
RECALL = {"recall": config("recall", PLATEAU)}
FINETUNE = {"finetune": config("finetune", PLATEAU)}
GAIN_1, GAIN_2 = (f"p_correct_gain_without_f{i}" for i in (1, 2))
STILL = 0.05  # what the last quarter may add on a plateau
NOTE = "d = 64, N = 32, T = 64, rate .03, 4,000 steps of 64 sequences."
TUNED = (
    "Fine-tuning: rate .01, 3,000 clean steps, then 5,000 noisy ones. At .03 three of five seeds "
    "diverge when the noise comes (Appendix B.6, stability)."
)
# The paper's N, T and d, with a batch that a processor can carry. B.6 has 2,000 steps of 512.
SIZES = {
    "train.batch_size": "16",
    "train.steps": "2000",
    "n_seeds": "3",
    "optim.learning_rate": "0.01",
    "recall.probe_every": "200",
    "data.test_size": "128",
}


SEEN = int(SIZES["train.steps"]) * int(SIZES["train.batch_size"])
RATE = SIZES["optim.learning_rate"].removeprefix("0")
NOTE_SIZES = (
    f"N = 65, T = 256, d = 256, rate {RATE}. {int(SIZES['train.steps']):,} steps of "
    f"{SIZES['train.batch_size']} sequences: 1/{2000 * 512 / SEEN:.0f} of the paper's 2,000 steps "
    "of 512. At .03, with 8 sequences, all three seeds diverged between steps 1,700 and 2,700 (not "
    "recorded)."
)


def architecture(layers: str) -> dict[str, Cell]:
    return {"run": config("architectures", f"layers={layers},{PLATEAU}")}


def still(metric: str) -> Rule:
    return near(f"late_change/{metric}", 0.0, STILL)


def item(figure: str, claim: str, cells, rules, metric: str, **more: Any) -> Item:
    fields: dict[str, Any] = {"note": NOTE, "metric": metric} | more
    return Item(f"Figure {figure}, to the plateau", claim, cells, rules, **fields)


def at_size(figure: str, claim: str, cell: Cell, rules, metric: str, **more: Any) -> Item:
    fields: dict[str, Any] = {"note": NOTE_SIZES, "metric": metric, "flags": (SMALLER,)} | more
    return Item(f"Figure {figure}, the paper's sizes", claim, {"run": cell}, rules, **fields)


RUN = Cell("configs/associations/recall.py", SIZES, scales=("paper",))
LINEAR = Cell("configs/associations/architectures.py:layers=mlp_linear", SIZES, scales=("paper",))
AT_SIZE = (
    at_size(
        "3",
        "Without F2 the model is right (0.98).",
        RUN,
        {"without F2 correct with 0.98": near("p_correct_without_f2", 0.98, 0.02)},
        "p_correct_without_f2",
        checks={"the plateau is reached": still(GAIN_2)},
    ),
    at_size(
        "7",
        "The first layer attends to the previous token.",
        RUN,
        {"layer 1 finds the previous token": above("recall_previous", 0.9)},
        "recall_previous",
        checks={"the plateau is reached": still("previous_token")},
    ),
    at_size(
        "10",
        "F1, F2 both MLPs: without F2 correct near 1, without F1 the noise.",
        RUN,
        {
            "without F2 correct near 1": above("p_correct_without_f2", 0.95),
            "without F1 the noise is likelier than before": above(0.0, "p_noise_drop_without_f1"),
            "without F1 the noise is likelier than not": above("p_noise_without_f1", 0.5),
        },
        "p_correct_without_f2",
        checks={"the plateau is reached": still(GAIN_2)},
        late=True,
    ),
    at_size(
        "11",
        "F1 an MLP, F2 linear: both cuts help, and that of F1 has the lower test loss.",
        LINEAR,
        {
            "without F2 better": above(GAIN_2, 0.0),
            "without F1 better": above(GAIN_1, 0.0),
            "without F1 the lower loss": above("loss_without_f2", "loss_without_f1"),
        },
        GAIN_1,
        checks={"the plateau is reached, F1": still(GAIN_1), "F2": still(GAIN_2)},
    ),
)
OUT = "p_correct_gain/block_0/attn/out"
NONE = architecture("none_none")["run"]
CUT = {
    "Figure 10": RECALL["recall"],
    "Figure 11": architecture("mlp_linear")["run"],
    "Figure 12": architecture("linear_mlp")["run"],
}
TO_THE_PLATEAU = (
    item(
        "3",
        "The full model says the noise half of the time on clean data; without F2 it is right "
        "(0.98).",
        RECALL,
        {
            "the noise half of the time": near("p_noise", 0.5, 0.1),
            "without F2 the answer is likelier": above("p_correct_without_f2", "p_correct", by=0.2),
            "without F2 correct with 0.98": near("p_correct_without_f2", 0.98, 0.02),
            "the noise is learned first": above("noise_first", 0.5),
        },
        "p_correct_without_f2",
        baseline="p_correct_always_noise",
        checks={"the plateau is reached": still(GAIN_2)},
    ),
    item(
        "4",
        "Attention of the second layer looks at what follows the trigger and avoids the noise; "
        "after clean training it looks at both alike.",
        RECALL | FINETUNE,
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
        "attention_difference",
        note=f"{NOTE} {TUNED}",
        late=True,
    ),
    item(
        "7",
        "F2 maps tokens to the noise; values copy; the first layer attends to the previous token.",
        RECALL,
        {
            "F2 says the noise for the trigger": above("margin_f2", 0.0),
            "F2 says the noise for nearly all tokens": above("recall_noise", 0.9),
            "layer 1 finds the previous token": above("recall_previous", 0.9),
            "values copy": above("recall_values", 0.9),
        },
        "recall_previous",
        baseline="p_correct_uniform",
        checks={
            "in the authors' probe, which sees later positions too": above(
                "previous_token_unmasked", 0.9
            ),
            "the plateau is reached": still("previous_token"),
        },
        late=True,
    ),
    item(
        "8",
        "The noise is near 1 within steps and then nearly one half, from scratch and in "
        "fine-tuning.",
        RECALL | FINETUNE,
        {
            "from scratch: near 1 at first": above(of("recall", "p_noise_peak"), 0.9),
            "from scratch: one half at the end": near(of("recall", "p_noise"), 0.5, 0.1),
            "fine-tuned: near 1 at first": above(of("finetune", "p_noise_peak"), 0.9),
            "fine-tuned: one half at the end": near(of("finetune", "p_noise"), 0.5, 0.1),
        },
        "p_noise_peak",
        note=f"{NOTE} {TUNED} The peak is that of 20 steps at this rate.",
        late=True,
    ),
    item(
        "10",
        "F1, F2 both MLPs: without F2 correct near 1, without F1 the noise.",
        RECALL,
        {
            "without F2 correct near 1": above("p_correct_without_f2", 0.95),
            "without F1 the noise is likelier than before": above(0.0, "p_noise_drop_without_f1"),
            "without F1 the noise is likelier than not": above("p_noise_without_f1", 0.5),
        },
        "p_correct_without_f2",
        late=True,
    ),
    item(
        "11",
        "F1 an MLP, F2 linear: both cuts help, and that of F1 has the lower test loss.",
        architecture("mlp_linear"),
        {
            "without F2 better": above(GAIN_2, 0.0),
            "without F1 better": above(GAIN_1, 0.0),
            "without F1 the lower loss": above("loss_without_f2", "loss_without_f1"),
        },
        GAIN_1,
        checks={"the plateau is reached, F1": still(GAIN_1), "F2": still(GAIN_2)},
    ),
    item(
        "12",
        "F1 linear, F2 an MLP: only the cut of F2 helps; that of F1 makes the noise likelier.",
        architecture("linear_mlp"),
        {
            "without F2 better": above(GAIN_2, 0.1),
            "without F1 worse": above(0.0, GAIN_1),
            "without F1 the noise is likelier": above(0.0, "p_noise_drop_without_f1"),
        },
        GAIN_2,
    ),
    item(
        "13",
        "No feed-forward layers: of all shares of the rank of layer 1's Wo 5 % is the best. It "
        "helps less than dropping a feed-forward layer does, and dropping Wo whole destroys.",
        {"none": NONE} | CUT,
        {
            "5 % helps": above(of("none", f"{OUT}@0.05"), 0.0),
            "5 % helps more than 10 %": above(of("none", f"{OUT}@0.05"), of("none", f"{OUT}@0.1")),
            "no Wo at all destroys": above(0.0, of("none", f"{OUT}@0")),
        }
        | {
            f"{cell}: dropping {part} helps more than 5 % does": above(
                of(cell, gain), of("none", f"{OUT}@0.05")
            )
            for cell, part, gain in (
                ("Figure 10", "F2", GAIN_2),
                ("Figure 11", "F1", GAIN_1),
                ("Figure 11", "F2", GAIN_2),
                ("Figure 12", "F2", GAIN_2),
            )
        },
        f"{OUT}@0.05",
        note=f"{NOTE} At d = 64, 5 % are 3 of 64 directions and 1 % is none, so that the paper's "
        "1 % is not tested here.",
        checks={
            "Figure 11: dropping F1 helps more than 10 % does": above(
                of("Figure 11", GAIN_1), of("none", f"{OUT}@0.1")
            ),
        },
        late=True,
    ),
    *AT_SIZE,
)

FEWER = (
    "Of a fixed number of parameters, the fewer are in MLPs, the higher is the loss on bigrams: "
    "any share of MLPs beats none."
)


def finer(loss: str, shares: tuple[str, ...]) -> dict[str, Rule]:
    """The order of the shares, beside whether each beats none."""
    return {
        f"{loss.removeprefix('loss/')}: a share of {more} beats {less}": above(
            f"{loss}/mlp={less}", f"{loss}/mlp={more}"
        )
        for less, more in itertools.pairwise(shares)
    }


WIDER = {
    "allocation": Cell(
        "configs/associations/allocation.py",
        {
            "figure.totals": "800000,",
            "figure.multipliers": "0,1,2,4,8,16",
            "figure.learning_rates": "0.01,0.03,0.05,0.1,0.2",
        },
        scales=("small",),
    )
}
SHARES = ("0.40", "0.57", "0.73", "0.84", "0.91")
WIDE_ENOUGH = Item(
    "Figure 6, wide enough",
    FEWER,
    WIDER,
    {
        f"a share of {share} beats none": above(f"gain/total=800000/mlp={share}", 0.0)
        for share in SHARES
    },
    metric="gain/total=800000/mlp=0.91",
    note="800,000 parameters leave a width of 107 or more at every share, above the 65 symbols. "
    "The best rates are inside the grid: .05 at a share of .91, .1 at all others.",
    checks=finer("loss/total=800000", SHARES),
)
