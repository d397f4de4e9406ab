"""Sentences about all rows: each paper's items by verdict, corrected decisions, late rules."""

from collections import Counter
from collections.abc import Sequence

from experiments.ledger import headline
from experiments.ledger.confirmed import RECOMPUTED
from experiments.ledger.item import EASY, OURS, OUTSIDE
from experiments.ledger.ledger import Row
from experiments.ledger.multiplicity import PRIMARY, SECONDARY
from experiments.ledger.rules import HELD, MISSING, NOT_HELD, NOT_RUN, OPEN
from jaxformer.stats.differences import LEVEL

LEADS = {
    HELD: "Held",
    NOT_HELD: "Did not hold",
    OPEN: "Cannot be told yet",
    NOT_RUN: "Not run",
    MISSING: "Not implemented",
}


def distinct_claims(rows: Sequence[Row]) -> list[Row]:
    """Returns the rows that count as claims of papers, with each distinct claim once."""
    return [row for row in rows if row.item.is_counted]


def groups(rows: Sequence[Row], paper: str) -> dict[str, list[tuple[Row, str]]]:
    """Returns a paper's tables and figures by verdict, then those that are not counted.

    Returns:
      {heading: [(row, note)]}. The note is the verdict of the row in brackets, or "" if the heading
      states the verdict.
    """
    paper_rows = [row for row in rows if row.paper.key == paper]
    claimed = distinct_claims(paper_rows)
    own_questions = [row for row in paper_rows if OURS in row.item.flags]
    others = [row for row in paper_rows if not (row.item.is_counted or OURS in row.item.flags)]
    grouped = {
        head: [(row, "") for row in claimed if headline.verdict(row) == verdict]
        for verdict, head in LEADS.items()
    }
    grouped["Our own questions"] = [(row, f" ({headline.verdict(row)})") for row in own_questions]
    grouped["Not counted"] = [(row, f" ({headline.verdict(row)})") for row in others]
    return {head: members for head, members in grouped.items() if members}


def lead(rows: Sequence[Row], paper: str) -> str:
    """Returns the names of a paper's tables and figures by verdict."""
    named = {
        head: "; ".join(f"{row.item.name}{verdict}" for row, verdict in members)
        for head, members in groups(rows, paper).items()
    }
    return " ".join(f"{head}: {names}." for head, names in named.items())


def decisions_after_correction(rows: Sequence[Row]) -> str:
    """Returns how many decisions stand after the correction for the number of rules."""
    decided = [f for row in rows for f in row.findings if f.verdict in (HELD, NOT_HELD)]
    if not decided:
        return "No rule is decided yet."
    parts = []
    for family, method in ((PRIMARY, "Holm's"), (SECONDARY, "Benjamini and Hochberg's")):
        tested = [finding for finding in decided if finding.family == family]
        n_kept = sum(finding.q <= 1 - LEVEL for finding in tested)
        parts.append(f"{method} method keeps {n_kept} of {len(tested)} {family} rules")
    exact = sum(finding.p == 0 for finding in decided)
    return (
        f"{len(decided)} rules are decided, each at 95 %; {exact} of them compare exact numbers. "
        f"With 5 % for each family, {' and '.join(parts)}. None of this counts the choice of rules "
        "after numbers had been seen."
    )


def verdict_counts(rows: Sequence[Row]) -> str:
    """Returns the number of claims by verdict: of fresh runs first, then of those explored only."""
    claims = distinct_claims(rows)
    decided = (HELD, NOT_HELD, OPEN)
    fresh = [row for row in claims if headline.confirmation(row)]
    explored = [row for row in claims if row.verdict in decided and row not in fresh]
    if not fresh:
        return f"{_by_verdict(explored)} None has been run again with fresh seeds."
    constants = sum(headline.fresh(row) == RECOMPUTED for row in fresh)
    return (
        f"Fresh runs, with rules fixed before: {_by_verdict(fresh)} ({constants} are constants, "
        f"recomputed.) {len(explored)} more have been explored only."
    )


def _by_verdict(claims: Sequence[Row]) -> str:
    held, failed, open_ = (
        sum(headline.verdict(row) == verdict for row in claims)
        for verdict in (HELD, NOT_HELD, OPEN)
    )
    return (
        f"of {held + failed + open_} claims {held} held, {failed} did not hold and {open_} are "
        "open."
    )


def failures(rows: Sequence[Row]) -> str:
    """Returns how many claims did not hold for which reason; "" if all held."""
    failed = [row for row in distinct_claims(rows) if headline.verdict(row) == NOT_HELD]
    counts = Counter(map(headline.kind, failed))
    main = sum(headline.primary_verdict(row) == HELD for row in failed)
    if not failed:
        return ""
    parts = [f"{counts[kind]} {way}" for kind, way in headline.WAYS.items() if counts[kind]]
    return (
        f"All {len(failed)} claims that did not hold, in fresh runs or in the first ones, failed "
        f"{'; '.join(parts)}. In {main} of the {len(failed)} the main point held and a detail did "
        "not."
    )


def in_one_line(rows: Sequence[Row]) -> str:
    """Returns what an author would sign: the claims that new runs judged, by verdict and kind.

    Claims whose numbers cannot be drawn anew, such as constants, are counted apart.
    """
    judged = [row for row in distinct_claims(rows) if headline.confirmation(row)]
    if not judged:
        return verdict_counts(rows)
    redrawn = [row for row in judged if headline.is_redrawn(row)]
    exact = [row for row in judged if row not in redrawn]
    sentences = [
        f"Rules were fixed first and runs made afterwards. Of {len(redrawn)} claims with new seeds "
        f"or samples {_by_kind(redrawn)}."
    ]
    if exact:
        sentences.append(
            f"Of {len(exact)} whose numbers are constants or a single sample {_by_kind(exact)}."
        )
    decided = (HELD, NOT_HELD, OPEN)
    explored = [r for r in distinct_claims(rows) if r.verdict in decided and r not in judged]
    sentences.append(f"{len(explored)} more have been explored only.")
    return " ".join(sentences)


def _by_kind(claims: Sequence[Row]) -> str:
    """Returns "32 held, 3 fail as stated (two of them in a proof or a side remark), .."."""
    verdicts = Counter(map(headline.verdict, claims))
    kinds = Counter(headline.kind(row) for row in claims if headline.verdict(row) == NOT_HELD)
    parts = [f"{verdicts[HELD]} held"]
    if as_stated := sum(kinds[kind] for kind in headline.AS_STATED):
        remarks = kinds[headline.REMARK]
        of_them = "" if remarks == as_stated else f"{remarks} of them "
        where = f" ({of_them}in a proof or a side remark)" if remarks else ""
        parts.append(f"{as_stated} {_verb('fail', as_stated)} as stated{where}")
    if misprints := kinds[headline.MISPRINT]:
        parts.append(f"{misprints} {_verb('have', misprints)} a misprint")
    if open_ := verdicts[OPEN]:
        parts.append(f"{open_} {_verb('are', open_)} open")
    others = verdicts[NOT_HELD] - as_stated - misprints
    if others:
        parts.append(
            f"{others} did not hold at other sizes, in a limit, or by a threshold or reading of "
            "ours"
        )
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]


def _verb(plural: str, number: int) -> str:
    singular = {"fail": "fails", "have": "has", "are": "is"}
    return plural if number != 1 else singular[plural]


def late_rules(rows: Sequence[Row]) -> str:
    """Returns how many verdicts have rules that were written after their numbers."""
    decided = (HELD, NOT_HELD, OPEN)
    judged = [row.item for row in distinct_claims(rows) if row.verdict in decided]
    return (
        f"{sum(i.late for i in judged)} of the {len(judged)} claims with a verdict have rules that "
        "were written after some of their numbers were known; the results pages flag them."
        f"{not_counted(rows)}"
    )


def not_counted(rows: Sequence[Row]) -> str:
    """Returns how many rows the counts leave out, and why."""
    reasons = {
        "repeat a claim": sum(bool(row.item.repeats or row.item.merged) for row in rows),
        "are questions of our own": sum(OURS in row.item.flags for row in rows),
        "are outside the conditions of the claim or too easy for a rule to fail": sum(
            not (row.item.repeats or row.item.merged) and bool({OUTSIDE, EASY} & {*row.item.flags})
            for row in rows
        ),
    }
    parts = [f"{n} {reason}" for reason, n in reasons.items() if n]
    return f" Rows that are not counted: {'; '.join(parts)}." if parts else ""
