"""What the rows say together: a lead for each paper, and what many rules do by luck."""

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
    """Without the rows that ask what no paper claims: those are not counted with its claims."""
    return [row for row in rows if OURS not in row.item.flags]


def lead(rows: Sequence[Row], paper: str) -> str:
    """What stands and what falls of a paper, by the names of its tables and figures."""
    own = [row for row in rows if row.paper.key == paper]
    claimed = of_the_papers(own)
    named = {word: [row.item.name for row in claimed if row.verdict == word] for word in LEADS}
    parts = [f"{LEADS[word]}: {'; '.join(names)}." for word, names in named.items() if names]
    asked = [f"{row.item.name} ({row.verdict})" for row in own if OURS in row.item.flags]
    return " ".join([*parts, *[f"Our own questions: {'; '.join(asked)}."] * bool(asked)])


def luck(rows: Sequence[Row]) -> str:
    """How many decided rules would be wrong by luck if every truth lay at its rule's edge."""
    decided = sum(f.verdict in (HELD, NOT_HELD) for row in rows for f in row.findings)
    if not decided:
        return "No rule is decided yet."
    wrong = round(decided * FALSE_DECISION_RATE)
    if not wrong:
        told = "1 rule is" if decided == 1 else f"{decided} rules are"
        return f"{told} decided, at 95 %: too few to expect one that is wrong by luck."
    return (
        f"{decided} rules are decided, each at 95 %. At worst, if every true difference lay "
        f"exactly at its border, about {wrong} of them would be decided wrongly by luck; most lie "
        "far from it."
    )


def late(rows: Sequence[Row]) -> str:
    """How many verdicts rest on rules that came after their numbers."""
    decided = (HELD, NOT_HELD, OPEN)
    judged = [row.item for row in of_the_papers(rows) if row.verdict in decided]
    return (
        f"Of the {len(judged)} rows with a verdict, {sum(i.late for i in judged)} "
        "have rules that were written after numbers of theirs had been seen; RESULTS.md marks "
        f"them.{apart(rows)}"
    )


def apart(rows: Sequence[Row]) -> str:
    """How many rows the counts of claims leave out."""
    asked = len(rows) - len(of_the_papers(rows))
    if not asked:
        return ""
    told = "One question of our own is" if asked == 1 else f"{asked} questions of our own are"
    return f" {told} not counted with the claims."
