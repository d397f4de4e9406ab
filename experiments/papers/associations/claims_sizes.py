"""The recall figures at the paper's N, T and d, with a batch that a processor can carry."""

from typing import Any

from experiments.ledger.item import SMALLER, Cell, Item
from experiments.ledger.rules import above, near
from experiments.papers.associations import claims_recall as recall
from experiments.papers.associations.claims_recall import GAIN_1, GAIN_2, still

# B.6 has 2,000 steps of 512 sequences.
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
RUN = Cell("configs/associations/recall.py", SIZES, scales=("paper",))
LINEAR = Cell("configs/associations/architectures.py:layers=mlp_linear", SIZES, scales=("paper",))


def at_size(figure: str, claim: str, cell: Cell, rules, metric: str, **more: Any) -> Item:
    fields: dict[str, Any] = {"note": NOTE_SIZES, "metric": metric, "flags": (SMALLER,)} | more
    return Item(f"Figure {figure}, the paper's sizes", claim, {"run": cell}, rules, **fields)


AT_SIZE = (
    at_size(
        "3",
        recall.HALF_THEN_RIGHT,
        RUN,
        recall.SURGERY,
        "p_correct_without_f2",
        checks={"the plateau is reached": still(GAIN_2)},
        late=True,
    ),
    at_size(
        "4",
        "Trained with noise, attention of the second layer looks at what follows the trigger and "
        "avoids the noise.",
        RUN,
        {
            "it avoids the noise": above("attention_difference", 0.3),
            "the noise has less than .1": above(0.1, "attention_noise"),
            "the answer has more than .8": above("attention_target", 0.8),
        },
        "attention_difference",
        late=True,
    ),
    at_size(
        "7",
        recall.MAPPED,
        RUN,
        recall.MEMORIES,
        "recall_previous",
        checks={"the plateau is reached": still("previous_token")},
        late=True,
    ),
    at_size(
        "8",
        "From scratch the noise is near 1 within steps and then nearly one half.",
        RUN,
        {
            "near 1 at first": above("p_noise_peak", 0.9),
            "one half at the end": near("p_noise", 0.5, 0.1),
        },
        "p_noise_peak",
        late=True,
    ),
    at_size(
        "10",
        recall.BOTH_MLPS,
        RUN,
        recall.LIKELY,
        "p_correct_without_f2",
        checks={"the plateau is reached": still(GAIN_2)},
        late=True,
    ),
    at_size(
        "11",
        recall.BOTH_CUTS,
        LINEAR,
        recall.EITHER,
        GAIN_1,
        checks={"the plateau is reached, F1": still(GAIN_1), "F2": still(GAIN_2)},
    ),
    Item(
        "Appendix B.5, the best cut",
        "Of all cuts of F2's first matrix dropping F2 whole is the best.",
        {"run": RUN},
        {
            f"better than {share} of the rank": above(
                GAIN_2, f"p_correct_gain/block_1/mlp/in@{share}"
            )
            for share in ("0.01", "0.05", "0.1", "0.2", "0.5")
        },
        metric=GAIN_2,
        note=NOTE_SIZES,
        flags=(SMALLER,),
        late=True,
    ),
)
