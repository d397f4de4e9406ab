"""The five papers as data: what each table and figure claims, which runs test it, which rule.

    PAPERS["mixit"].items -> Item(name, claim, cells, rules, ..)

Nothing here trains or draws. A rule stands in the repository before the first number of its cells
was seen, unless `late` says that it came after. See `rules.py` for the verdicts.
"""

from experiments.papers import (
    associations,
    attention_paths,
    mixit,
    random_attention,
    two_failure_modes,
)
from experiments.papers.item import Cell, Item, Paper

PAPERS: dict[str, Paper] = {
    paper.key: paper
    for paper in (
        mixit.PAPER,
        random_attention.PAPER,
        two_failure_modes.PAPER,
        associations.PAPER,
        attention_paths.PAPER,
    )
}

__all__ = ["PAPERS", "Cell", "Item", "Paper"]
