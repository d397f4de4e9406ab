"""Sentences about all rows: a lead for each paper, false decisions by chance, late rules."""

from collections.abc import Sequence

from experiments.ledger.item import OURS
from experiments.ledger.ledger import Row
from experiments.ledger.rules import HELD, MISSING, NOT_HELD, NOT_RUN, OPEN
from experiments.ledger.statistics import FALSE_DECISION_RATE

LEADS = {
    HELD: "Held",
    NOT_HELD: "Did not hold",
    OPEN: "Cannot be told yet",
    NOT_RUN: "Not run",
    MISSING: "Not implemented",
}


def of_the_papers(rows: Sequence[Row]) -> list[Row]:
    """Returns the rows of claims of papers, without our own questions."""
    return [row for row in rows if OURS not in row.item.flags]


def lead(rows: Sequence[Row], paper: str) -> str:
    """Returns the names of a paper's tables and figures by verdict."""
    own = [row for row in rows if row.paper.key == paper]
    claimed = of_the_papers(own)
    named = {word: [row.item.name for row in claimed if row.verdict == word] for word in LEADS}
    parts = [f"{LEADS[word]}: {'; '.join(names)}." for word, names in named.items() if names]
    asked = [f"{row.item.name} ({row.verdict})" for row in own if OURS in row.item.flags]
    return " ".join([*parts, *[f"Our own questions: {'; '.join(asked)}."] * bool(asked)])


def luck(rows: Sequence[Row]) -> str:
    """Returns how many decided rules would be wrong if every true value were at its border."""
    decided = sum(f.verdict in (HELD, NOT_HELD) for row in rows for f in row.findings)
    if not decided:
        return "No rule is decided yet."
    wrong = round(decided * FALSE_DECISION_RATE)
    if not wrong:
        subject = "1 rule is" if decided == 1 else f"{decided} rules are"
        return f"{subject} decided, at 95 %: too few to expect one that is wrong by luck."
    return (
        f"{decided} rules are decided, each at 95 %. At worst, if every true difference lay "
        f"exactly at its border, about {wrong} of them would be decided wrongly by luck; most lie "
        "far from it."
    )


def late(rows: Sequence[Row]) -> str:
    """Returns how many verdicts have rules that were written after their numbers."""
    decided = (HELD, NOT_HELD, OPEN)
    judged = [row.item for row in of_the_papers(rows) if row.verdict in decided]
    return (
        f"{sum(i.late for i in judged)} of the {len(judged)} rows with a verdict have rules that "
        "were written after some of their numbers were known; the results pages flag them."
        f"{apart(rows)}"
    )


def apart(rows: Sequence[Row]) -> str:
    """Returns how many of our own questions the counts leave out."""
    asked = len(rows) - len(of_the_papers(rows))
    if not asked:
        return ""
    subject = "One question of our own is" if asked == 1 else f"{asked} questions of our own are"
    return f" {subject} not counted with the claims."
