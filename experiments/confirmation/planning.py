"""Makes the plan of a confirmation from the rows of the ledger.

The planned number of seeds decides a rule with a power of 90 %. It assumes that the true distance
from the rule's border is three quarters of the observed distance. For a row that held, all rules
must be decided. For a row that did not hold, the primary rule must be decided if it failed, and
otherwise the rule that failed most clearly.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from experiments import recipes
from experiments.cli import flags
from experiments.confirmation.judging_code import code_digest
from experiments.confirmation.plan import (
    FIRST,
    Plan,
    PlannedConfig,
    PlannedRow,
    digest_without_seeds,
    item_digest,
    judging_modules,
    with_hash,
)
from experiments.ledger import power
from experiments.ledger.item import Cell, Item, config_string
from experiments.ledger.ledger import Row
from experiments.ledger.record import Record
from experiments.ledger.rules import HELD, NOT_HELD, NOT_RUN, OPEN, Finding, Rule
from jaxformer.io.run_folder import config_hash

ASSUMED_SHARE = 0.75  # the true distance from a rule's border over the observed distance
LEAST_SEEDS, MOST_SEEDS = 5, 24
MOST_SECONDS = 6000  # time of a row's runs; a row that would take longer gets fewer seeds
LARGER_TEST_SET = 10  # the size of the new test set over that of the recorded one
TASKS_WITH_GAPS = ("masked_text", "masked_tokens")  # they report `loss_above_unigram`
LEAST_TEST_SET = 20_000  # examples of masked_text, whose loss is compared with a baseline
# The worth of a row by its verdict. Rows that are not counted as claims have half of it.
WORTH = {NOT_HELD: 4, HELD: 3, OPEN: 2}
WORTH_OF_HEADLINE = 6
STAGES = "ABCDE"
STAGE_HOURS = (1, 4, 10, 14.5)  # cumulative hours of runs at which stages A to D end


def make(
    name: str, rows: Sequence[Row], headlines: Collection[str] = (), schema: int = FIRST
) -> Plan:
    """Plans all rows that new seeds can decide, in the order of their worth per hour.

    Args:
      name: the name of the plan.
      rows: the rows of the ledger.
      headlines: "PAPER: ITEM" of the rows that matter most.
      schema: of the plan; a plan of schema 2 has no rows that compare constants alone.
    """
    runs: dict[str, PlannedConfig] = {}
    chosen = [row for row in rows if _can_be_decided(row)]
    if schema != FIRST:
        chosen = [row for row in chosen if any(finding.p != 0 for finding in row.findings)]
    planned = [_planned_row(row, runs) for row in chosen]
    planned = [
        p._replace(digest=item_digest(row.item, schema))
        for p, row in zip(planned, chosen, strict=True)
    ]
    worth = {p.name: _worth(row, headlines) for p, row in zip(planned, chosen, strict=True)}
    ordered = _staged(_by_worth(planned, runs, worth), runs)
    return with_hash(
        Plan(name, tuple(ordered), runs, code_digest(judging_modules(schema)), "", schema)
    )


def seeds_of_row(row: Row) -> tuple[int, str]:
    """Returns the number of seeds that a row needs, and why a power of 90 % is not reached.

    In an open row, a rule that needs too many seeds does not raise the number, because the other
    rules of the row can still be decided.
    """
    needed, limit = LEAST_SEEDS, ""
    for rule, finding in _rules_that_decide(row):
        seeds, reason = _seeds_of_rule(row, rule, finding)
        limit = f"{finding.text}: {reason}" if reason else limit
        if reason and row.verdict != OPEN:
            seeds = seeds or MOST_SEEDS
        needed = max(needed, seeds)
    affordable = max(int(MOST_SECONDS / _seconds_per_seed(row)), LEAST_SEEDS)
    if needed > affordable:
        needed, limit = affordable, f"{needed} seeds would take too long"
    return needed, limit


def _seeds_of_rule(row: Row, rule: Rule, finding: Finding) -> tuple[int, str]:
    """Returns the seeds that a rule needs with the larger test set, or why none suffice."""
    compared = finding.compared
    if compared is None or finding.p == 0 or max(compared.seeds) > MOST_SEEDS:
        return 0, ""  # exact numbers, or a config whose own sample does not depend on seeds
    cells = [cell for side in rule.sides if side.metric for cell in side.cells]
    growth = min(_test_size(row.records[c])[1] for c in cells)
    # The error of a test set is proportional to 1 / sqrt(size).
    compared = compared._replace(test=compared.test / growth**0.5)
    if _is_paired(row, rule):
        compared = compared._replace(test=0.0)  # unknown before the run, and far smaller
    return power.seeds_for_rule(rule, compared, ASSUMED_SHARE, MOST_SEEDS)


def _is_paired(row: Row, rule: Rule) -> bool:
    """Whether a new run will report the difference that a rule is about, example by example."""
    cells = {side.cell for side in rule.sides if side.metric}
    is_about_frequencies = any(
        side.is_baseline and side.metric == "unigram_loss" for side in rule.sides
    )
    if not is_about_frequencies or len(cells) > 1:
        return False
    return row.records[cells.pop()].config["task"]["name"] in TASKS_WITH_GAPS


def _test_size(record: Record) -> tuple[int, float]:
    """Returns the size of the new test set, and its multiple of the recorded one.

    The test set is not enlarged if this would take examples or text away from training.
    """
    config = record.config
    size = config["data"].get("test_size", 0) if "data" in config else 0
    new_size = size
    if config["recipe"] == "train" and config["task"]["name"] == "masked_text":
        new_size = max(LARGER_TEST_SET * size, LEAST_TEST_SET)
    elif config["recipe"] == "train" and config["data"].get("split") == "hash":
        new_size = LARGER_TEST_SET * size
    growth = new_size / size if size else 1.0
    return new_size, growth


def _seconds_per_seed(row: Row) -> float:
    """Returns the time that one more seed, or one more split of the data, adds to a row."""
    records = {cell: row.records[cell] for cell in _needed_cells(row.item) & row.records.keys()}
    if splits := _split_cells(row.item):
        return sum(records[cell].seconds["run"] for cell in splits) / len(splits)
    # Several cells can share a record, which counts once.
    distinct = {record.where: record for record in records.values()}
    return sum(record.seconds["run"] / _sample_size(record) for record in distinct.values())


def _sample_size(record: Record) -> int:
    """Returns the number of networks of a run, or of seeds if the record lists no networks."""
    return max(len(record.members) or len(record.seeds), 1)


def _split_cells(item: Item) -> set[str]:
    """Returns the cells that a rule averages over, such as splits of the data."""
    sides = [side for rule in item.rules.values() for side in rule.sides]
    return {cell for side in sides for cell in side.among}


def _needed_cells(item: Item) -> set[str]:
    """Returns the cells that the rules read. A side without a metric is a constant."""
    sides = [side for rule in item.rules.values() for side in rule.sides if side.metric]
    return {cell for side in sides for cell in side.cells}


def _rules_that_decide(row: Row) -> list[tuple[Rule, Finding]]:
    """Returns the rules on which a row's verdict rests."""
    pairs = [*zip(row.item.rules.values(), row.findings, strict=True)]
    if row.verdict == HELD:
        return pairs
    if row.verdict == OPEN:
        return [pair for pair in pairs if pair[1].verdict == OPEN]
    failing = [pair for pair in pairs if pair[1].verdict == NOT_HELD]
    primary = [pair for pair in failing if pair[1].text == row.item.primary_rule]
    return primary or [min(failing, key=lambda pair: pair[1].p)]


def _planned_row(row: Row, runs: dict[str, PlannedConfig]) -> PlannedRow:
    """Plans a row, and adds its runs to those of other rows."""
    seeds, limit = seeds_of_row(row)
    needed, splits = _needed_cells(row.item), _split_cells(row.item)
    n_replicas = math.ceil(seeds / len(splits)) if splits else 1
    cells = {}
    for name, cell in row.item.cells.items():
        if name in needed and name in row.records:
            record, is_split = row.records[name], name in splits
            cells[name] = tuple(
                _add_run(cell, record, seeds, is_split, replica, runs)
                for replica in range(n_replicas if is_split else 1)
            )
    return PlannedRow(
        paper=row.paper.key,
        item=row.item.name,
        digest=item_digest(row.item),
        verdict=row.verdict,
        primary=row.item.primary_rule,
        seeds=seeds,
        limit=limit,
        stage="",
        cells=cells,
    )


def _add_run(
    cell: Cell,
    record: Record,
    seeds: int,
    is_split: bool,
    replica: int,
    runs: dict[str, PlannedConfig],
) -> str:
    """Adds the run of a cell, or raises the seeds of the same run; returns its name."""
    config = config_string(cell, record.scale)
    overrides = _overrides(dict(cell.overrides), record)
    values: Any = flags.load_with_overrides(config, overrides)
    if not recipes.uses_seeds(values):
        seeds = 0
    elif is_split:
        seeds = int(values.n_seeds)  # the splits are the sample, not the networks of a split
    elif not record.members:
        seeds = max(seeds, len(record.seeds))  # a figure may need its whole sample
    digest = digest_without_seeds(config, overrides)
    name = config_hash({"config": config, "overrides": overrides, "replica": replica})
    seconds = record.seconds["compile"] + record.seconds["run"] * _work(record, seeds)
    run = PlannedConfig(config, overrides, seeds, replica, digest, round(seconds, 1))
    if name not in runs or runs[name].seeds < seeds:
        runs[name] = run
    return name


def _overrides(overrides: dict[str, str], record: Record) -> dict[str, str]:
    """Returns the overrides of a run, with the chosen learning rate only and a larger test set."""
    config = record.config
    rates = {m.get("learning_rate") for m in record.members if m.get("chosen", True)}
    if len(rates) == 1 and None not in rates and "optim" in config:
        overrides["optim.learning_rate"] = f"({rates.pop()!r},)"
    size, growth = _test_size(record)
    if growth > 1:
        overrides["data.test_size"] = str(size)
    return overrides


def _work(record: Record, seeds: int) -> float:
    """Returns the time of the planned run as a multiple of the recorded one."""
    if not seeds:
        return 1.0
    return seeds / _sample_size(record)


def _can_be_decided(row: Row) -> bool:
    """Returns whether new seeds can decide a row, or confirm its primary rule."""
    if row.verdict != OPEN:
        return row.verdict in WORTH
    if any(finding.verdict == NOT_RUN for finding in row.findings):
        return False
    rule = row.item.rules[row.item.primary_rule]
    (primary,) = [finding for finding in row.findings if finding.text == row.item.primary_rule]
    return primary.verdict != OPEN or not _seeds_of_rule(row, rule, primary)[1]


def _worth(row: Row, headlines: Collection[str]) -> float:
    if f"{row.paper.key}: {row.item.name}" in headlines:
        return WORTH_OF_HEADLINE
    return WORTH[row.verdict] * (1.0 if row.item.is_distinct else 0.5)


def _by_worth(
    planned: Iterable[PlannedRow], runs: Mapping[str, PlannedConfig], worth: Mapping[str, float]
) -> list[PlannedRow]:
    """Orders rows by worth per hour. The time of a row excludes runs that an earlier row makes."""
    remaining, ordered, made = list(planned), [], set[str]()

    def seconds_per_worth(row: PlannedRow) -> float:
        return sum(runs[run].seconds for run in row.runs - made) / worth[row.name]

    while remaining:
        best = min(remaining, key=seconds_per_worth)
        remaining.remove(best)
        ordered.append(best)
        made.update(best.runs)
    return ordered


def _staged(ordered: Iterable[PlannedRow], runs: Mapping[str, PlannedConfig]) -> list[PlannedRow]:
    """Returns the rows with the letters of their stages."""
    staged, made = [], set()
    for row in ordered:
        made |= row.runs
        hours = sum(runs[run].seconds for run in made) / 3600
        stage = sum(hours > limit for limit in STAGE_HOURS)
        staged.append(row._replace(stage=STAGES[stage]))
    return staged
