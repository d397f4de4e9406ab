"""Records on disk -> for every item of every paper: its records, findings and a verdict."""

from collections.abc import Mapping
from typing import NamedTuple

from experiments.ledger.item import Cell, Item, Paper
from experiments.ledger.record import Record, address, key
from experiments.ledger.rules import DEFINITION, NOT_RUN, Finding, Number, Side, gravest
from experiments.shared import flags
from jaxformer.errors import UserError, unknown


class Row(NamedTuple):
    """One line of the ledger."""

    paper: Paper
    item: Item
    records: dict[str, Record]  # by cell; a cell that was not run is absent
    findings: list[Finding]
    verdict: str
    problems: list[str]  # two records of a cell, a metric that a record lacks, a lost config
    stale: Mapping[str, Record] = {}  # by cell; its config has changed since: it decides nothing


def ledger(
    papers: Mapping[str, Paper], records: list[Record], also: tuple[str, ...] = ()
) -> list[Row]:
    """Every table and figure, in the papers' order; `also`: scales to take if there is no better.

    A record whose `stale` says why it is outdated is shown as such and gives no verdict.
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
                break
    findings = []
    for text, rule in item.rules.items():
        try:
            findings.append(rule.judge(text, lambda side: _read(records, side)))
        except KeyError as error:
            findings.append(Finding(text, NOT_RUN, ""))
            problems.append(f"no number {error} in its record.")
        scales = {records[side.cell].scale for side in rule.sides if side.cell in records}
        if len(scales) > 1:
            problems.append(f"{text}: compares runs of scales {' and '.join(sorted(scales))}.")
    names = [name for record in records.values() for name in record.baselines]
    if records and item.baseline and item.baseline not in names:
        problems.append(str(unknown("baseline", item.baseline, set(names))))
    verdict = DEFINITION if item.defines else gravest([f.verdict for f in findings])
    return Row(paper, item, records, findings, verdict, problems)


def config_string(cell: Cell, scale: str) -> str:
    return f"{cell.config}{',' if ':' in cell.config else ':'}scale={scale}"


def cell_key(cell: Cell, scale: str) -> str:
    """What the record of a cell is found by; the number of seeds does not tell cells apart."""
    return key(flags.plain(flags.configured(config_string(cell, scale), cell.overrides)))


def _mark_stale(row: Row, stale: Mapping[tuple, Record], also: tuple[str, ...]) -> Row:
    outdated = {
        name: stale[place]
        for name, cell in row.item.cells.items()
        for scale in reversed((*cell.scales, *also))  # the best is the last
        if name not in row.records
        and (place := address(config_string(cell, scale), cell.overrides)) in stale
    }
    return row._replace(stale=outdated)


def _read(records: Mapping[str, Record], side: Side) -> Number | None:
    if not side.metric:
        return Number(side.value, 0.0)
    if side.cell not in records:
        return None
    record = records[side.cell]
    exact = {name: {"mean": mean, "sem": 0.0} for name, mean in record.baselines.items()}
    value = (exact if side.is_baseline else record.metrics)[side.metric]
    if value["mean"] is None:
        raise KeyError(f"{side.metric} (its mean is not finite)")
    # A mean of equal numbers has a standard error of rounding.
    sem = value["sem"] or 0.0
    return Number(value["mean"], sem if sem > 1e-12 * abs(value["mean"]) else 0.0)
