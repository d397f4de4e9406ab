"""Papers, their tables and figures, and the cells (runs) of each: plain values."""

from collections.abc import Mapping
from typing import NamedTuple

from experiments.ledger.names import names_of
from experiments.ledger.rules import DIVERGED, Rule, Side
from jaxformer.core.errors import UserError, check_choice, unknown

CHANCE = "the published number is chance level"
MISPRINT = "misprint"
CODE_DIFFERS = "the authors' code differs from the text"
GROWS = "holds only as T grows without bound"
SMALLER = "smaller scale"
OURS = "our own question"
LATE = "rule written after the numbers"
UNTRAINED = "a run ends above the unigram loss"
EDGE = "the best learning rate is at the edge of its grid"
OUTSIDE = "protocol outside the claim"
EASY = "the setting is too easy for the rule to fail"
MOVED = "a rule that failed is a check, because the claim lacks it"
EXTENDED = "seeds were added after numbers were seen"
NOT_COUNTED = (OURS, OUTSIDE, EASY)
FLAGS = {
    CHANCE: "a trivial predictor scores as much on the same kind of data.",
    MISPRINT: "as printed it is false; the corrected form is judged or stands in the caveat.",
    CODE_DIFFERS: "the published numbers come from code that does something else than the text.",
    GROWS: "at any length that is used the claim is off by more than the rule allows.",
    SMALLER: "our runs are smaller than the paper's.",
    OURS: "the paper does not claim it; the row is not counted with its claims.",
    LATE: "numbers of these runs had been seen before the rule was written.",
    EDGE: "a rate outside the grid might be better for a run behind the row.",
    UNTRAINED: "a run behind the row has a higher loss than a predictor of answer frequencies.",
    OUTSIDE: "the claim excludes the learning rate or the length of our runs; the row is not "
    "counted with the claims.",
    EASY: "even a random network passes; the row is not counted with the claims.",
    MOVED: "the paper's sentence does not contain that rule. This was noticed after it failed.",
    EXTENDED: "a run behind the row has more seeds than its config; an interval that is looked at "
    "twice is right less often than 95 %.",
}


class Cell(NamedTuple):
    """One run: a config without its scale, overrides, and the published value."""

    config: str  # "configs/mixit/retrieval.py:variant=standard"
    overrides: Mapping[str, str] = {}  # {"model.layers": "4"}, as on the command line
    published: float | None = None  # in the unit of the item's metric
    scales: tuple[str, ...] = ("paper", "small")  # at which the claim can be tested; best first


class Item(NamedTuple):
    """A table or a figure of a paper: one row of the ledger."""

    name: str  # "Table 2, retrieval"
    claim: str  # what the paper says, in one sentence
    cells: Mapping[str, Cell] = {}
    rules: Mapping[str, Rule] = {}  # by sentence; they decide the verdict
    metric: str = "accuracy"  # of the published values
    baseline: str = ""  # the strongest trivial predictor among the records' baselines
    note: str = ""  # a caveat: a misprint, an inconsistency, a difference of our setting
    defines: str = ""  # for a drawing or a table of settings: where the repository has its content
    needs: str = ""  # data or weights that the repository lacks
    late: bool = False  # the rules were written after numbers of the row were known
    checks: Mapping[str, Rule] = {}  # additional checks by sentence; they decide nothing
    flags: tuple[str, ...] = ()  # keys of FLAGS
    also: str = ""  # a second place of the claim: "version B, Table 3"
    primary: str = ""  # the sentence of the rule that tests the claim's essence; "": the first
    repeats: str = ""  # the item whose claim this one makes again; counted once
    merged: str = (
        ""  # the item with which this one is counted once, though the first plan counts both
    )
    earlier: tuple["Item", ...] = ()  # the row as a plan holds it, if its rules were mended since
    failure: str = ""  # one of headline.KINDS: what "did not hold" would mean

    @property
    def primary_rule(self) -> str:
        """Returns the sentence of the primary rule; "" without rules."""
        return self.primary or next(iter(self.rules), "")

    @property
    def is_counted(self) -> bool:
        """Whether the item counts as a claim of its paper."""
        return self.is_distinct and not self.merged

    @property
    def is_distinct(self) -> bool:
        """Whether the item counts as a claim in the correction of the first plan."""
        return not self.repeats and not set(self.flags) & set(NOT_COUNTED)


class Paper(NamedTuple):
    """A paper with its tables and figures."""

    key: str  # "mixit"
    title: str
    source: str  # arXiv number or venue
    items: tuple[Item, ...]


def cell_of(folder: str, file: str, arguments: str = "") -> Cell:
    """Returns the cell of configs/FOLDER/FILE.py with these arguments."""
    return Cell(f"configs/{folder}/{file}.py" + (f":{arguments}" if arguments else ""))


def late(*items: Item) -> tuple[Item, ...]:
    """Marks items whose rules were written after some of their numbers were known."""
    return tuple(item._replace(late=True) for item in items)


def checked(paper: Paper) -> Paper:
    """Returns the paper; a rule that names no cell gets its item's only cell.

    Raises UserError if a rule names a cell, a config field, a metric or a baseline that does not
    exist.
    """
    return paper._replace(items=tuple(_checked(item, paper.key) for item in paper.items))


def _checked(item: Item, paper: str) -> Item:
    for flag in item.flags:
        check_choice(f"flag of {paper} {item.name}", flag, FLAGS)
    if item.primary:
        check_choice(f"primary rule of {paper} {item.name}", item.primary, item.rules)
    if not (item.rules or item.defines or item.needs):
        raise UserError(f"{paper} {item.name} claims something and has no rule that tests it.")
    item = item._replace(earlier=tuple(_checked(version, paper) for version in item.earlier))
    rules, checks = (_with_cells(item, paper, by_text) for by_text in (item.rules, item.checks))
    for text, rule in (*rules.items(), *checks.items()):
        if not rule.can_fail():
            raise UserError(f"a rule of {paper} {item.name} cannot fail: {text!r}.")
        for side in rule.sides:
            for cell in side.cells:  # several for a mean or a difference of cells
                _check_names(item, paper, side._replace(cell=cell))
    baseline = Side("", item.baseline, is_baseline=True)
    for cell in item.cells:
        _check_names(item, paper, baseline._replace(cell=cell))
    return item._replace(rules=rules, checks=checks)


def _check_names(item: Item, paper: str, side: Side) -> None:
    """Raises if runs of the side's cell do not report its metric.

    Tasks that do not declare their metrics pass.
    """
    if not side.cell or side.metric == DIVERGED:
        return
    cell, where = item.cells[side.cell], f"{paper} {item.name}, {side.cell}:"
    config, overrides = config_string(cell, cell.scales[-1]), tuple(cell.overrides.items())
    try:
        names = names_of(config, overrides, by_group="/" in side.metric)
    except UserError as error:
        raise UserError(f"{where} {error}") from None
    kind = "baseline" if side.is_baseline else "metric"
    declared = names and getattr(names, f"{kind}s")
    if side.metric and declared is not None and side.metric not in declared:
        raise unknown(f"{kind} in a rule of {where}", side.metric, declared)


def config_string(cell: Cell, scale: str) -> str:
    """Returns "FILE:ARGUMENTS" of a cell at a scale."""
    return f"{cell.config}{',' if ':' in cell.config else ':'}scale={scale}"


def _with_cells(item: Item, paper: str, by_text: Mapping[str, Rule]) -> dict[str, Rule]:
    """Returns the rules; a side that names no cell gets the item's only cell.

    Raises UserError if a rule names a cell that the item does not have.
    """
    only_cell = next(iter(item.cells)) if len(item.cells) == 1 else ""
    rules = {}
    for text, rule in by_text.items():
        # A side without a metric is a constant and needs no cell.
        left, right = (s._replace(cell=s.cell or only_cell) if s.metric else s for s in rule.sides)
        named_cells = [cell for side in (left, right) if side.metric for cell in side.cells]
        for cell in named_cells:
            if cell not in item.cells:
                raise unknown(f"cell in a rule of {paper} {item.name}:", cell, item.cells)
        rules[text] = rule._replace(left=left, right=right)
    return rules
