"""The confirmations of the ledger's rows as Markdown."""

from collections import Counter
from collections.abc import Sequence

from experiments.ledger import headline
from experiments.ledger.confirmed import CONFIRMED, NOT_CONFIRMED, ORDER, RECOMPUTED, REVERSED
from experiments.ledger.judging import is_lost_to_correction
from experiments.ledger.ledger import Row
from experiments.ledger.rules import HELD, NOT_HELD, OPEN, overall

# The order of the list of confirmations: the outcomes of `ORDER`, then constants.
LISTED = (*ORDER, "recomputed")


FIRST_RUNS = "the verdict is that of the first runs."


def _lost(row: Row) -> str:
    """Says that the correction for many rules left a claim open; "" if it did not."""
    if overall(row.findings) == row.verdict or not is_lost_to_correction(row.item, row.findings):
        return ""
    return (
        f" Alone its rules say {overall(row.findings)!r}, but the primary one does not survive the "
        "correction for the number of claims."
    )


def planned(rows: Sequence[Row]) -> list[Row]:
    """Returns the rows that a plan has; those whose verdict was reversed come first."""
    rows = [row for row in rows if row.confirmed]
    return sorted(rows, key=lambda row: LISTED.index(headline.outcome(row)))


def summary(rows: Sequence[Row]) -> str:
    """Returns sentences with the number of planned rows by outcome; "" without a plan."""
    in_plan = planned(rows)
    if not in_plan:
        return ""
    outcomes = Counter(map(headline.outcome, in_plan))
    parts = ", ".join(f"{n} {name}" for name in LISTED if (n := outcomes[name]))
    tested = Counter(
        row.confirmed.outcome for row in in_plan if row.confirmed and row.confirmed.has_fresh_error
    )
    again = {name: tested[name] for name in (CONFIRMED, NOT_CONFIRMED, REVERSED)}
    return (
        f"Rules were fixed first and new runs made afterwards for {len(in_plan)} rows: {parts}. "
        f"Of {sum(again.values())} rows that had been decided and have an error, "
        f"{again[CONFIRMED]} have the same verdict again, {again[NOT_CONFIRMED]} cannot tell and "
        f"{again[REVERSED]} have the opposite one."
    )


def section(rows: Sequence[Row], link) -> list[str]:
    """Returns the list of confirmations, reversed ones first; [] while none was run.

    Args:
      rows: the rows of the ledger.
      link: a function that returns the link to a row from its paper and name.
    """
    lines = [
        f"- **{headline.verdict(row)}**: {link(row.paper.key, row.item.name)} "
        f"({headline.outcome(row)}; {headline.note(row)})."
        for row in planned(rows)
        if headline.confirmation(row)
    ]
    return ["## Confirmations", "", *lines, ""] if lines else []


def detail(row: Row) -> str:
    """Returns what was fresh behind the verdict of a row, as a paragraph of its section."""
    confirmed = headline.confirmation(row)
    if confirmed is None:
        if row.confirmed:
            return f"Planned, but not yet run with new seeds: {FIRST_RUNS}{_lost(row)}"
        is_decided = row.verdict in (HELD, NOT_HELD, OPEN)
        return f"In no plan: {FIRST_RUNS}{_lost(row)}" if is_decided else ""
    if confirmed.fresh == RECOMPUTED:
        what = "No number of it is random, so that computing it again tests nothing"
    else:
        what = f"Rules fixed first, then {confirmed.fresh}: {confirmed.outcome}"
    problems = " ".join(f"But {line}" for line in confirmed.problems)
    return f"{what}. The first runs: {confirmed.exploratory}. {problems}".rstrip()
