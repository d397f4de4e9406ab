"""The verdicts of a confirmation, compared with the exploratory verdicts: VERDICTS.json.

A row is *confirmed* if the frozen rules give its exploratory verdict again, *reversed* if they give
the opposite one, *not confirmed* if they cannot tell, and *not yet run* while a run is missing. A
row that was open is *decided: held* or *decided: did not hold*, or *still open*.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from experiments.confirmation.freshness import what_was_fresh
from experiments.confirmation.plan import Plan, PlannedRow, item_of
from experiments.confirmation.runs import of_first_seeds, read_records
from experiments.ledger import multiplicity
from experiments.ledger.confirmed import (
    CONFIRMED,
    DECIDED,
    NOT_CONFIRMED,
    NOT_YET_RUN,
    ORDER,
    REVERSED,
    STILL_OPEN,
    Confirmed,
)
from experiments.ledger.item import Item, Paper
from experiments.ledger.ledger import judge_records
from experiments.ledger.record import Record
from experiments.ledger.record_numbers import read_side
from experiments.ledger.rules import OPEN, Finding, Rule, overall
from jaxformer.core.errors import UserError
from jaxformer.io.atomic_files import dumps, write_atomically
from jaxformer.io.run_folder import config_hash

NOTHING: Mapping = {}


def first_judge(text: str, rule: Rule, records: Mapping[str, Record]) -> Finding:
    """Judges a rule as the first plan fixed it."""
    return rule.judge(text, lambda side: read_side(records, side))


def judge(
    plan: Plan,
    papers: Mapping[str, Paper],
    folder: Path,
    explored: Mapping[tuple[str, str], Mapping[str, Record]] = NOTHING,
) -> list[Confirmed]:
    """Judges all rows of a plan by its frozen rules; reversed rows come first.

    Args:
      plan: the plan.
      papers: the claims.
      folder: the folder of the new records.
      explored: the records of results/ by cell, for each (paper, item). They tell numbers that
        were computed again from numbers that were sampled again, and decide nothing.
    """
    made = read_records(plan, folder, plan.runs)
    items = [item_with_replicas(item_of(papers, row), row) for row in plan.rows]
    records = [records_of_row(row, made) for row in plan.rows]
    problems: list[list[str]] = [[] for _ in plan.rows]
    findings = [
        judge_records(item, by_cell, lines, first_judge)
        for item, by_cell, lines in zip(items, records, problems, strict=True)
    ]
    corrected = multiplicity.with_q_values([*zip(items, findings, strict=True)])
    judged = []
    for row, item, by_cell, lines, judged_rules in zip(
        plan.rows, items, records, problems, corrected, strict=True
    ):
        confirmed = _confirmed(row, item, judged_rules, is_complete=row.runs <= made.keys())
        if confirmed.is_run:
            before = explored.get((row.paper, row.item), {})
            fresh = what_was_fresh(row, item, plan.runs, by_cell, before)
            confirmed = confirmed._replace(fresh=fresh, problems=tuple(lines))
        judged.append(confirmed)
    return sorted(judged, key=lambda row: ORDER.index(row.outcome))


def write(plan: Plan, judged: Sequence[Confirmed], file: Path) -> None:
    """Writes VERDICTS.json with the plan's hash and a checksum."""
    content = {"plan": plan.name, "hash": plan.hash, "rows": [row._asdict() for row in judged]}
    content |= {"sum": config_hash(content)}
    write_atomically(file, (dumps(content, indent=1) + "\n").encode())


def read(file: Path) -> tuple[str, list[Confirmed]]:
    """Reads VERDICTS.json; returns the plan's hash and the rows."""
    try:
        content = json.loads(file.read_text())
        rows = [
            Confirmed(**row | {"problems": tuple(row.get("problems", ()))})
            for row in content["rows"]
        ]
        is_unedited = content.pop("sum") == config_hash(content)
    except OSError:
        return "", []
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{file} has no verdicts of confirm.py: {error!r:.100}.") from None
    if not is_unedited:
        raise UserError(f"{file} was edited; `jaxformer confirm judge` writes it again.")
    return content["hash"], rows


def records_of_row(row: PlannedRow, records: Mapping[str, Record]) -> dict[str, Record]:
    """Returns the records of a row by cell, with as many seeds as the plan gives the row."""
    by_cell = {}
    for cell, names in row.cells.items():
        for replica, name in enumerate(names):
            if name in records:
                by_cell[_replica(cell, replica)] = of_first_seeds(records[name], row.seeds)
    return by_cell


def _replica(cell: str, number: int) -> str:
    return f"{cell}, replica {number + 1}" if number else cell


def _all_replicas(cells: Sequence[str], row: PlannedRow) -> tuple[str, ...]:
    """Returns the names of cells, each followed by the names of its replicas."""
    return tuple(_replica(cell, number) for cell in cells for number in range(len(row.cells[cell])))


def item_with_replicas(item: Item, row: PlannedRow) -> Item:
    """Returns the item whose means over splits of the data also include the replicas of each split.

    A replica repeats the run of a split with other data. The plan has replicas for a row that needs
    more splits than its item has.
    """
    rules: dict[str, Rule] = {}
    for text, rule in item.rules.items():
        sides = [side._replace(among=_all_replicas(side.among, row)) for side in rule.sides]
        rules[text] = rule._replace(left=sides[0], right=sides[1])
    return item._replace(rules=rules)


def _confirmed(
    row: PlannedRow, item: Item, findings: Sequence[Finding], is_complete: bool
) -> Confirmed:
    verdict = overall(findings)
    primary = next(f for f in findings if f.text == item.primary_rule)
    return Confirmed(
        row.paper,
        row.item,
        _outcome(row.verdict, verdict) if is_complete else NOT_YET_RUN,
        row.verdict,
        verdict,
        row.seeds,
        primary.text,
        primary.verdict,
        primary.q if primary.family == multiplicity.PRIMARY else None,
        {finding.text: (finding.verdict, finding.numbers) for finding in findings},
    )


def _outcome(before: str, after: str) -> str:
    if before == OPEN:
        return DECIDED.get(after, STILL_OPEN)
    if after == before:
        return CONFIRMED
    return NOT_CONFIRMED if after == OPEN else REVERSED
