"""The five papers as data: what each table and figure claims, and which runs and rule test it.

    PAPERS["mixit"].items -> Item(name, claim, cells, rules, ..)

Importing the claims trains and draws nothing. A cell is one run of an item. A rule was written
before the first number of its cells was known, unless the item is marked `late`. See
`experiments/ledger/rules.py` for the verdicts.
"""

import functools

from experiments.ledger.item import Cell, Item, Paper, checked
from experiments.papers.associations import claims_finetuning, claims_samples
from experiments.papers.associations.claims import PAPER as ASSOCIATIONS
from experiments.papers.attention_paths import claims_weights
from experiments.papers.attention_paths.claims import PAPER as ATTENTION_PATHS
from experiments.papers.failures import with_failures
from experiments.papers.mixit import claims_collapse, claims_induction, claims_language
from experiments.papers.mixit.claims import PAPER as MIXIT
from experiments.papers.mixit.claims_version_b import PAPER as RANDOM_ATTENTION
from experiments.papers.primary_rules import with_primary_rules
from experiments.papers.two_failure_modes import claims_initialisation, claims_weight_laws
from experiments.papers.two_failure_modes.claims import PAPER as TWO_FAILURE_MODES


def with_items(paper: Paper, items: tuple[Item, ...]) -> Paper:
    """Returns the paper with more items at its end. Their first rule is the primary one."""
    return paper._replace(items=(*paper.items, *items))


_ALL_PAPERS = (
    with_items(MIXIT, (*claims_language.OF_VERSION_A, *claims_induction.OF_VERSION_A)),
    with_items(RANDOM_ATTENTION, claims_collapse.OF_VERSION_B),
    with_items(TWO_FAILURE_MODES, (*claims_initialisation.ITEMS, *claims_weight_laws.ITEMS)),
    with_items(ASSOCIATIONS, (*claims_samples.ITEMS, *claims_finetuning.ITEMS)),
    with_items(ATTENTION_PATHS, claims_weights.ITEMS),
)


def __getattr__(name: str) -> dict[str, Paper]:
    """Returns PAPERS. Its rules are checked at the first use, which takes a second."""
    if name != "PAPERS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _checked_papers()


@functools.cache
def _checked_papers() -> dict[str, Paper]:
    return {paper.key: checked(with_failures(with_primary_rules(paper))) for paper in _ALL_PAPERS}


__all__ = ["PAPERS", "Cell", "Item", "Paper"]
