"""Tables of statements as HTML: rows that a reader can search and copy, failures first.

The figures of such runs are pictures of a table, which suit a manuscript and nobody else.
"""

import csv
import io
from collections.abc import Sequence
from html import escape
from pathlib import Path

from jaxformer.report import html

ORDER = ("fails", "holds, corrected constant", "holds")
KINDS = {"<": "below", ">": "above", "=": "equal to"}


def table(file: Path) -> str:
    """The table of a record's statements as HTML; "" if its arrays have none.

    Args:
      file: the CSV of a record, results/NAME.csv
    """
    if not file.exists():
        return ""
    arrays: dict[str, list[list[str]]] = {}
    for name, _, *values in list(csv.reader(io.StringIO(file.read_text())))[1:]:
        arrays.setdefault(name, []).append(values)
    if "statements" not in arrays:
        return ""
    (statements,) = arrays["statements"]
    if "verdicts" in arrays:
        heads = ("statement", "paper", "corrected", "measured", "verdict")
        rows = zip(statements, *zip(*arrays["values"]), *arrays["verdicts"])
    else:
        heads = ("statement", "found", "required", "verdict")
        (kinds,), (limits,), (found,) = (arrays[name] for name in ("kinds", "limits", "found"))
        required = [f"{_in_words(kind)} {limit}" for kind, limit in zip(kinds, limits)]
        verdicts = ["holds" if text == "True" else "fails" for text in arrays["holds"][0]]
        rows = zip(statements, found, required, verdicts)
    ordered = sorted(rows, key=lambda row: ORDER.index(row[-1]))
    return html.table(heads, [_cells(row) for row in ordered], kind="statements")


def _cells(row: Sequence[str]) -> list[str]:
    *texts, verdict = ("none" if text == "nan" else escape(text) for text in row)
    colour = {"fails": "did-not-hold", "holds": "held"}.get(verdict, "cannot-tell-yet")
    return [*texts, f'<span class="verdict {colour}">{verdict}</span>']


def _in_words(kind: str) -> str:
    """A relation without the quote that keeps "=" from being a formula in a spreadsheet."""
    return KINDS[kind.removeprefix("'")]
