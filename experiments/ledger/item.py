"""A paper, its tables and figures, and the runs behind each: plain values."""

from collections.abc import Mapping
from typing import NamedTuple

from experiments.ledger.rules import Rule
from jaxformer.errors import UserError, check_choice, unknown

CHANCE = "the published number is chance level"
MISPRINT = "misprint"
CODE_DIFFERS = "the authors' code differs from the text"
GROWS = "holds only as T grows without bound"
SMALLER = "smaller scale"
LATE = "rule written after the numbers"
FLAGS = {
    CHANCE: "a trivial predictor scores as much on the same kind of data.",
    MISPRINT: "as printed it is false; the corrected form is judged or stands in the caveat.",
    CODE_DIFFERS: "the published numbers come from code that does something else than the text.",
    GROWS: "at any length that is used the claim is off by more than the rule allows.",
    SMALLER: "our runs are smaller than the paper's.",
    LATE: "numbers of these runs had been seen before the rule was written.",
}


class Cell(NamedTuple):
    """One run: a config without its scale, fields changed, and what the paper prints for it."""

    config: str  # "configs/mixit/retrieval.py:variant=standard"
    overrides: Mapping[str, str] = {}  # {"model.layers": "4"}, as flags spell them
    published: float | None = None  # in the unit of the item's metric
    scales: tuple[str, ...] = ("paper", "small")  # where the cell means the same; best first


class Item(NamedTuple):
    """A table or a figure: one row of the ledger."""

    name: str  # "Table 2, retrieval"
    claim: str  # what the paper says, in one sentence
    cells: Mapping[str, Cell] = {}
    rules: Mapping[str, Rule] = {}  # by what the paper claims, in words: they decide the verdict
    metric: str = "accuracy"  # the one that `published` is about
    baseline: str = ""  # the strongest trivial predictor among the records' baselines
    note: str = ""  # a typo, an inconsistency, what our setting changes
    defines: str = ""  # a drawing or a table of settings, which claims no number: where it is here
    needs: str = ""  # data or weights that the repository does not have
    late: bool = False  # numbers of it had been seen before its rules were written
    checks: Mapping[str, Rule] = {}  # by what else is to be known, in words: they decide nothing
    flags: tuple[str, ...] = ()  # of FLAGS: what a reader must know beside the verdict
    also: str = ""  # where the claim stands a second time: "version B, Table 3"


class Paper(NamedTuple):
    key: str  # "mixit"
    title: str
    source: str  # arXiv number or venue
    items: tuple[Item, ...]


def cell_of(folder: str, file: str, arguments: str = "") -> Cell:
    """The run of configs/FOLDER/FILE.py with these arguments."""
    return Cell(f"configs/{folder}/{file}.py" + (f":{arguments}" if arguments else ""))


def late(*items: Item) -> tuple[Item, ...]:
    """Items of which numbers had been seen before their rules were written."""
    return tuple(item._replace(late=True) for item in items)


def checked(paper: Paper) -> Paper:
    """The paper, if its rules name cells of their own items; the only cell of one is filled in."""
    return paper._replace(items=tuple(_checked(item, paper.key) for item in paper.items))


def _checked(item: Item, paper: str) -> Item:
    for flag in item.flags:
        check_choice(f"flag of {paper} {item.name}", flag, FLAGS)
    if not (item.rules or item.defines or item.needs):
        raise UserError(f"{paper} {item.name} claims something and has no rule that tests it.")
    rules, checks = (_with_cells(item, paper, of) for of in (item.rules, item.checks))
    return item._replace(rules=rules, checks=checks)


def _with_cells(item: Item, paper: str, asked: Mapping[str, Rule]) -> dict[str, Rule]:
    only = next(iter(item.cells)) if len(item.cells) == 1 else ""
    rules = {}
    for text, rule in asked.items():
        left, right = (s._replace(cell=s.cell or only) if s.metric else s for s in rule.sides)
        for cell in (cell for side in (left, right) if side.metric for cell in side.cells):
            if cell not in item.cells:
                raise unknown(f"cell in a rule of {paper} {item.name}:", cell, item.cells)
        rules[text] = rule._replace(left=left, right=right)
    return rules
