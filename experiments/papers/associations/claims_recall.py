"""Claims of the recall figures with their rules. Rows of several network sizes share them.

F1 and F2 are the feed-forward layers of the two blocks. All probabilities are on clean data.
Attention weights are those of the second layer, on the answer and on the noise after a trigger.
In a rule, a bare string and `of("", metric)` both name a metric of the row's only run.
"""

from collections.abc import Mapping
from typing import NamedTuple

from experiments.ledger.rules import Rule, above, near, of

# How much dropping a layer raises the probability of the answer.
GAIN_WITHOUT_F1 = "p_correct_gain_without_f1"
GAIN_WITHOUT_F2 = "p_correct_gain_without_f2"
PLATEAU_CHANGE = 0.05  # the largest change in the last quarter of training at a plateau


class Claim(NamedTuple):
    """A claim of the paper in one sentence, and the rules that test it."""

    sentence: str
    rules: Mapping[str, Rule]


def plateau(*metrics: str) -> dict[str, Rule]:
    """Returns a rule for each metric: it changes by at most .05 in the last quarter of training."""
    names = {
        GAIN_WITHOUT_F1: "the gain without F1",
        GAIN_WITHOUT_F2: "the gain without F2",
        "previous_token": "the previous-token score",
    }
    return {
        f"{names[metric]} is at its plateau": near(f"late_change/{metric}", 0.0, PLATEAU_CHANGE)
        for metric in metrics
    }


def attends_to_answer(cell: str = "", prefix: str = "") -> dict[str, Rule]:
    """Returns the rules that a cell's second layer attends to the answer, not to the noise."""
    return {
        f"{prefix}attention on the answer exceeds that on the noise by .3": above(
            of(cell, "attention_difference"), 0.3
        ),
        f"{prefix}attention on the noise is below .1": above(0.1, of(cell, "attention_noise")),
        f"{prefix}attention on the answer is above .8": above(of(cell, "attention_target"), 0.8),
    }


def noise_peaks(cell: str = "", prefix: str = "") -> dict[str, Rule]:
    """Returns the rules that the noise exceeds .9 within 20 steps and ends near .5 in a cell."""
    return {
        f"{prefix}the noise exceeds a probability of .9 within 20 steps": above(
            of(cell, "p_noise_peak"), 0.9
        ),
        f"{prefix}the noise ends at a probability of .5, within .1": near(
            of(cell, "p_noise"), 0.5, 0.1
        ),
    }


SURGERY = Claim(
    "On clean data the full model predicts the noise half of the time; without F2 the answer has "
    "probability .98.",
    {
        "the noise has a probability of .5, within .1": near("p_noise", 0.5, 0.1),
        "without F2 the answer is .2 likelier": above("p_correct_without_f2", "p_correct", by=0.2),
        "without F2 the noise has a probability below .1": above(0.1, "p_noise_without_f2"),
        "without F2 the answer has a probability of .98, within .02": near(
            "p_correct_without_f2", 0.98, 0.02
        ),
        "most seeds learn the noise before the answer": above("noise_first", 0.5),
    },
)
ATTENTION = Claim(
    "The second layer attends to the token after the trigger and avoids the noise; after clean "
    "training it attends to both alike.",
    {
        "fine-tuning widens the gap between attention on the answer and on the noise": above(
            of("finetune", "attention_difference"), of("finetune", "attention_difference_clean")
        ),
        "after clean training attention on the answer and on the noise agree within .1": near(
            of("finetune", "attention_difference_clean"), 0.0, 0.1
        ),
    }
    | attends_to_answer("recall", "trained with noise: ")
    | attends_to_answer("finetune", "fine-tuned: "),
)


def memories(symbols: int) -> Claim:
    """Returns the claim on what F2, the value matrix and layer 1 store about all symbols."""
    return Claim(
        "F2 maps tokens to the noise, the values copy tokens, and the first layer attends to the "
        "previous token.",
        {
            "for the trigger F2 gives the noise the largest logit": above("margin_f2", 0.0),
            "F2 gives the noise the largest logit for more than 90 % of tokens": above(
                of("", "recall_noise", trials=symbols), 0.9
            ),
            "layer 1 scores the previous token highest at more than 90 % of positions": above(
                "recall_previous", 0.9
            ),
            "values copy more than 90 % of tokens": above(
                of("", "recall_values", trials=symbols), 0.9
            ),
        },
    )


PEAK = Claim(
    "The probability of the noise is near 1 within a few steps and then near one half, from "
    "scratch and in fine-tuning.",
    noise_peaks("recall", "from scratch ") | noise_peaks("finetune", "in fine-tuning "),
)
BOTH_MLPS = Claim(
    "F1 and F2 are MLPs: without F2 the answer has a probability near 1; without F1 the noise is "
    "likelier than in the full model, and likelier than not.",
    {
        "without F2 the answer has a probability above .95": above("p_correct_without_f2", 0.95),
        "without F1 the noise is likelier than in the full model": above(
            0.0, "p_noise_drop_without_f1"
        ),
        "without F1 the noise has a probability above .5": above("p_noise_without_f1", 0.5),
    },
)
F2_LINEAR = Claim(
    "F1 is an MLP, F2 is linear: dropping either helps, and the test loss without F1 is below "
    "that without F2.",
    {
        "without F2 the answer is likelier": above(GAIN_WITHOUT_F2, 0.0),
        "without F1 the answer is likelier": above(GAIN_WITHOUT_F1, 0.0),
        "the loss without F1 is below that without F2": above("loss_without_f2", "loss_without_f1"),
    },
)
F1_LINEAR_RULES = {
    "without F2 the answer is .1 likelier": above(GAIN_WITHOUT_F2, 0.1),
    "without F1 the answer is less likely": above(0.0, GAIN_WITHOUT_F1),
}
