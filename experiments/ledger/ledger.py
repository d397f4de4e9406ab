"""Records on disk -> for every item of every paper: its records, findings and a verdict."""

import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple

from experiments.ledger import read
from experiments.ledger.item import Cell, Item, Paper
from experiments.ledger.rules import DEFINITION, NOT_RUN, Finding, Number, Side, gravest
from experiments.shared import flags
from jaxformer.errors import UserError
from jaxformer.records import config_hash

Record = dict[str, Any]


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

    A record whose "stale" says why it is outdated is shown as such and gives no verdict.
    """
    by_hash: dict[str, list[Record]] = {}
    stale: dict[tuple, Record] = {}
    for record in records:
        if record.get("stale"):
            stale[read.address(record["config_file"], record["overrides"])] = record
        else:
            by_hash.setdefault(_hash_without_seeds(record["config"]), []).append(record)
    return [
        _mark_stale(judge(paper, item, by_hash, also), stale, also)
        for paper in papers.values()
        for item in paper.items
    ]


def judge(
    paper: Paper,
    item: Item,
    by_hash: Mapping[str, list[Record]],
    also: tuple[str, ...] = (),
) -> Row:
    found, problems = {}, []
    for name, cell in item.cells.items():
        for scale in dict.fromkeys((*cell.scales, *also)):
            try:
                mine = by_hash.get(cell_hash(cell, scale), [])
            except UserError as error:
                problems.append(f"{name}: {error}")
                break
            if mine:
                found[name] = max(mine, key=lambda record: len(record["seeds"]))
                if len(mine) > 1:
                    problems.append(f"{name}: {len(mine)} records; the one of most seeds is shown.")
                break
    findings = []
    for rule in item.rules:
        try:
            findings.append(rule.judge(lambda side: _read(found, side)))
        except KeyError as error:
            findings.append(Finding(rule.text, NOT_RUN, ""))
            problems.append(f"no number {error} in its record.")
        sides = [found[side.cell] for side in (rule.left, rule.right) if side.cell in found]
        if len(scales := {record["config"]["scale"] for record in sides}) > 1:
            problems.append(f"{rule.text}: compares runs of scales {' and '.join(sorted(scales))}.")
    verdict = DEFINITION if item.defines else gravest([f.verdict for f in findings])
    return Row(paper, item, found, findings, verdict, problems)


def cell_config(cell: Cell, scale: str, seeds: int = 0):
    """(the config, its overrides) of a cell at a scale; `seeds` = 0 keeps the config's own."""
    config = flags.load_config(config_string(cell, scale))
    overrides = dict(cell.overrides) | ({"n_seeds": str(seeds)} if seeds else {})
    values = {name: flags.override(config, name, text) for name, text in overrides.items()}
    return config.copy_and_resolve_references(), values


def config_string(cell: Cell, scale: str) -> str:
    return f"{cell.config}{',' if ':' in cell.config else ':'}scale={scale}"


def cell_hash(cell: Cell, scale: str) -> str:
    """The hash of a cell's config; the number of seeds does not tell cells apart."""
    config, _ = cell_config(cell, scale)
    return _hash_without_seeds(flags.plain(config))


def command(cell: Cell, scale: str) -> str:
    """The line that runs a cell."""
    words = [f"--config={config_string(cell, scale)}"]
    words += [f"--config.{name}={text}" for name, text in cell.overrides.items()]
    return "python experiments/run.py " + " ".join(map(shlex.quote, words))


def _mark_stale(row: Row, stale: Mapping[tuple, Record], also: tuple[str, ...]) -> Row:
    if not stale:
        return row
    cells = {name: c for name, c in row.item.cells.items() if name not in row.records}
    found = {}
    for name, cell in cells.items():
        for scale in dict.fromkeys((*cell.scales, *also)):
            place = read.address(config_string(cell, scale), dict(cell.overrides))
            if place in stale:
                found.setdefault(name, stale[place])
    return row._replace(stale=found)


def _hash_without_seeds(config: Mapping[str, Any]) -> str:
    return config_hash({name: value for name, value in config.items() if name != "n_seeds"})


def _read(records: Mapping[str, Record], side: Side) -> Number | None:
    if not side.cell:
        return Number(side.value, 0.0)
    if side.cell not in records:
        return None
    record = records[side.cell]
    if side.is_baseline:
        return Number(record["baselines"][side.metric], 0.0)
    value = record["metrics"][side.metric]
    if value["mean"] is None:
        raise KeyError(f"{side.metric} (its mean is not finite)")
    # A mean of equal numbers has a standard error of rounding.
    sem = value["sem"] or 0.0
    return Number(value["mean"], sem if sem > 1e-12 * abs(value["mean"]) else 0.0)
