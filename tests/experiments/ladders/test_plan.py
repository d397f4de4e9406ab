"""The plan: what it fixes, and which runs it makes."""

from dataclasses import replace

import pytest

from experiments import ladder as command
from experiments.confirmation.runs import overrides_with_seeds
from experiments.ladders import plan, runs
from experiments.ledger.ladder_rule import Trend
from experiments.ledger.rules import Side, of
from experiments.papers.ladders import LADDERS
from jaxformer.core.errors import UserError
from tests.experiments.ladders.small import CELLS, LADDER


def test_a_changed_plan_ladder_code_or_config_is_a_one_line_error(planned, tmp_path, monkeypatch):
    made, file = planned
    plan.check(plan.read(file), {"pairs": LADDER})
    edited = tmp_path / "PLAN.json"
    edited.write_text(file.read_text().replace('"kind": "grows"', '"kind": "shrinks"', 1))
    softer = {"pairs": replace(LADDER, rule=Trend("grows", -1.0))}
    run = next(iter(made.runs))
    deep = tmp_path / "deep.json"
    deep.write_text("[" * 100_000)
    other_config = made._replace(runs={run: made.runs[run]._replace(digest="0")})
    cases = [
        ("its hash does not fit", lambda: plan.read(edited)),
        ("is not a plan of ladders: RecursionError", lambda: plan.read(deep)),
        ("holds another plan", lambda: plan.write(made._replace(hash="0"), file)),
        ("the ladder pairs has changed", lambda: plan.check(made, softer)),
        ("the ladder pairs has changed", lambda: plan.check(made, {})),
        ("config .* has changed", lambda: plan.check(other_config, {"pairs": LADDER})),
        ("writes a plan, or give", lambda: plan.read(tmp_path / "none.json")),
    ]
    for words, act in cases:
        with pytest.raises(UserError, match=words) as error:
            act()
        assert "\n" not in str(error.value)
    monkeypatch.setattr(plan, "JUDGING_MODULES", plan.JUDGING_MODULES[:-1])
    with pytest.raises(UserError, match="the code that judges"):
        plan.check(made, {"pairs": LADDER})


def test_the_committed_plan_is_that_of_the_ladders():
    # If this fails, a rule was changed after the plan: make a new plan with a new name instead.
    committed = plan.read(command.flags.ROOT / "ladders/PLAN.json")
    plan.check(committed, LADDERS)
    assert committed.ladders.keys() == LADDERS.keys()


def test_ladders_share_runs_and_all_sizes_share_seeds():
    other = replace(
        LADDER,
        name="other",
        cells={"mixit": CELLS["mixit"]},
        left=of("mixit"),
        right=Side("", "", 0.0),
        solved="",
    )
    made = plan.make("test", [LADDER, other])
    assert made.rungs["other"][0]["mixit"] == made.rungs["pairs"][0]["mixit"]
    seeds = {overrides_with_seeds(made.hash, run)["seed"] for run in made.runs.values()}
    assert len(seeds) == 1 and len(made.runs) == 6


def test_a_figure_runs_once_for_each_seed():
    made = plan.make("test", [LADDERS["paths-width"]])
    assert len(made.runs) == 5, "one run has all widths"
    seeds = [overrides_with_seeds(made.hash, run) for run in made.runs.values()]
    assert len({s["seed"] for s in seeds}) == 5 and {s["n_seeds"] for s in seeds} == {"1"}


def test_a_quarter_of_an_hour_on_a_card_is_enough_for_some_sizes(tmp_path):
    """Guesses for one core would refuse the budget of a card, which is hundreds of times faster."""
    made = plan.make("test", [LADDERS["recall-width"], LADDERS["capacity-width-mixit"]])
    on_card = runs.jobs_by_cost(made, tmp_path, made.ladders, on_card=True)
    assert len(on_card) == 3 and all(40 < job.seconds < 300 for job in on_card.values())
    on_core = runs.jobs_by_cost(made, tmp_path, made.ladders, on_card=False)
    assert not on_card.keys() & on_core.keys()
