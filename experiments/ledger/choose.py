"""Rows of the ledger by what a user calls them: a paper, a table, or both."""

from collections.abc import Sequence

from experiments.ledger.ledger import Row
from jaxformer.errors import UserError, did_you_mean


def chosen(rows: Sequence[Row], name: str) -> list[Row]:
    """Those of a paper ("mixit"), or whose name is this or begins with it ("Table 2")."""
    found = [row for row in rows if name in (row.paper.key, row.item.name)]
    found = found or [row for row in rows if _begins(row.item.name, name)]
    if not found:
        papers = {row.paper.key: None for row in rows}
        names = {row.item.name: None for row in rows}
        hint = did_you_mean(name, [*papers, *names])
        raise UserError(
            f"no paper, table or figure is called {name!r}.{hint} The papers are "
            f"{', '.join(papers)}; `--only PAPER` lists what one has."
        )
    return found


def _begins(name: str, with_: str) -> bool:
    """ "Table 2" begins "Table 2, k-hop" and not "Table 20"."""
    rest = name[len(with_) :]
    return bool(with_) and name.lower().startswith(with_.lower()) and not rest[:1].isalnum()
