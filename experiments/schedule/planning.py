"""Which runs the ledger still wants, what each takes, and which one tells most: no run is started.

Order: the tables that lack one or two runs for their verdict, then the other tables; among them the
rule whose runs are cheapest; then runs that no rule asks for; last those that only lack seeds.
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
FEW = "fewer seeds"
ELSEWHERE = "not meant at this scale"
LOST = "its config is gone"
FEW_RUNS = 2  # a table that lacks no more is nearly there

Wanted = tuple[Paper, Item]


class Todo(NamedTuple):
    """A cell at a scale, which one or several items want."""

    cell: Cell
    key: str  # of its config without the seeds: equal cells are one
    names: tuple[str, ...]  # "mixit Table 2, retrieval: frozen_qk"
    state: str
    config: str  # "configs/mixit/retrieval.py:variant=frozen_qk,scale=small"
    overrides: dict[str, str]
    estimate: float  # seconds
    replaces: tuple[Record, ...]  # records that its own would make superfluous

    @property
    def is_open(self) -> bool:
        return self.state in (MISSING, CHANGED, FEW)


def select(papers: Mapping[str, Paper], paper: str, only: str) -> list[Wanted]:
    """The items of one paper (or of "all") whose name is `only` or begins with it; "" is all."""
    if paper != "all" and paper not in papers:
        raise unknown("paper", paper, [*papers, "all"])
    chosen = [papers[paper]] if paper != "all" else list(papers.values())
    items = [(p, item) for p in chosen for item in p.items]
    if not items:
        raise UserError(f"{paper} has no table or figure yet.")
    names = [item.name for _, item in items]
    asked = set(choose.named(names, only) if only else names)
    if not asked:
        hint = did_you_mean(only, choose.possible(names))
        known = "; ".join(choose.beginnings(names))
        raise UserError(f"unknown table or figure {only!r}.{hint} They begin with: {known}.")
    return [(p, item) for p, item in items if item.name in asked]


def todos(
    wanted: list[Wanted],
    records: list[Record],
    scale: str,
    seeds: int,
    estimate: Callable[[Any], float],
) -> list[Todo]:
    """Every cell of the items once, in their order; `seeds` = 0 leaves them to the configs."""
    found: dict[str, Todo] = {}
    for paper, item in wanted:
        for name, cell in item.cells.items():
            label = f"{paper.key} {item.name}: {name}"
            todo = _todo(cell, label, records, scale, seeds, estimate)
            if todo.key in found:
                todo = found[todo.key]._replace(names=(*found[todo.key].names, label))
            found[todo.key] = todo
    return list(found.values())


def order(found: Iterable[Todo], wanted: list[Wanted]) -> list[Todo]:
    """The open ones, most informative first."""
    left = {todo.key: todo for todo in found if todo.is_open and todo.state != FEW}
    few = [todo for todo in found if todo.state == FEW]
    by_name = {name: todo for todo in found for name in todo.names}
    needs = [_needs(paper, item, by_name) for paper, item in wanted]
    place = {key: (todo.estimate, i) for i, (key, todo) in enumerate(left.items())}
    chosen: list[Todo] = []
    while left:
        ranked = []
        for rules in needs:
            is_far = len(set().union(*rules) & left.keys()) > FEW_RUNS
            for rule in rules:
                if keys := sorted(rule & left.keys(), key=place.__getitem__):
                    ranked.append((is_far, sum(left[key].estimate for key in keys), keys))
        rest = sorted(left, key=place.__getitem__)
        *_, keys = min(ranked, key=lambda entry: entry[:2], default=(False, 0.0, rest))
        chosen += [left.pop(key) for key in keys]
    return chosen + sorted(few, key=lambda todo: todo.estimate)


def _todo(cell: Cell, label: str, records, scale: str, seeds: int, estimate) -> Todo:
    blank = Todo(cell, label, (label,), LOST, cell.config, {}, 0.0, ())
    try:
        if scale not in cell.scales:
            return blank._replace(state=ELSEWHERE, key=f"{scale} {label}")
        text, overrides = config_string(cell, scale), dict(cell.overrides)
        config: Any = flags.configured(text, overrides)
        key, place = cell_key(cell, scale), address(text, overrides)
        counts = bool(seeds) and recipes.uses_seeds(config)
        if counts and seeds != flags.plain(config)["n_seeds"]:
            overrides["n_seeds"] = str(seeds)
            config = flags.configured(text, overrides)
        better = cell.scales[: cell.scales.index(scale)]
        keys = {key, *(cell_key(cell, other) for other in better)}
    except UserError:
        return blank
    mine = [record for record in records if record.key in keys]
    old = [r for r in records if r.address == place and r.key not in keys]
    state = DONE if mine else CHANGED if old else MISSING
    if mine and counts and max(len(r.seeds) for r in mine) < seeds:
        state = FEW
    replaces = (*(r for r in mine if r.key == key), *old)
    return Todo(cell, key, (label,), state, text, overrides, estimate(config), replaces)


def _needs(paper: Paper, item: Item, by_name: Mapping[str, Todo]) -> list[set[str]]:
    """For each rule that can be decided at this scale, the keys still to run."""
    needs = []
    for rule in item.rules.values():
        names = [name for side in rule.sides if side.cell for name in side.cells]
        cells = [by_name[f"{paper.key} {item.name}: {name}"] for name in names]
        if all(todo.is_open or todo.state == DONE for todo in cells):
            needs.append({todo.key for todo in cells if todo.is_open})
    return needs
