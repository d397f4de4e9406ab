"""Prints the rows whose verdict changes if their margins and tolerances are halved or doubled.

    python -m experiments.site.tolerances

A margin or a tolerance is the number `by` of a rule: left > right + by, or |left - right| <= by.
Constants on one side of a rule, such as an accuracy of 95 %, are not changed.
"""

import sys
from collections.abc import Mapping, Sequence

from experiments.ledger import read, write
from experiments.ledger.item import Item, Paper
from experiments.ledger.ledger import Row, ledger
from experiments.ledger.record import Record
from experiments.papers import PAPERS
from jaxformer.runtime.command_line import Parser, command

FACTORS = (0.5, 2.0)


@command
def main(argv: Sequence[str]) -> int:
    Parser(__doc__).parse_args(argv)
    records, _ = read.load(write.RESULTS)
    changed = rows_that_change(PAPERS, records)
    for name, verdicts in changed.items():
        as_is, halved, doubled = verdicts
        print(f"{name}: {as_is}; if margins are halved, {halved}; if they are doubled, {doubled}")
    print(f"{len(changed)} rows depend on a margin or a tolerance within a factor of 2")
    return 0


def rows_that_change(
    papers: Mapping[str, Paper], records: list[Record]
) -> dict[str, tuple[str, str, str]]:
    """Returns three verdicts of each row whose verdict changes, by the name of the row.

    The verdicts are those with `by` unchanged, halved and doubled.
    """
    ledgers = [ledger(_scaled(papers, factor), records) for factor in (1.0, *FACTORS)]
    verdicts = {_name(rows[0]): tuple(row.verdict for row in rows) for rows in zip(*ledgers)}
    return {name: values for name, values in verdicts.items() if len({*values}) > 1}


def _scaled(papers: Mapping[str, Paper], factor: float) -> dict[str, Paper]:
    def scaled(item: Item) -> Item:
        rules = {text: rule._replace(by=factor * rule.by) for text, rule in item.rules.items()}
        return item._replace(rules=rules)

    return {
        key: paper._replace(items=tuple(map(scaled, paper.items))) for key, paper in papers.items()
    }


def _name(row: Row) -> str:
    return f"{row.paper.key} {row.item.name}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
