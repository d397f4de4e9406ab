"""Claims that heads, width and the law of the weights do not matter at initialisation."""

from experiments.ledger.item import Item, cell_of
from experiments.ledger.rules import near

LAWS = {"laws": cell_of("two_failure_modes", "weight_laws")}
PANELS = ((12, "beta = 1.8"), (60, "beta = 0.02"))
CONDENSED = "crossing_beta"  # the beta at which the entropy of a row is half of ln T

HYPERPARAMETERS = Item(
    "Section 1, beta_c and hyperparameters",
    "The critical variance of queries and keys does not depend on the model's hyperparameters.",
    LAWS,
    {
        f"attention of {heads} heads condenses at the beta of 1 head, within .1": near(
            f"{CONDENSED}/width=256/heads={heads}", f"{CONDENSED}/width=256/heads=1", 0.1
        )
        for heads in (16, 4)
    }
    | {
        "attention condenses at the same beta at widths 64 and 1,024, within .1": near(
            f"{CONDENSED}/width=64/heads=1", f"{CONDENSED}/width=1024/heads=1", 0.1
        )
    },
    metric=f"{CONDENSED}/width=256/heads=16",
    note="Attention condenses at the beta where the entropy of a row of T = 512 tokens is half of "
    "ln T. The heads are those of the first block, which does not depend on depth and MLPs. They "
    "have 16 to 1,024 dimensions. The tolerance is ours.",
)

LAW = Item(
    "Section 2, the law of the weights",
    "The results depend on the variance of the weights alone, and not on the details of their "
    "distribution.",
    LAWS,
    {
        f"{layers} layers at {beta}: the cosine of tokens with {name} weights is that with normal "
        "weights, within .05": near(
            f"cosine/layers={layers}/law={law}", f"cosine/layers={layers}/law=normal", 0.05
        )
        for layers, beta in PANELS
        for law, name in (("uniform", "uniform"), ("signs", "binary"))
    }
    | {
        f"with {name} weights attention condenses at the beta of normal weights, within .05": near(
            f"{CONDENSED}/law={law}", f"{CONDENSED}/law=normal", 0.05
        )
        for law, name in (("uniform", "uniform"), ("signs", "binary"))
    },
    metric="cosine/layers=60/law=signs",
    note="Uniform and binary entries have the variance of the normal ones. Encoders of width 256 "
    "have alpha_SA = 1 (12 layers) and 1.5 (60 layers), as in Figures 1d and 1e. With a third of "
    "the variance the theory has cosines of .04 and .21 in place of .20 and .94.",
)

ITEMS = (HYPERPARAMETERS, LAW)
