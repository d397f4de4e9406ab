"""A claim about Theorem 2.1 that both versions of the MixiT paper make in Section 2.

The row is listed once, under version B. "The equation" is the SDE of the theorem's limit. `above(a,
b)` states a > b. `checks` do not decide the verdict.
"""

from experiments.ledger.item import Cell, Item
from experiments.ledger.rules import above, near, of

PARALLEL_CORRELATION = 0.99  # |correlation| above which two tokens count as alike
# log10 of the ratio of the gradient at the input to that at the output; below it gradients vanish.
VANISHING_GRADIENT = -1.0


def correlation(source: str, tau: float):
    """Returns one side of a rule: the median |correlation| of two tokens at depth / width = tau."""
    return of("", f"correlation/{source}/tau={tau:g}")


NO_RANK_COLLAPSE = Item(
    "Section 2, rank collapse",
    "The limit of Theorem 2.1 rules out rank collapse and vanishing gradients.",
    {"collapse": Cell("configs/mixit/rank_collapse.py")},
    {
        **{
            f"at depth / width = {tau} two tokens of {source_name} have a correlation below .99": (
                above(PARALLEL_CORRELATION, correlation(source, tau))
            )
            for tau in (1, 3, 10)
            for source, source_name in (("equation", "the equation"), ("networks", "networks"))
        },
        **{
            f"at depth / width = {tau} the gradient at the input is above a tenth of that at the "
            "output": above(f"log10_gradient/tau={tau}", VANISHING_GRADIENT)
            for tau in (1, 3, 10)
        },
    },
    metric="correlation/equation/tau=10",
    note="Judged by tau = depth / width: at a fixed tau of order 1 the sentence stands, and at "
    "tau = 10 it fails, for the equation and for networks. The verdict is that of tau = 10, "
    "because the sentence names no limit. The paper's networks have 12 layers of width 512, tau = "
    ".02, where correlations have hardly changed. Correlations are medians of the absolute value. "
    "When the first rules were written, the medians of the equation were known and the gradients "
    "were not. docs/notes/rank_collapse.md explains both.",
    checks={
        "at depth / width = .02 the correlation is its initial .5, within .05": near(
            correlation("networks", 0.02), 0.5, 0.05
        ),
        "at depth / width = 3 networks of width 50 have the correlation of the equation, within "
        ".02": near(correlation("networks", 3), correlation("equation", 3), 0.02),
    },
    late=True,
)

OF_VERSION_B = (NO_RANK_COLLAPSE,)
