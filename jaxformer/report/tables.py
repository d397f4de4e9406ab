"""Rows as CSV, and the metrics that a table shows."""

import csv
import io
from collections.abc import Iterable
from typing import Any

HIDDEN_METRICS = ("trained_share", "waiting_share", "share_of_matmul")


def shown_metrics(names: Iterable[str]) -> list[str]:
    """Returns the metrics without those of groups, unseen examples and costs.

    Returns all metrics if none is left.
    """
    names = list(names)

    def is_shown(name: str) -> bool:
        metric, slash, _ = name.partition("/")
        is_group = bool(slash) and metric in names
        return not (is_group or name.endswith("_unseen") or name in HIDDEN_METRICS)

    return list(filter(is_shown, names)) or names


def csv_text(rows: Iterable[Iterable[Any]]) -> str:
    """Returns rows as CSV. Cells are escaped so that no spreadsheet evaluates one as a formula."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(map(_escape_formula, row) for row in rows)
    return text.getvalue()


def _escape_formula(cell: Any) -> Any:
    """Prepends an apostrophe to a text that begins like a formula and is no number."""
    if not (isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r"))):
        return cell
    try:
        complex(cell)
    except ValueError:
        return cell if cell == "-" else f"'{cell}"
    return cell
