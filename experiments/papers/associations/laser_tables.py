"""Tables of a search for cuts: the best cuts, and the best layer for each kind of matrix."""

from typing import Any

from rich.table import Table

from experiments.cli.describe import show
from experiments.papers.associations import laser_search
from jaxformer.core.text_format import number

# The other keys of a row. Only a row without finite logits has a "reason".
NOT_SCORES = ("matrix", "fraction", "rank", "reason", "halves")


def print_rows(rows: list[dict[str, Any]], top: int, sort: str) -> None:
    """Prints the uncut model, then the best cuts. Cuts without finite logits come last.

    Args:
        rows: the rows of `laser_search.search`, one of which is the uncut model.
        top: the number of cuts.
        sort: the score by which cuts are sorted, one of `laser_search.SORTS`.
    """
    (uncut,) = [row for row in rows if not row["matrix"]]
    cuts = [row for row in rows if row["matrix"]]
    finite = [row for row in cuts if "reason" not in row]
    finite.sort(key=lambda row: -laser_search.rank_value(row, sort))
    cuts = finite + [row for row in cuts if "reason" in row]
    names = [name for name in uncut if name not in NOT_SCORES]
    table = Table("matrix", "fraction", "rank", *names, box=None, pad_edge=False)
    for row in [uncut, *cuts[:top]]:
        rank = str(row["rank"]) if row["matrix"] else "all"
        cells = [number(row[name]) for name in names]
        table.add_row(row["matrix"] or "nothing cut", number(row["fraction"]), rank, *cells)
    show(table)


def print_best_layers(rows: list[dict[str, Any]], sort: str) -> None:
    """Prints the best layer for each kind of matrix.

    One half of the prompts chooses the layer. The scores are those of the other half.
    """
    (uncut,) = [row for row in rows if not row["matrix"]]
    finite = [row for row in rows if row["matrix"] and "reason" not in row]
    if len(uncut["halves"]) < 2 or not finite:
        return
    names = [name for name in uncut["halves"][1] if name not in NOT_SCORES]
    table = Table("kind", "matrix", "fraction", *names, box=None, pad_edge=False)
    scored = {"": uncut} | laser_search.best_by_kind(finite, sort)
    for kind, row in scored.items():
        cells = [number(row["halves"][1].get(name)) for name in names]
        table.add_row(kind, row["matrix"] or "nothing cut", number(row["fraction"]), *cells)
    print(f"\nThe best layer by {sort} on every other prompt; scores on the remaining prompts:")
    show(table)
