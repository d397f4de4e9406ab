"""The papers as data: every cell is a config that exists, and a rule says what its numbers say."""

import dataclasses
import re

import pytest

from experiments.ledger import read
from experiments.ledger.item import Cell, Item, Paper, checked
from experiments.ledger.ledger import cell_key, ledger
from experiments.ledger.record import Record
from experiments.ledger.rules import HELD, NOT_RUN, OPEN, above, near, of, trivial
from experiments.papers import PAPERS
from experiments.shared import flags
from jaxformer.errors import UserError
from tests.experiments import made_up

ITEMS = [
    pytest.param(item, id=f"{paper.key}: {item.name}")
    for paper in PAPERS.values()
    for item in paper.items
]
CELL = Cell("configs/mixit/retrieval.py:variant=standard")


@pytest.mark.parametrize("item", ITEMS)
def test_an_item_names_configs_that_exist_and_cells_of_its_own(item):
    for cell in item.cells.values():
        for scale in cell.scales:
            assert len(cell_key(cell, scale)) == 12
    for text, rule in item.rules.items():
        for side in rule.sides:
            assert side.cell in item.cells if side.metric else not side.cell, text
    assert item.claim.endswith(".") and (item.cells or item.needs or item.defines), item.name
    if item.defines:
        assert not item.cells and not item.rules and not item.needs
        files = re.findall(r"`([a-z_/0-9]+/[a-z_0-9*]+\.[a-z]+)`", item.defines)
        assert files and all([*flags.ROOT.glob(file)] for file in files), files


def test_a_rule_that_names_no_cell_of_its_item_is_said_when_the_papers_are_loaded():
    rules = {"B wins": above(of("standrad"), 0.5)}
    item = Item("Table 1", "claim.", {"standard": CELL, "mixit": CELL}, rules)
    with pytest.raises(UserError) as error:
        checked(Paper("p", "title", "source", (item,)))
    words = "unknown cell in a rule of p Table 1: 'standrad'. Did you mean 'standard'?"
    assert words in str(error.value) and "\n" not in str(error.value)


def test_a_rule_need_not_name_the_only_cell_of_its_item():
    rules = {
        "A wins": above("loss", trivial("", "guess"), by=0.1),
        "A is 1": near(1.0, "loss", 0.1),
    }
    items = (Item("Table 1", "claim.", {"a": CELL}, rules),)
    (item,) = checked(Paper("p", "title", "source", items)).items
    assert item.rules == {
        "A wins": above(of("a", "loss"), trivial("a", "guess"), by=0.1),
        "A is 1": near(1.0, of("a", "loss"), 0.1),
    }
    two = items[0]._replace(cells={"a": CELL, "b": CELL})
    with pytest.raises(UserError, match="unknown cell in a rule of p Table 1: ''"):
        checked(Paper("p", "title", "source", (two,)))


def test_a_baseline_that_no_record_has_is_said():
    item = Item("Table 1", "claim.", {"a": CELL}, baseline="gess")
    (row,) = ledger({"p": Paper("p", "title", "source", (item,))}, [record(0.9)])
    assert row.problems == [
        "unknown baseline 'gess'. Did you mean 'guess'? The choices are: guess."
    ]


def test_names_are_unique_within_a_paper():
    for paper in PAPERS.values():
        names = [item.name for item in paper.items]
        assert len(set(names)) == len(names), paper.key


def test_the_records_have_the_numbers_that_the_rules_ask_for():
    rows = ledger(PAPERS, read.load(flags.ROOT / "results")[0])
    assert [f"{row.item.name}: {p}" for row in rows for p in row.problems] == []


def record(mean, sem=0.0, baseline=0.5, seeds=(0, 1, 2), **changed):
    config = flags.plain(flags.load_config(CELL.config + ",scale=small")) | changed
    held = made_up.record(CELL, mean, sem)
    changed = {"config": config, "seeds": list(seeds), "baselines": {"guess": baseline}}
    return Record.from_json(held | changed)


def verdict(rule, *records):
    paper = Paper("p", "title", "source", (Item("Table 1", "claim.", {"a": CELL}, {"": rule}),))
    (row,) = ledger({"p": paper}, list(records))
    return row


def test_without_a_record_or_with_a_lost_metric_nothing_is_claimed():
    rule = above(of("a"), 0.8)
    assert verdict(rule).verdict == NOT_RUN
    row = verdict(above(of("a", "depth"), 0.8), record(0.9))
    assert row.verdict == NOT_RUN and "depth" in row.problems[0]


def test_another_config_is_another_cell_and_more_seeds_are_the_same_one():
    rule = above(of("a"), 0.8)
    assert verdict(rule, record(0.9, seed=7)).verdict == NOT_RUN
    row = verdict(rule, record(0.9), record(0.95, seeds=range(5), n_seeds=5))
    assert row.records["a"].metrics["accuracy"]["mean"] == 0.95
    assert "2 records" in row.problems[0]


def test_a_row_names_the_seeds_that_diverged():
    lost = {"seed": 3, "chosen": True, "diverged_at": 9, "metrics": {}}
    row = verdict(above(of("a"), 0.8), dataclasses.replace(record(0.9), members=[lost]))
    assert row.verdict == OPEN and "a: seed 3 of" in row.problems[0]


def test_a_claim_has_a_rule_and_a_flag_is_known():
    bare = Item("Table 1", "claim.", {"a": CELL})
    with pytest.raises(UserError, match="p Table 1 claims something and has no rule"):
        checked(Paper("p", "title", "source", (bare,)))
    item = Item("Table 1", "claim.", {"a": CELL}, {"": above(of("a"), 0.5)}, flags=("mispirnt",))
    with pytest.raises(UserError, match=r"unknown flag of p Table 1 'mispirnt'\. Did you mean"):
        checked(Paper("p", "title", "source", (item,)))


def test_what_is_known_beside_a_claim_decides_nothing():
    item = Item("Table 1", "claim.", {"a": CELL}, {"": above(of("a"), 0.5)})
    item = item._replace(checks={"it is 2": near(of("a"), 2.0, 0.1)})
    (row,) = ledger({"p": Paper("p", "title", "source", (item,))}, [record(0.9)])
    assert row.verdict == HELD and [check.verdict for check in row.checks] == ["did not hold"]
