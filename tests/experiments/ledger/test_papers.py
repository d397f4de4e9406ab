"""The papers as data: every cell has a config, and every rule states what its numbers decide."""

import dataclasses
import re

import pytest

from experiments.cli import flags
from experiments.ledger.item import EDGE, OURS, UNTRAINED, Cell, Item, Paper, checked
from experiments.ledger.ledger import cell_key, ledger
from experiments.ledger.network_size import network_size
from experiments.ledger.record import Record
from experiments.ledger.rules import (
    HELD,
    NOT_HELD,
    NOT_RUN,
    OPEN,
    above,
    gap,
    lost,
    near,
    of,
    share_of,
    trivial,
)
from experiments.papers import PAPERS
from jaxformer.core.errors import UserError
from tests.experiments import made_up

CELL = Cell("configs/mixit/retrieval.py:variant=standard")


def test_every_item_names_configs_that_exist_and_its_own_cells():
    wrong = [
        f"{paper.key} {item.name}: {problem}"
        for paper in PAPERS.values()
        for item in paper.items
        for problem in problems_of(item)
    ]
    assert not wrong, "\n".join(wrong)


def problems_of(item):
    """Lists what is wrong with an item."""
    for name, cell in item.cells.items():
        for scale in cell.scales:
            try:
                if len(cell_key(cell, scale)) != 12:
                    yield f"the key of {name} at {scale} has another length"
            except UserError as error:
                yield f"{name} at {scale}: {error}"
    for text, rule in item.rules.items():
        for side in rule.sides:
            if not (side.cell in item.cells if side.metric else not side.cell):
                yield f"the rule {text!r} names the cell {side.cell!r}"
    if not item.claim.endswith("?" if OURS in item.flags else "."):
        yield f"its claim is no sentence: {item.claim}"
    if not (item.cells or item.needs or item.defines):
        yield "it has no cell, need or definition"
    if item.defines:
        if item.cells or item.rules or item.needs:
            yield "a definition has cells, rules or needs"
        files = re.findall(r"`([a-z_/0-9]+/[a-z_0-9*]+\.[a-z]+)`", item.defines)
        if not files or not all([*flags.ROOT.glob(file)] for file in files):
            yield f"its definition names no file that exists: {files}"


def test_a_rule_that_names_no_cell_of_its_item_is_said_when_the_papers_are_loaded():
    rules = {"B wins": above(of("standrad"), 0.5)}
    item = Item("Table 1", "claim.", {"standard": CELL, "mixit": CELL}, rules)
    with pytest.raises(UserError) as error:
        checked(Paper("p", "title", "source", (item,)))
    message = "unknown cell in a rule of p Table 1: 'standrad'. Did you mean 'standard'?"
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_rule_need_not_name_the_only_cell_of_its_item():
    rules = {
        "A wins": above("loss", trivial("", "best_constant"), by=0.1),
        "A is 1": near(1.0, "loss", 0.1),
    }
    items = (Item("Table 1", "claim.", {"a": CELL}, rules),)
    (item,) = checked(Paper("p", "title", "source", items)).items
    assert item.rules == {
        "A wins": above(of("a", "loss"), trivial("a", "best_constant"), by=0.1),
        "A is 1": near(1.0, of("a", "loss"), 0.1),
    }
    two = items[0]._replace(cells={"a": CELL, "b": CELL})
    with pytest.raises(UserError, match="unknown cell in a rule of p Table 1: ''"):
        checked(Paper("p", "title", "source", (two,)))


@pytest.mark.parametrize(
    "cell, rule, message",
    [
        (CELL, above(of("a", "acuracy"), 0.5), "metric in a rule of p Table 1, a: 'acuracy'. Did"),
        (CELL, above(of("a", "accuracy/pairs=9"), 0.5), "'accuracy/pairs=9'. Did you mean"),
        (CELL, above(gap("a", "a", "acuracy"), 0.5), "metric in a rule of p Table 1, a: 'acuracy'"),
        (CELL, above(of("a"), trivial("a", "gess")), "baseline in a rule of p Table 1, a: 'gess'"),
        (
            CELL._replace(overrides={"task.pairs": "3"}),
            above(of("a"), 0.5),
            "no field 'task.pairs'",
        ),
        (
            CELL._replace(config=CELL.config + "d"),
            above(of("a"), 0.5),
            "unknown variant 'standardd'",
        ),
        (CELL._replace(overrides={"task.vocab": "8"}), above(of("a"), 0.5), "retrieval needs"),
    ],
)
def test_a_name_that_no_run_reports_is_said_when_the_papers_are_loaded(cell, rule, message):
    for kind in ("rules", "checks"):
        item = Item("Table 1", "claim.", {"a": cell}, {"": above(of("a"), 0.5)})
        with pytest.raises(UserError) as error:
            checked(Paper("p", "title", "source", (item._replace(**{kind: {"A wins": rule}}),)))
        assert message in str(error.value) and "\n" not in str(error.value)


def test_a_name_that_a_run_reports_is_known():
    rules = {"A wins": above(of("a", "accuracy/pairs=8"), trivial("a", "in_context_guess"))}
    items = (Item("Table 1", "claim.", {"a": CELL}, rules, baseline="in_context_guess"),)
    assert checked(Paper("p", "title", "source", items)).items == items
    with pytest.raises(UserError, match="unknown baseline in a rule of p Table 1, a: 'gess'"):
        checked(Paper("p", "title", "source", (items[0]._replace(baseline="gess"),)))


def test_a_run_that_knows_less_than_frequencies_flags_its_row():
    row = verdict(above(of("a"), 0.8), record(0.9))
    assert UNTRAINED not in row.flags
    row = verdict(above(of("a"), 0.8), record(0.9, alarms=["the test loss of 3 of 3 seeds .."]))
    assert UNTRAINED in row.flags and row.verdict == HELD and not row.problems


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


def test_the_records_have_the_numbers_that_the_rules_ask_for(real_rows):
    assert [f"{row.item.name}: {p}" for row in real_rows for p in row.problems] == []


def record(mean, sem=0.0, baseline=0.5, seeds=(0, 1, 2), alarms=(), members=(), **changed):
    config = flags.to_dict(flags.load_config(CELL.config + ",scale=small")) | changed
    content = made_up.record(CELL, mean, sem)
    changed = {"config": config, "seeds": list(seeds), "baselines": {"guess": baseline}}
    changed |= {"alarms": [*alarms]} | ({"members": [*members]} if members else {})
    return Record.from_json(content | changed)


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
    gone = {"seed": 3, "chosen": True, "diverged_at": 9, "metrics": {}}
    row = verdict(above(of("a"), 0.8), dataclasses.replace(record(0.9), members=[gone]))
    assert row.verdict == OPEN and "a: seed 3 of" in row.problems[0]


@pytest.mark.parametrize("at, verdict_of", [((None, None), OPEN), ((None, 0), NOT_HELD)])
def test_a_seed_that_diverges_refutes_stability_and_seeds_that_do_not_prove_nothing(at, verdict_of):
    members = [{"seed": s, "chosen": True, "diverged_at": a} for s, a in enumerate(at)]
    members.append({"seed": 0, "chosen": False, "diverged_at": 9})  # of another learning rate
    stable = near(lost("a"), 0.0, 0.0)
    row = verdict(stable, dataclasses.replace(record(0.9), members=members))
    assert row.verdict == verdict_of
    (finding,) = row.findings
    assert finding.numbers.startswith("0.5" if 0 in at else "0 ")


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


@pytest.mark.parametrize(
    "scores, edge",
    [((0.9, 0.5, 0.4), True), ((0.4, 0.5, 0.9), True), ((0.4, 0.9, 0.5), False)]
    + [((1.0, 1.0, 1.0), False), ((0.5, 0.495, 0.1), False), ((0.9, 0.1), True)]
    # at the ceiling no rate is better
    + [((0.999, 0.5, 0.4), False), ((0.5, 0.999), False), ((0.5,), False)],
)
def test_a_best_rate_at_the_edge_of_its_grid_flags_the_row(scores, edge):
    members = [
        {"seed": seed, "learning_rate": 10.0**-i, "validation_accuracy": score + jitter}
        for i, score in enumerate(scores)
        for seed, jitter in enumerate((-0.001, 0.001))
    ]
    row = verdict(above(of("a"), 0.8), record(0.9, members=members))
    assert (EDGE in row.flags) == edge


def test_a_rate_that_a_loss_chose_is_judged_by_the_loss():
    """The accuracy is best at the middle rate, but the loss chooses another."""
    losses, accuracies = (1.0, 2.0, 3.0), (0.4, 0.9, 0.5)
    members = [
        {"seed": 0, "learning_rate": 10.0**-i, "validation_accuracy": accuracy}
        | {"chosen_by": "loss", "validation_loss": loss}
        for i, (loss, accuracy) in enumerate(zip(losses, accuracies, strict=True))
    ]
    row = verdict(above(of("a"), 0.8), record(0.9, members=members))
    assert EDGE in row.flags


def test_a_share_of_a_number_is_compared_with_its_errors():
    item = Item("Table 1", "claim.", {"a": CELL}, {"": near(0.6, share_of(of("a"), 2 / 3), 0.05)})
    for sem, expected in ((0.001, HELD), (0.2, "cannot tell yet")):
        (row,) = ledger({"p": Paper("p", "title", "source", (item,))}, [record(0.9, sem)])
        assert row.verdict == expected
    wrong = item._replace(rules={"": near(0.6, share_of(of("a"), 1 / 3), 0.05)})
    (row,) = ledger({"p": Paper("p", "title", "source", (wrong,))}, [record(0.9, 0.001)])
    assert row.verdict == "did not hold"


def test_the_size_of_a_figure_of_several_models_is_that_of_the_first():
    models = {"standard": {"width": 32, "layers": 4}, "other": {"width": 8, "layers": 1}}
    assert network_size({"figure": {"models": models}}) == "32 × 4"
    assert network_size({"figure": {"models": models, "depths": [2, 8, 32]}}) == "32 × 2 to 32"
    assert network_size({"figure": {"N": 64}}) == ""
