"""Selection of ledger rows by the name of a paper, a table or a figure."""

from collections.abc import Iterable, Sequence

from experiments.ledger.ledger import Row
from jaxformer.core.errors import UserError, did_you_mean


def chosen(rows: Sequence[Row], name: str) -> list[Row]:
    """Returns the rows of a paper ("mixit"), or whose name begins with `name` ("Table 2")."""
    wanted = asked_for([(row.paper.key, row.item.name) for row in rows], name)
    return [row for row in rows if (row.paper.key, row.item.name) in wanted]


def asked_for(known: Sequence[tuple[str, str]], name: str) -> list[tuple[str, str]]:
    """Returns the (paper, item) pairs that a name selects; raises UserError if there is none."""
    found = [pair for pair in known if name in pair]
    if not found:
        names = named([item for _, item in known], name)
        found = [(paper, item) for paper, item in known if item in names]
    if not found:
        papers = {paper: None for paper, _ in known}
        hint = did_you_mean(name, [*papers, *possible(item for _, item in known)])
        raise UserError(
            f"no paper, table or figure is called {name!r}.{hint} The papers are "
            f"{', '.join(papers)}; `--only PAPER` lists what one has."
        )
    return found


def named(names: Sequence[str], asked: str) -> list[str]:
    """Returns the names that begin with these whole words, else with these letters.

    "Table 2" is "Table 2, k-hop" and not "Table 20"; "Table 2, k" is "Table 2, k-hop" as well.
    """
    begin = [name for name in names if asked and name.lower().startswith(asked.lower())]
    return [name for name in begin if not name[len(asked) :][:1].isalnum()] or begin


def possible(names: Iterable[str]) -> list[str]:
    """Returns the possible choices: beginnings of names ("Table 2"), then whole names."""
    whole = list(dict.fromkeys(names))
    return list(dict.fromkeys([*beginnings(whole), *whole]))


def beginnings(names: Iterable[str]) -> list[str]:
    """Returns the names up to their first comma, without duplicates."""
    return list(dict.fromkeys(name.partition(",")[0] for name in names))
