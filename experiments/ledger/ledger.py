"""The ledger: the records, findings and verdict of each table and figure of each paper."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from experiments.cli import flags
from experiments.ledger import judging, multiplicity
from experiments.ledger.confirmed import Confirmed
from experiments.ledger.item import (
    EDGE,
    EXTENDED,
    LATE,
    SMALLER,
    UNTRAINED,
    Cell,
    Item,
    Paper,
    config_string,
)
from experiments.ledger.record import Record, address, at_the_edge, key
from experiments.ledger.rules import (
    DEFINITION,
    DIVERGED,
    MISSING,
    NOT_RUN,
    Finding,
    Rule,
    overall,
)
from jaxformer.core.errors import UserError, unknown
from jaxformer.stats.members import diverged

JudgeRule = Callable[[str, Rule, Mapping[str, Record]], Finding]


class Row(NamedTuple):
    """One line of the ledger."""

    paper: Paper
    item: Item
    records: dict[str, Record]  # by cell; a cell that was not run is absent
    findings: list[Finding]
    verdict: str
    problems: list[str]  # two records of a cell, a missing metric, a missing config
    stale: Mapping[str, Record] = {}  # by cell; their configs have changed: they decide nothing
    checks: tuple[Finding, ...] = ()  # additional checks, which do not decide the verdict
    flags: tuple[str, ...] = ()
    confirmed: Confirmed | None = None  # None: no plan has the row, or no plan was read


def ledger(
    papers: Mapping[str, Paper], records: list[Record], also: tuple[str, ...] = ()
) -> list[Row]:
    """Returns a row for each table and figure, in the order of the papers.

    Args:
      papers: by key.
      records: all of results/. A stale record is shown and decides nothing.
      also: scales that count for a cell without a record of its own scales.
    """
    by_key: dict[str, list[Record]] = {}
    stale: dict[tuple, Record] = {}
    for record in records:
        if record.stale:
            stale[record.address] = record
        else:
            by_key.setdefault(record.key, []).append(record)
    rows = [
        _mark_stale(judge(paper, item, by_key, also), stale, also)
        for paper in papers.values()
        for item in paper.items
    ]
    findings = multiplicity.with_q_values([(_counted(row.item), row.findings) for row in rows])
    return [_decided(row, judged) for row, judged in zip(rows, findings, strict=True)]


def _counted(item: Item) -> Item:
    """The item as the correction counts it: rows that were merged with another do not count."""
    return item._replace(repeats=item.repeats or item.merged)


def _decided(row: Row, findings: list[Finding]) -> Row:
    """The row with corrected findings, which may leave its claim open."""
    is_judged = row.verdict == overall(findings)  # neither a definition nor not implemented
    verdict = judging.verdict(row.item, findings) if is_judged else row.verdict
    return row._replace(findings=findings, verdict=verdict)


def judge(
    paper: Paper, item: Item, by_key: Mapping[str, list[Record]], also: tuple[str, ...] = ()
) -> Row:
    """Returns the row of an item.

    Args:
      paper: the paper of the item.
      item: a table or a figure.
      by_key: the records that are not stale, by `Record.key`.
      also: scales that count for a cell without a record of its own scales.
    """
    records, problems = {}, []
    sides = [side for rule in item.rules.values() for side in rule.sides]
    # In cells with a rule about divergence, seeds that diverge are no problem.
    expected_to_diverge = {side.cell for side in sides if side.metric == DIVERGED}
    for name, cell in item.cells.items():
        for scale in dict.fromkeys((*cell.scales, *also)):
            try:
                candidates = by_key.get(cell_key(cell, scale), [])
            except UserError as error:
                problems.append(f"{name}: {error}")
                break
            if candidates:
                n = len(candidates)
                records[name] = max(candidates, key=lambda record: len(record.seeds))
                if n > 1:
                    problems.append(f"{name}: {n} records; the one of most seeds is shown.")
                if name not in expected_to_diverge:
                    problems += _divergence_problem(name, records[name])
                break
    findings = judge_records(item, records, problems)
    checks = tuple(_judged(records, text, rule, problems) for text, rule in item.checks.items())
    baselines = {name for record in records.values() for name in record.baselines}
    if records and item.baseline and item.baseline not in baselines:
        problems.append(str(unknown("baseline", item.baseline, baselines)))
    verdict = overall(findings)
    if item.defines:
        verdict = DEFINITION
    elif item.needs and not item.rules:
        verdict = MISSING
    row_flags = _flags_of(item, [*records.values()])
    return Row(paper, item, records, findings, verdict, problems, checks=checks, flags=row_flags)


def _flags_of(item: Item, records: list[Record]) -> tuple[str, ...]:
    """Returns the flags of an item and those that follow from its records."""
    sides = [side for rule in item.rules.values() for side in rule.sides]
    is_sampled = any(not side.is_exact for side in sides if side.metric)
    has_added_seeds = any("n_seeds" in record.overrides for record in records)
    applies = {
        SMALLER: is_sampled and any(record.scale != "paper" for record in records),
        LATE: item.late and bool(item.rules),
        UNTRAINED: any(record.alarms for record in records),
        EXTENDED: has_added_seeds and not any(map(_sets_seeds, item.cells.values())),
        EDGE: any(map(at_the_edge, records)),
    }
    return (*item.flags, *(flag for flag, is_true in applies.items() if is_true))


def judge_records(
    item: Item,
    records: Mapping[str, Record],
    problems: list[str] | None = None,
    judge_rule: JudgeRule = judging.judge_rule,
) -> list[Finding]:
    """Judges each rule of an item by the records of its cells; appends to `problems`."""
    problems = [] if problems is None else problems
    return [_judged(records, text, rule, problems, judge_rule) for text, rule in item.rules.items()]


def _sets_seeds(cell: Cell) -> bool:
    """Returns whether a cell fixed its number of seeds before its run."""
    return "n_seeds" in cell.overrides


def _divergence_problem(name: str, record: Record) -> list[str]:
    """Returns a line if some seeds diverged: the remaining seeds are no fair sample."""
    seeds = diverged(record.members)
    if not seeds:
        return []
    which = f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
    return [
        f"{name}: {which} of {len(record.seeds)} diverged; the means of the others prove nothing."
    ]


def _judged(
    records: Mapping[str, Record],
    text: str,
    rule: Rule,
    problems: list[str],
    judge_rule: JudgeRule = judging.judge_rule,
) -> Finding:
    scales = {records[c].scale for side in rule.sides for c in side.cells if c in records}
    if len(scales) > 1:
        problems.append(f"{text}: compares runs of scales {' and '.join(sorted(scales))}.")
    try:
        return judge_rule(text, rule, records)
    except KeyError as error:
        problems.append(f"no number {error} in its record.")
        return Finding(text, NOT_RUN, "")


def cell_key(cell: Cell, scale: str) -> str:
    """Returns the key of a cell's record, which does not depend on the number of seeds."""
    return key(flags.to_dict(flags.load_with_overrides(config_string(cell, scale), cell.overrides)))


def _mark_stale(row: Row, stale: Mapping[tuple, Record], also: tuple[str, ...]) -> Row:
    """Returns the row with the stale record of each cell that has no other record."""
    outdated = {}
    for name, cell in row.item.cells.items():
        if name in row.records:
            continue
        addresses = [
            address(config_string(cell, scale), cell.overrides) for scale in (*cell.scales, *also)
        ]
        # The scales of a cell begin with the best one.
        if (first := next((a for a in addresses if a in stale), None)) is not None:
            outdated[name] = stale[first]
    return row._replace(stale=outdated)
