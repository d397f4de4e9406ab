"""The confirmations of the ledger's rows as Markdown."""

from collections import Counter
from collections.abc import Sequence

from experiments.confirmation.published import Confirmations
from experiments.ledger.confirmed import (
    CONFIRMED,
    DECIDED,
    NOT_YET_RUN,
    ORDER,
    REVERSED,
    Confirmed,
)
from experiments.ledger.ledger import Row
from experiments.ledger.rules import HELD, NOT_HELD, OPEN

COUNTED = (CONFIRMED, REVERSED)  # outcomes with a column in the table of papers


def outcome(row: Row, confirmations: Confirmations) -> str:
    """Returns the outcome of a row's confirmation; "-" if none is planned."""
    confirmed = confirmations.get((row.paper.key, row.item.name))
    return confirmed.outcome if confirmed else "-"


def short_text(row: Confirmed) -> str:
    """Returns the outcome of a confirmation as a short text, such as "confirmed, 5 new seeds"."""
    if row.outcome == NOT_YET_RUN:
        return "not yet run with new seeds"
    if row.outcome in DECIDED.values():  # the text follows the verdict "cannot tell yet"
        return f"first runs uncertain; {row.verdict} with {_seeds(row)}"
    return f"{row.outcome}, {_seeds(row)}"


def counts(rows: Sequence[Row], confirmations: Confirmations) -> list[str]:
    """Returns the numbers of confirmed and of reversed rows as table cells."""
    outcomes = Counter(outcome(row, confirmations) for row in rows)
    return [str(outcomes[name] or "-") for name in COUNTED]


def summary(confirmations: Confirmations) -> str:
    """Returns a sentence with the number of rows by outcome."""
    outcomes = Counter(row.outcome for row in confirmations.values())
    parts = ", ".join(f"{outcomes[name]} {name}" for name in ORDER if outcomes[name])
    return (
        f"Confirmation by fresh seeds, with rules that were frozen before: {parts}, of "
        f"{len(confirmations)} planned rows."
    )


def section(confirmations: Confirmations, link) -> list[str]:
    """Returns the list of confirmations, reversed ones first; [] while none was run.

    Args:
      confirmations: the confirmations of all planned rows.
      link: a function that returns the link to a row from its paper and name.
    """
    lines = [
        f"- **{row.outcome}**: {link(row.paper, row.item)}: {_change(row)} ({_seeds(row)})."
        for row in confirmations.values()
        if row.outcome != NOT_YET_RUN
    ]
    return ["## Confirmations", "", *lines, ""] if lines else []


def detail(row: Row, confirmations: Confirmations) -> str:
    """Returns the confirmation of a row as a paragraph of its section."""
    confirmed = confirmations.get((row.paper.key, row.item.name))
    if confirmed is None:
        is_decided = row.verdict in (HELD, NOT_HELD, OPEN)
        return "Confirmation: not planned." if is_decided else ""
    if confirmed.outcome == NOT_YET_RUN:
        return f"Confirmation: {NOT_YET_RUN}."
    numbers = confirmed.rules.get(confirmed.primary, ("", ""))[1]
    primary = ", ".join(filter(None, (confirmed.primary_verdict, numbers)))
    return (
        f"Confirmation: **{confirmed.outcome}**, {_change(confirmed)} ({_seeds(confirmed)}). "
        f"Primary rule, {confirmed.primary}: {primary}."
    )


def _change(row: Confirmed) -> str:
    return f"explored {row.exploratory}, new runs {row.verdict}"


def _seeds(row: Confirmed) -> str:
    return f"{row.seeds} new seeds"
