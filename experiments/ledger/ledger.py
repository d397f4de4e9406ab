"""The ledger: the records, findings and verdict of each table and figure of each paper."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from experiments.cli import flags
from experiments.ledger.item import (
    EDGE,
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
    Side,
    overall,
)
from experiments.ledger.statistics import (
    Number,
    diverged,
    mean_of,
    minus,
    record_number,
    share_diverged,
    share_of_seeds,
)
from jaxformer.core.errors import UserError, unknown


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
    return [
        _mark_stale(judge(paper, item, by_key, also), stale, also)
        for paper in papers.values()
        for item in paper.items
    ]


def judge(
    paper: Paper, item: Item, by_key: Mapping[str, list[Record]], also: tuple[str, ...] = ()
) -> Row:
    records, problems = {}, []
    sides = [side for rule in item.rules.values() for side in rule.sides]
    has_rule = {side.cell for side in sides if side.metric == DIVERGED}  # of divergence
    for name, cell in item.cells.items():
        for scale in dict.fromkeys((*cell.scales, *also)):
            try:
                same = by_key.get(cell_key(cell, scale), [])
            except UserError as error:
                problems.append(f"{name}: {error}")
                break
            if same:
                records[name] = max(same, key=lambda record: len(record.seeds))
                if len(same) > 1:
                    problems.append(f"{name}: {len(same)} records; the one of most seeds is shown.")
                problems += _divergence_problem(name, records[name]) if name not in has_rule else []
                break
    findings = [_judged(records, text, rule, problems) for text, rule in item.rules.items()]
    checks = tuple(_judged(records, text, rule, problems) for text, rule in item.checks.items())
    names = [name for record in records.values() for name in record.baselines]
    if records and item.baseline and item.baseline not in names:
        problems.append(str(unknown("baseline", item.baseline, set(names))))
    verdict = overall(findings)
    if item.defines or (item.needs and not item.rules):
        verdict = DEFINITION if item.defines else MISSING
    smaller = bool(records) and any(record.scale != "paper" for record in records.values())
    flags = (*item.flags, *[SMALLER] * smaller, *[LATE] * (item.late and bool(item.rules)))
    flags += (UNTRAINED,) if any(record.alarms for record in records.values()) else ()
    flags += (EDGE,) if any(map(at_the_edge, records.values())) else ()
    return Row(paper, item, records, findings, verdict, problems, checks=checks, flags=flags)


def _divergence_problem(name: str, record: Record) -> list[str]:
    """Returns a line if some seeds diverged: the remaining seeds are no fair sample."""
    seeds = diverged(record.members)
    if not seeds:
        return []
    which = f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"
    return [
        f"{name}: {which} of {len(record.seeds)} diverged; the means of the others prove nothing."
    ]


def _judged(records: Mapping[str, Record], text: str, rule: Rule, problems: list[str]) -> Finding:
    scales = {records[c].scale for side in rule.sides for c in side.cells if c in records}
    if len(scales) > 1:
        problems.append(f"{text}: compares runs of scales {' and '.join(sorted(scales))}.")
    try:
        return rule.judge(text, lambda side: _read(records, side))
    except KeyError as error:
        problems.append(f"no number {error} in its record.")
        return Finding(text, NOT_RUN, "")


def cell_key(cell: Cell, scale: str) -> str:
    """Returns the key of a cell's record, which does not depend on the number of seeds."""
    return key(flags.to_dict(flags.load_with_overrides(config_string(cell, scale), cell.overrides)))


def _mark_stale(row: Row, stale: Mapping[tuple, Record], also: tuple[str, ...]) -> Row:
    outdated = {
        name: stale[cell_address]
        for name, cell in row.item.cells.items()
        for scale in reversed((*cell.scales, *also))  # the best is the last
        if name not in row.records
        and (cell_address := address(config_string(cell, scale), cell.overrides)) in stale
    }
    return row._replace(stale=outdated)


def _read(records: Mapping[str, Record], side: Side) -> Number | None:
    if not side.metric:
        return Number(side.value)
    if side.among:
        several = [_read(records, side._replace(cell=c, among=())) for c in side.among]
        return None if None in several else mean_of(several)  # type: ignore[arg-type]
    if side.minus:
        both = [_read(records, side._replace(cell=c, minus="")) for c in (side.cell, side.minus)]
        return None if None in both else minus(*both)  # type: ignore[arg-type]
    if side.cell not in records:
        return None
    record = records[side.cell]
    if side.metric == DIVERGED:
        return share_diverged(record.members)
    if side.reached is not None:
        number = record_number(record.metrics[side.metric], record.members, side.metric)
        return share_of_seeds([value >= side.reached for value in number.by_seed.values()])
    if side.is_baseline:
        value: Any = {"mean": record.baselines[side.metric], "sem": 0.0, "n": 0}
    else:
        value = record.metrics[side.metric]
    if value["mean"] is None:
        raise KeyError(f"{side.metric} (its mean is not finite)")
    if side.is_baseline or (side.is_exact and value["sem"] is None):
        return Number(value["mean"])
    return record_number(value, record.members, side.metric, side.trials)
