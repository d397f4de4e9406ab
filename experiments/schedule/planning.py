"""Plans the runs that the ledger lacks, and orders them by information per time. No run starts.

A table of a paper has rules, each a comparison of its runs. They decide its verdict. The order of
the runs:
  1. runs of tables that lack at most two runs; of these, the runs of the cheapest rule come first
  2. runs of the other tables, in the same order
  3. runs that no rule needs
  4. runs that are recorded with fewer seeds than demanded
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from experiments import recipes
from experiments.cli import flags
from experiments.ledger import choose
from experiments.ledger.item import Cell, Item, Paper
from experiments.ledger.ledger import cell_key, config_string
from experiments.ledger.record import Record, address
from jaxformer.core.errors import UserError, did_you_mean, unknown

DONE = "done"
MISSING = "not yet run"
CHANGED = "changed since it ran"
FEWER_SEEDS = "fewer seeds"
OTHER_SCALE = "not meant at this scale"
CONFIG_MISSING = "its config is gone"
MAX_LACKING_RUNS = 2  # a table that lacks more runs than this comes later in the order

PaperItem = tuple[Paper, Item]


class CellName(NamedTuple):
    """The address of a cell in the ledger."""

    paper: str
    item: str
    cell: str

    def __str__(self) -> str:
        """Returns "mixit Table 2, retrieval: frozen_qk"."""
        return f"{self.paper} {self.item}: {self.cell}"


class PlannedRun(NamedTuple):
    """A config at a scale, which fills one or several cells."""

    cell: Cell  # the first of the cells that it fills
    key: str  # the hash of the config without its number of seeds
    cells: tuple[CellName, ...]
    state: str
    config: str  # "configs/mixit/retrieval.py:variant=frozen_qk,scale=small"
    overrides: dict[str, str]
    estimate: float  # seconds
    replaces: tuple[Record, ...]  # records to delete when this run is recorded

    @property
    def is_open(self) -> bool:
        return self.state in (MISSING, CHANGED, FEWER_SEEDS)


def select_items(papers: Mapping[str, Paper], paper: str, only: str) -> list[PaperItem]:
    """Selects tables and figures by paper and name.

    Args:
        papers: the papers by key.
        paper: a key, or "all".
        only: the name of a table or figure, or the beginning of names; "" selects all.
    """
    if paper != "all" and paper not in papers:
        raise unknown("paper", paper, [*papers, "all"])
    chosen = [papers[paper]] if paper != "all" else list(papers.values())
    items = [(p, item) for p in chosen for item in p.items]
    if not items:
        raise UserError(f"{paper} has no table or figure yet.")
    names = [item.name for _, item in items]
    selected = set(choose.names_beginning_with(names, only) if only else names)
    if not selected:
        hint = did_you_mean(only, choose.choices(names))
        beginnings = "; ".join(choose.beginnings(names))
        raise UserError(f"unknown table or figure {only!r}.{hint} They begin with: {beginnings}.")
    return [(p, item) for p, item in items if item.name in selected]


def plan_runs(
    items: list[PaperItem],
    records: list[Record],
    scale: str,
    seeds: int,
    estimate: Callable[[Any], float],
) -> list[PlannedRun]:
    """Returns each distinct run of the items once, in the order of the items.

    Args:
        items: the tables and figures.
        records: the records so far.
        scale: the scale of the runs.
        seeds: the number of seeds; 0 leaves it to the configs.
        estimate: a function that returns the seconds of a config.
    """
    runs: dict[str, PlannedRun] = {}
    for paper, item in items:
        for name, cell in item.cells.items():
            cell_name = CellName(paper.key, item.name, name)
            run = _plan_run(cell, cell_name, records, scale, seeds, estimate)
            if run.key in runs:
                run = runs[run.key]._replace(cells=(*runs[run.key].cells, cell_name))
            runs[run.key] = run
    return list(runs.values())


def order_runs(runs: Iterable[PlannedRun], items: list[PaperItem]) -> list[PlannedRun]:
    """Returns the open runs, the most informative first."""
    runs = list(runs)
    unordered = {run.key: run for run in runs if run.is_open and run.state != FEWER_SEEDS}
    fewer_seeds = [run for run in runs if run.state == FEWER_SEEDS]
    by_cell = {cell: run for run in runs for cell in run.cells}
    lacking_by_item = [_lacking_keys(paper, item, by_cell) for paper, item in items]
    rank = {key: (run.estimate, i) for i, (key, run) in enumerate(unordered.items())}
    ordered: list[PlannedRun] = []
    while unordered:
        candidates = []  # (whether the table lacks many runs, seconds, keys) of each rule
        for keys_of_rules in lacking_by_item:
            lacks_many = len(set().union(*keys_of_rules) & unordered.keys()) > MAX_LACKING_RUNS
            for rule_keys in keys_of_rules:
                if keys := sorted(rule_keys & unordered.keys(), key=rank.__getitem__):
                    seconds = sum(unordered[key].estimate for key in keys)
                    candidates.append((lacks_many, seconds, keys))
        runs_of_no_rule = (False, 0.0, sorted(unordered, key=rank.__getitem__))
        _, _, keys = min(candidates, key=lambda entry: entry[:2], default=runs_of_no_rule)
        ordered += [unordered.pop(key) for key in keys]
    return ordered + sorted(fewer_seeds, key=lambda run: run.estimate)


def _plan_run(cell: Cell, name: CellName, records, scale: str, seeds: int, estimate) -> PlannedRun:
    """Returns the run of one cell; the arguments are as in `plan_runs`."""
    blank = PlannedRun(cell, str(name), (name,), CONFIG_MISSING, cell.config, {}, 0.0, ())
    try:
        if scale not in cell.scales:
            return blank._replace(state=OTHER_SCALE, key=f"{scale} {name}")
        text, overrides = config_string(cell, scale), dict(cell.overrides)
        config: Any = flags.load_with_overrides(text, overrides)
        key, cell_address = cell_key(cell, scale), address(text, overrides)
        sets_seeds = bool(seeds) and recipes.uses_seeds(config)
        if sets_seeds and seeds != flags.to_dict(config)["n_seeds"]:
            overrides["n_seeds"] = str(seeds)
            config = flags.load_with_overrides(text, overrides)
        larger_scales = cell.scales[: cell.scales.index(scale)]  # the largest scale is first
        # A record of a larger scale also fills the cell.
        keys = {key, *(cell_key(cell, other) for other in larger_scales)}
    except UserError:
        return blank
    current = [record for record in records if record.key in keys]
    outdated = [r for r in records if r.address == cell_address and r.key not in keys]
    state = DONE if current else CHANGED if outdated else MISSING
    if current and sets_seeds and max(len(r.seeds) for r in current) < seeds:
        state = FEWER_SEEDS
    replaces = (*(r for r in current if r.key == key), *outdated)
    return PlannedRun(cell, key, (name,), state, text, overrides, estimate(config), replaces)


def _lacking_keys(
    paper: Paper, item: Item, by_cell: Mapping[CellName, PlannedRun]
) -> list[set[str]]:
    """Returns the keys of the open runs of each rule that this scale can decide."""
    keys = []
    for rule in item.rules.values():
        # A side without a cell is a constant.
        names = [name for side in rule.sides if side.cell for name in side.cells]
        runs = [by_cell[CellName(paper.key, item.name, name)] for name in names]
        if all(run.is_open or run.state == DONE for run in runs):
            keys.append({run.key for run in runs if run.is_open})
    return keys
