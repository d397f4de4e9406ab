"""The rows of the ledger for the site: read once while Sphinx builds it."""

import functools
from pathlib import Path

from experiments.confirmation import published
from experiments.ledger.ledger import Row, ledger
from experiments.ledger.read import load
from experiments.papers import PAPERS

ROOT = Path(__file__).parents[1]


@functools.cache
def rows() -> dict[tuple[str, str], Row]:
    """The rows by paper and name, in the order of the papers."""
    judged = ledger(PAPERS, load(ROOT / "results")[0])
    judged = published.with_confirmations(judged, ROOT / "confirmation")
    return {(row.paper.key, row.item.name): row for row in judged}


@functools.cache
def rows_by_hash() -> dict[str, tuple[Row, str]]:
    """{hash of a config: (the first row with a run of it, the cell)}; rows with a rule first."""
    found: dict[str, tuple[Row, str]] = {}
    for row in sorted(rows().values(), key=lambda row: not row.findings):
        for cell, record in row.records.items():
            found.setdefault(record.config_hash, (row, cell))
    return found
