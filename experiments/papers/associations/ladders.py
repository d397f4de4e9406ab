"""Ladders of the associations paper: noisy recall over three sizes, LASER over the rank."""

from experiments.ledger.item import Cell
from experiments.ledger.ladder import Ladder, Rung, over
from experiments.ledger.ladder_rule import Trend
from experiments.ledger.rules import Side, of

RECALL = Cell("configs/associations/recall.py:protocol=plateau,scale=small")
PUBLISHED = 0.98  # at d = 256, V = 65 and batches of 512
STAYS = (
    "The last feed-forward layer stores the noise: without it the answer has a probability of .98 "
    "at the paper's sizes, so it must stay likely as "
)


def recall(
    name: str, claim: str, parameter: str, rule: Trend, rungs: tuple[Rung, ...], **sizes
) -> Ladder:
    """The ladder of the answer's probability after the last feed-forward layer is cut out."""
    return Ladder(
        f"recall-{name}",
        "associations: Figure 3, to the plateau",
        claim,
        "probability of the answer without the last feed-forward layer",
        parameter,
        {"recall": RECALL},
        of("recall", "p_correct_without_f2"),
        Side("", "", 0.0),
        rule,
        rungs,
        published=PUBLISHED,
        limits=(0.0, 1.0),
        **sizes,
    )


def laser(model: str, label: str, minutes: float) -> Ladder:
    """The ladder of LASER on a published model: how much of one matrix is kept."""
    return Ladder(
        f"laser-rank-{model}",
        "associations: Figure 15, small models",
        f'Cutting one MLP to a small rank removes the frequent word "the" and keeps the answer '
        f"(Pythia, at .008 of the rank), so in {label} the fall of P(the) must shrink as more of "
        "the rank is kept.",
        "P(the) of the full model minus that of the cut one",
        "share of the rank that is kept",
        {
            model: Cell(
                f"configs/associations/chosen_layer.py:what=ioi,model={model},scale=paper",
                {"figure.sentences": "20"},
            )
        },
        Side("", "", 0.0),
        of(model, "p_the_gain/cut"),
        Trend("shrinks"),
        over(
            {0.01: minutes, 0.02: minutes, 0.04: minutes, 0.08: minutes},
            {"figure.fraction": "{size}"},
        ),
        paper_size=0.008,
        limits=(-1.0, 1.0),
        seen=(0.01,),
    )


LADDERS = (
    recall(
        "width",
        "Without the last feed-forward layer the answer has a probability of .98 at d = 256 and "
        ".91 at d = 64 in the ledger: if both are right, it grows with the width.",
        "d, width",
        Trend("grows"),
        over({32: 4, 64: 14.5, 128: 54, 256: 215}, {"model.width": "{size}"}, card=(256,)),
        paper_size=256,
        seen=(64,),
    ),
    recall(
        "symbols",
        f"{STAYS}there are more symbols.",
        "V, symbols",
        Trend("stays above", 0.8),
        over({16: 14.5, 32: 14.5, 64: 14.5}, {"task.n_symbols": "{size}"}),
        paper_size=65,
        seen=(32,),
    ),
    recall(
        "batch",
        f"{STAYS}batches grow.",
        "sequences in a batch",
        Trend("stays above", 0.8),
        over({32: 7, 128: 29, 512: 115}, {"train.batch_size": "{size}"}),
        paper_size=512,
        seen=(64,),
    ),
    laser("smollm2", "SmolLM2-135M", 8),
    laser("gemma3", "Gemma 3 270M", 10),
)
