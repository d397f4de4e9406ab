"""Ladders of "Two failure modes": regimes over depth, the critical alpha over length."""

from experiments.ledger.item import Cell
from experiments.ledger.ladder import Ladder, over
from experiments.ledger.ladder_rule import Trend
from experiments.ledger.rules import of, trivial

# Half the batch of the config, so that 32 layers take an hour.
BATCH = {"train.batch_size": "32"}
CURVES = {
    name: Cell(f"configs/text/masked.py:curve={curve},scale=small", BATCH)
    for name, curve in {
        "trainable": "trainable_2",
        "rank collapse": "rank_collapse",
        "entropy collapse": "entropy_1.5",
    }.items()
}


def regime(collapse: str, paper_size: float, seen: tuple[float, ...]) -> Ladder:
    """The ladder of what a collapsed start costs at the end of training, against depth."""
    return Ladder(
        f"regimes-depth-{collapse.split()[0]}",
        "two_failure_modes: Figure 1f",
        f"Encoders that start in {collapse} fail to train, so their loss must stay above that of "
        f"a trainable start as they get deeper; the paper has {paper_size} layers.",
        f"loss after training, {collapse} minus trainable, nats a token",
        "layers",
        {name: CURVES[name] for name in ("trainable", collapse)},
        of(collapse, "loss"),
        of("trainable", "loss"),
        Trend("stays above", 0.1),
        over({8: 13.5, 16: 23.5, 32: 44, 64: 88}, {"model.layers": "{size}"}, card=(64,)),
        paper_size=paper_size,
        seen=seen,
    )


CRITICAL_ALPHA = Ladder(
    "alpha-length",
    "two_failure_modes: Section 1, alpha_c and depth",
    "The critical skip strength is computed for infinitely many tokens, so what networks of 24 "
    "layers need beyond it must shrink as the text gets longer; the paper has 128 tokens.",
    "critical alpha of networks minus that of the limit of many tokens",
    "T, tokens",
    {
        "networks": Cell(
            "configs/two_failure_modes/critical_alpha.py:scale=small",
            {"figure.depths": "(24,)", "figure.widths": "(128,)", "figure.length": "64"},
        )
    },
    of("networks", "alpha_c_24"),
    trivial("networks", "limit_alpha_c_24"),
    Trend("shrinks"),
    over({16: 1, 32: 1, 64: 1.5, 128: 2.5}, {"figure.length": "{size}"}),
    paper_size=128,
    seen=(16, 32, 64),
)

LADDERS = (
    regime("rank collapse", 60, (8,)),
    regime("entropy collapse", 12, (8,)),
    CRITICAL_ALPHA,
)
