"""Selection of ledger rows by the name of a paper, a table or a figure."""

from collections.abc import Iterable, Sequence

from experiments.ledger.ledger import Row
from jaxformer.core.errors import UserError, did_you_mean


def select_rows(rows: Sequence[Row], name: str) -> list[Row]:
    """Returns the rows of a paper ("mixit") or of items that begin with `name` ("Table 2")."""
    pairs = matching_items([(row.paper.key, row.item.name) for row in rows], name)
    return [row for row in rows if (row.paper.key, row.item.name) in pairs]


def matching_items(pairs: Sequence[tuple[str, str]], name: str) -> list[tuple[str, str]]:
    """Returns the (paper, item) pairs that a name selects; raises UserError if there is none."""
    selected = [pair for pair in pairs if name in pair]
    if not selected:
        names = names_beginning_with([item for _, item in pairs], name)
        selected = [(paper, item) for paper, item in pairs if item in names]
    if not selected:
        papers = list(dict.fromkeys(paper for paper, _ in pairs))
        hint = did_you_mean(name, [*papers, *choices(item for _, item in pairs)])
        raise UserError(
            f"no paper, table or figure is called {name!r}.{hint} The papers are "
            f"{', '.join(papers)}; `--only PAPER` lists the items of a paper."
        )
    return selected


def names_beginning_with(names: Sequence[str], beginning: str) -> list[str]:
    """Returns the names that begin with `beginning`, in upper or lower case.

    A whole name selects itself alone: "Figure 1f" and not "Figure 1f, T = 32", which "Figure 1f,"
    selects. If `beginning` ends at the end of a word in some names, only these are returned:
    "Table 2" selects "Table 2, k-hop" and not "Table 20"; "Table 2, k" selects "Table 2, k-hop".
    """
    if whole := [name for name in names if name.lower() == beginning.lower()]:
        return whole
    matches = [name for name in names if beginning and name.lower().startswith(beginning.lower())]

    def ends_at_word(name: str) -> bool:
        next_character = name[len(beginning) : len(beginning) + 1]
        return not next_character.isalnum()

    return list(filter(ends_at_word, matches)) or matches


def choices(names: Iterable[str]) -> list[str]:
    """Returns the accepted choices: beginnings of names ("Table 2"), then whole names."""
    whole = list(dict.fromkeys(names))
    return list(dict.fromkeys([*beginnings(whole), *whole]))


def beginnings(names: Iterable[str]) -> list[str]:
    """Returns the names up to their first comma, without duplicates."""
    return list(dict.fromkeys(name.partition(",")[0] for name in names))
