"""The plan of the ledger's missing runs, their order and their times. Records are made up."""

import pytest

from experiments import recipes
from experiments.cli import flags
from experiments.ledger.item import Cell, Item, Paper
from experiments.ledger.record import SCHEMA, Record
from experiments.ledger.rules import above, gap, of, over
from experiments.schedule import launch, planning, running
from experiments.schedule.estimates import Estimator, seconds_of_file
from jaxformer import build
from jaxformer.io.run_folder import config_hash

RETRIEVAL = "configs/mixit/retrieval.py:variant={}"


def cell(variant, **overrides):
    return Cell(RETRIEVAL.format(variant), overrides)


A, B, C, D = (cell(name) for name in ("standard", "frozen_qk", "mixit", "random"))
WIDE = Item(
    "Table 1",
    "Three runs decide.",
    {"a": A, "b": B, "c": C},
    {"a wins": above(of("a"), of("b")), "and here": above(of("a"), of("c"))},
)
SHARED = Item("Table 10", "One more run.", {"c": C, "d": D}, {"": above(of("c"), 0.5)})
NO_RULE = Item("Figure 1", "Looks good.", {"extra": cell("frozen_mlp")})
ELSEWHERE = Item("Table 3", "Big.", {"e": cell("random_mixit")._replace(scales=("paper",))})
PAPERS = {
    "one": Paper("one", "title", "source", (WIDE, SHARED)),
    "two": Paper("two", "title", "source", (NO_RULE, ELSEWHERE)),
}


def record(cell, scale="small", seeds=3, accuracy=0.9, **changed):
    config = flags.to_dict(flags.load_config(planning.config_string(cell, scale)))
    config |= {"n_seeds": seeds} | changed
    held = {
        "schema": SCHEMA,
        "config": config,
        "config_hash": config_hash(build.config_identity(config)),
        "config_file": planning.config_string(cell, scale),
        "overrides": dict(cell.overrides) | ({"n_seeds": seeds} if seeds != 3 else {}),
        "seeds": list(range(seeds)),
        "steps": 100,
        "metrics": {"accuracy": {"mean": accuracy, "sem": 0.01, "n": seeds}},
        "baselines": {},
        "members": [],
        "scale": scale,
        "environment": {"commit": "0" * 40, "clean": True},
        "seconds": {"compile": 2.0, "run": 10.0, "cpu": 9.0},
    }
    return Record.from_json(held)


def plan(records=(), paper="all", only="", scale="small", seeds=0, seconds=lambda config: 10.0):
    items = planning.select_items(PAPERS, paper, only)
    result = planning.plan_runs(items, list(records), scale, seeds, seconds)
    return result, [str(run.cells[0]) for run in planning.order_runs(result, items)]


def test_verdicts_that_lack_little_come_first_and_shared_runs_once():
    result, names = plan()
    # Table 10 lacks one run, which is then one of the three of Table 1.
    assert names[0] == "one Table 1: c"
    assert set(names[1:3]) == {"one Table 1: a", "one Table 1: b"}
    assert names[3:] == ["one Table 10: d", "two Figure 1: extra"]
    (shared,) = [run for run in result if len(run.cells) > 1]
    assert tuple(map(str, shared.cells)) == ("one Table 1: c", "one Table 10: c")


def test_cheap_rules_come_before_expensive_ones():
    expensive = {"standard": 20.0, "mixit": 500.0}
    _, names = plan(
        only="Table 1", seconds=lambda config: expensive.get(config.arguments.variant, 10.0)
    )
    assert names == ["one Table 1: b", "one Table 1: a", "one Table 1: c"]


def test_a_table_that_lacks_two_expensive_runs_comes_before_one_that_lacks_three_cheap_ones():
    cheap = {name: cell("frozen_mlp", **{"model.heads": name}) for name in ("4", "8", "16")}
    rules = {"8 loses": above(of("4"), of("8")), "16 loses": above(of("4"), of("16"))}
    many = Item("Table 8", "x.", cheap, rules)
    long = Item("Table 7", "x.", {"a": A, "b": B, "c": C}, {"": above(of("a"), of("b"))})
    papers = {"p": Paper("p", "t", "s", (many, long))}
    items = planning.select_items(papers, "p", "")
    seconds = lambda c: 1.0 if c.arguments.variant == "frozen_mlp" else 900.0  # noqa: E731
    names = [
        str(run.cells[0]).removeprefix("p Table ")
        for run in planning.order_runs(planning.plan_runs(items, [], "small", 0, seconds), items)
    ]
    assert names == ["7: a", "7: b", "8: 4", "8: 8", "8: 16", "7: c"]


@pytest.mark.parametrize("side", [gap("a", "b"), over(("a", "b"), "accuracy")])
def test_a_number_of_two_cells_lacks_both_runs(side):
    item = Item("Table 5", "x.", {"a": A, "b": B}, {"": above(side, 0.0)})
    papers = {"p": Paper("p", "t", "s", (item, SHARED))}
    items = planning.select_items(papers, "p", "")
    expensive = {"mixit": 15.0, "random": 99.0}
    seconds = lambda config: expensive.get(config.arguments.variant, 10.0)  # noqa: E731
    result = planning.plan_runs(items, [], "small", 0, seconds)
    names = [str(run.cells[0]) for run in planning.order_runs(result, items)]
    # The one run of Table 10 takes less time than both of Table 5, though more than one of them.
    assert names == ["p Table 10: c", "p Table 5: a", "p Table 5: b", "p Table 10: d"]


def states(found):
    return {str(run.cells[0]).split()[-1]: run.state for run in found}


def test_recorded_runs_are_not_planned_again():
    result, names = plan([record(A), record(C, "paper")], paper="one")
    assert states(result) == {
        "a": planning.DONE,
        "b": planning.MISSING,
        "c": planning.DONE,  # at the paper's scale, which is better
        "d": planning.MISSING,
    }
    assert names == ["one Table 1: b", "one Table 10: d"]
    assert states(plan([record(A)], scale="paper")[0])["a"] == planning.MISSING


def test_a_record_of_a_past_config_and_one_of_few_seeds_are_replaced():
    past = record(A, seed=5)
    result, names = plan([past, record(C)], paper="one", seeds=4)
    assert states(result)["a"] == planning.CHANGED and states(result)["c"] == planning.FEWER_SEEDS
    assert names[-1] == "one Table 1: c"
    by_name = {str(run.cells[0]): run for run in result}
    assert by_name["one Table 1: a"].replaces == (past,)
    assert by_name["one Table 1: c"].overrides == {"n_seeds": "4"}
    assert states(plan([record(C)], paper="one", seeds=3)[0])["c"] == planning.DONE
    assert plan(seeds=3)[0][0].overrides == {}  # what the config says anyway


def test_only_some_runs_use_seeds():
    uses = lambda file: recipes.uses_seeds(flags.load_config(file))  # noqa: E731
    assert uses("configs/two_failure_modes/fig1_depth.py") and uses("configs/mixit/addition.py")
    assert not uses("configs/mixit/sde_paths.py")
    assert not uses("configs/attention_paths/posterior.py")


def test_a_missing_config_is_reported_and_the_rest_is_planned():
    lost = Item("Table 4", "x.", {"gone": Cell("configs/mixit/gone.py:variant=a"), "a": A})
    papers = {"p": Paper("p", "t", "s", (lost,))}
    items = planning.select_items(papers, "p", "")
    result = planning.plan_runs(items, [], "small", 0, lambda config: 1.0)
    assert states(result) == {"gone": planning.CONFIG_MISSING, "a": planning.MISSING}
    assert [str(run.cells[0]) for run in planning.order_runs(result, items)] == ["p Table 4: a"]


def test_table_1_is_not_table_10():
    assert [item.name for _, item in planning.select_items(PAPERS, "all", "table 1")] == ["Table 1"]
    assert len(planning.select_items(PAPERS, "all", "Table")) == 3


def test_estimates_come_from_equal_records_then_similar_ones_then_the_config_file():
    estimate = Estimator([record(A, seeds=2)])
    config = flags.load_config(A.config + ",scale=small")
    assert estimate(config) == pytest.approx(12 * 3 / 2)  # two seeds took 12 s
    config.train.steps = 2000
    fast = estimate(config)
    config.train.steps = 4000
    assert estimate(config) - fast == pytest.approx(fast - 12, rel=0.01)  # twice the work
    assert Estimator([])(flags.load_config("configs/mixit/sde_paths.py:scale=tiny")) == 5 + 12


FILE_SECONDS = [
    ("mixit/retrieval.py:variant=standard,scale=small", {}, 120),
    ("mixit/retrieval.py:variant=mixit,scale=small", {}, 720),  # three rates, twice the steps
    ("mixit/retrieval.py:variant=mixit,scale=tiny", {"train.steps": 16_000}, 600),
    ("associations/recall.py:scale=small", {}, 190),
    ("associations/recall.py:scale=small", {"n_seeds": 10}, 380),
    ("mixit/covariance_depth.py:when=initialisation,scale=small", {}, 15),
    ("mixit/covariance_depth.py:when=trained,scale=small", {}, 1200),
    ("attention_paths/oneshot.py:scale=tiny", {}, 30),
]


def test_seconds_of_a_config_file_grow_with_the_work():
    expected, estimates = [seconds for *_, seconds in FILE_SECONDS], []
    for file, changes, _ in FILE_SECONDS:
        config = flags.load_config(f"configs/{file}")
        config.update_from_flattened_dict(changes)
        estimates.append(seconds_of_file(flags.to_dict(config)))
    assert estimates == pytest.approx(expected)


def test_a_missing_config_takes_the_default_time_of_its_scale():
    assert seconds_of_file({"name": "nothing", "arguments": {"scale": "tiny"}}) == 20


def test_parallel_runs_take_at_least_as_long_as_the_longest(tmp_path):
    config = "configs/mixit/retrieval.py:scale=tiny"
    jobs = [
        launch.make_job(f"job {s}", config, {}, tmp_path / str(s), seconds=s) for s in (10, 20, 60)
    ]
    assert [running.parallel_seconds(jobs, n) for n in (1, 2, 64)] == [90, 60, 60]
    assert running.parallel_seconds([], 2) == 0


def test_a_short_run_does_not_change_the_estimate_of_a_long_one():
    file = "configs/mixit/covariance_depth.py"
    short = Cell(f"{file}:when=initialisation")
    estimate = Estimator([record(short, seeds=5)])
    assert estimate(flags.load_config(f"{short.config},scale=small")) == pytest.approx(12.0)
    assert estimate(flags.load_config(f"{short.config},preset=authors,scale=small")) == 12 + 10
    assert estimate(flags.load_config(f"{file}:when=trained,scale=small")) > 1000
