"""The lines below "recorded as ..": which claims the new record belongs to, and what they say now.

Without them the author of a rerun has a file in results/ and no hint where its verdict is.
"""

from collections.abc import Mapping
from typing import Any

from experiments.cli.flags import WORKSPACE
from experiments.confirmation import published
from experiments.ledger import headline, requirement
from experiments.ledger.item import Item
from experiments.ledger.ledger import Row, cell_key, ledger
from experiments.ledger.read import load
from experiments.ledger.record import key
from experiments.papers import PAPERS

MAX_ROWS = 6  # a run of `standard` belongs to a dozen claims


def verdict_lines(config: Mapping[str, Any], config_file: str) -> list[str]:
    """Verdict and next command of each claim with a run of this config; [] if there is none.

    Args:
        config: the config of the record.
        config_file: its "FILE:ARGUMENTS".
    """
    wanted = {
        (paper.key, item.name)
        for paper in PAPERS.values()
        for item in paper.items
        if _has_run(item, key(config), config_file.partition(":")[0])
    }
    if not wanted:
        return []
    # All records, because verdicts are corrected for the number of claims that were judged.
    rows = published.with_confirmations(
        ledger(PAPERS, load(WORKSPACE / "results")[0]), WORKSPACE / "confirmation"
    )
    rows = [row for row in rows if (row.paper.key, row.item.name) in wanted]
    lines = [_line(row) for row in rows[:MAX_ROWS]]
    lines += [f"and {len(rows) - MAX_ROWS} more rows"] if len(rows) > MAX_ROWS else []
    return [*lines, f'next: jaxformer report --only="{rows[0].item.name}"']


def _has_run(item: Item, wanted: str, file: str) -> bool:
    return any(
        cell_key(cell, scale) == wanted
        for cell in item.cells.values()
        if cell.config.partition(":")[0] == file
        for scale in cell.scales
    )


def _line(row: Row) -> str:
    note = f" ({note})" if (note := headline.note(row)) else ""
    numbers = f": {text}" if (text := requirement.decisive_text(row)) else ""
    missing = len(row.item.cells) - len(row.records)
    waiting = f"; {missing} of its {len(row.item.cells)} runs are missing" if missing else ""
    return f"{row.item.name} ({row.paper.key}): {headline.verdict(row)}{note}{numbers}{waiting}"
