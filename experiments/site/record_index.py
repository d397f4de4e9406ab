"""results/README.md: which record belongs to which table or figure.

The folders of results/ are those of the configs, because several rows of the ledger may share a
record. This page has the other view: paper, row, and the files of its runs.
"""

from collections.abc import Sequence
from urllib.parse import quote

from experiments.ledger.ledger import Row
from experiments.ledger.record import Record
from experiments.site.markdown import table, table_cell

PLACE = "results/README.md"
HEAD = """# Records

A record is a finished run: its config, seeds, metrics, times, versions and commit. It lies in the
folder of its config: `configs/mixit/retrieval.py` has its records in `mixit/retrieval`. The name
has the labels and fields that the command chose, then the hash of the config:

| file | contents |
|---|---|
| `NAME.json` | the record |
| `NAME.curves.csv` | training curves of all members, thinned |
| `NAME.png`, `NAME.csv` | the figure and its numbers |

Names are for people. A record is known by the hash and the config inside it, so a file that is
moved still counts. `jaxformer run ... --record` writes one; `jaxformer report --write` writes this
page, which has the records of each table and figure. The verdicts are in
[RESULTS.md](../RESULTS.md).
"""


def page(rows: Sequence[Row]) -> str:
    """The text of results/README.md."""
    parts = [HEAD.rstrip()]
    papers = dict.fromkeys(row.paper.key for row in rows)
    for key in papers:
        of_paper = [row for row in rows if row.paper.key == key and row.records]
        if of_paper:
            lines = [(table_cell(row.item.name), _links(row)) for row in of_paper]
            parts.append(f"## {of_paper[0].paper.title}")
            parts.append("\n".join(table(["table or figure", "records"], lines)))
    return "\n\n".join(parts) + "\n"


def _links(row: Row) -> str:
    return ", ".join(
        f"[{table_cell(cell)}]({_target(record)})" for cell, record in row.records.items()
    )


def _target(record: Record) -> str:
    return quote(record.where.removeprefix("results/"), safe="/=,")
