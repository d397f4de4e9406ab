"""Records on disk -> for every item of every paper: its records, findings and a verdict."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from experiments import flags
from experiments.papers.item import Cell, Item, Paper
from experiments.papers.rules import NOT_RUN, Finding, Number, Side, gravest
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


def ledger(papers: Mapping[str, Paper], records: list[Record]) -> list[Row]:
    """Every table and figure, in the papers' order."""
    by_hash: dict[str, list[Record]] = {}
    for record in records:
        by_hash.setdefault(_hash_without_seeds(record["config"]), []).append(record)
    return [judge(paper, item, by_hash) for paper in papers.values() for item in paper.items]


def judge(paper: Paper, item: Item, by_hash: Mapping[str, list[Record]]) -> Row:
    found, problems = {}, []
    for name, cell in item.cells.items():
        for scale in cell.scales:
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
    verdict = gravest([finding.verdict for finding in findings])
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
    return "python experiments/run.py " + " ".join(words)


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
    return Number(value["mean"], value["sem"] or 0.0)
