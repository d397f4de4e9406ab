"""Version B: Is random attention sufficient for sequence modeling? Shares tables with A."""

from experiments.papers import mixit
from experiments.papers.item import Cell, Item, Paper
from experiments.papers.rules import above, of


def same(item: Item, name: str) -> Item:
    """A table of version A under its name in version B."""
    return item._replace(name=name)


COVARIANCE = Item(
    "Table 6",
    "The covariance between tokens grows with depth in a random transformer and stays small in "
    "MixiT (L = 2 to 32).",
    {
        "paper": Cell("configs/mixit/covariance_depth.py:preset=paper"),
        "authors": Cell("configs/mixit/covariance_depth.py:preset=authors"),
    },
    (
        above(
            "paper's text: the raw covariance grows", of("paper", "verdict/covariance_grows"), 0.5
        ),
        above(
            "paper's text: MixiT below the random transformer at every depth",
            of("paper", "verdict/covariance_mixit_below"),
            0.5,
        ),
        above(
            "authors' code: the raw covariance grows",
            of("authors", "verdict/covariance_grows"),
            0.5,
        ),
        above(
            "authors' code: MixiT below the random transformer at every depth",
            of("authors", "verdict/covariance_mixit_below"),
            0.5,
        ),
    ),
    metric="verdict/covariance_grows",
    note="The printed row is not monotone, so only growth from 2 to 32 and the order at each depth "
    "count. Our text is a chain of bigrams; theirs is WikiText.",
    late=True,
)

PAPER = Paper(
    "random_attention",
    "Is random attention sufficient for sequence modeling? Disentangling trainable components",
    "version B of arXiv 2506.01115, anonymous",
    (
        same(mixit.HOPS, "Table 1, k-hop"),
        same(mixit.RETRIEVAL, "Table 1, retrieval"),
        same(mixit.FIGURE_2, "Figure 2"),
        *(same(item, item.name.replace("Table 3", "Table 2")) for item in mixit.LANGUAGE),
        same(mixit.ADDITION, "Table 3, decimal addition"),
        same(mixit.DYCK, "Table 3, Dyck-1"),
        same(mixit.MODULAR, "Table 3, modular addition"),
        same(mixit.MEMORIZATION, "Table 3, memorisation"),
        same(mixit.YELP, "Table 3, Yelp polarity"),
        mixit.BITS,
        mixit.FIGURE_3,
        same(mixit.DEPTH, "Table 5"),
        COVARIANCE,
        *(same(item, item.name.replace("Table 5", "Table 9")) for item in mixit.HEAD_SWEEPS),
        mixit.SDE,
        same(mixit.THROUGHPUT, "Appendix D, throughput"),
    ),
)
