"""Ladders: rules that are fixed before the runs, trends, and what happens to unusable sizes."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from experiments import ladder as command
from experiments.confirmation.runs import overrides_with_seeds, record_file
from experiments.ladders import judgement, plan, runs, shown, table
from experiments.ladders.judgement import Measured
from experiments.ladders.ladder import Ladder, Rung, over
from experiments.ladders.rule import Trend
from experiments.ledger import validate_record
from experiments.ledger.item import Cell
from experiments.ledger.rules import HELD, NOT_HELD, NOT_RUN, OPEN, Side, of
from experiments.papers import PAPERS
from experiments.papers.ladders import LADDERS
from experiments.schedule import running
from experiments.schedule.jobs import Outcome
from jaxformer.core.errors import UserError
from jaxformer.io.atomic_files import write_json
from jaxformer.stats import trend
from jaxformer.stats.differences import Number
from jaxformer.stats.trend import Estimate
from tests.experiments import pretended
from tests.experiments.made_up import population

CELLS = {
    name: Cell(f"configs/mixit/retrieval.py:variant={name},scale=tiny")
    for name in ("standard", "mixit")
}
SIZES = (4, 8, 16)
LADDER = Ladder(
    "pairs",
    "mixit: Table 2, retrieval",
    "MixiT must fall behind with more pairs.",
    "Standard minus MixiT",
    "M, pairs",
    CELLS,
    of("standard"),
    of("mixit"),
    Trend("grows"),
    over({size: 1 for size in SIZES}, {"task.max_pairs": "{size}", "task.vocab": "64"}),
    paper_size=30,
    published=0.888,
    limits=(-1.0, 1.0),
    solved="standard",
)
JITTER = 0.001 * np.arange(-2, 3)


def measured(ladder: Ladder, values) -> list[Measured]:
    """Sizes whose five seeds have these means."""
    made = []
    rungs = [rung for rung in ladder.rungs if not rung.on_card]
    for rung, value in zip(rungs, values, strict=True):
        by_seed = dict(enumerate((value + JITTER).tolist()))
        number = Number(float(value), float(JITTER.std(ddof=1) / 5**0.5), 5, by_seed=by_seed)
        made.append(Measured(rung, number, trend.estimate([number], [1.0]), core_seconds=60.0))
    return made


def right_and_wrong(ladder: Ladder) -> tuple[np.ndarray, np.ndarray]:
    """Values that obey a ladder's rule, and values of the opposite trend."""
    logs = np.log2([rung.size for rung in ladder.rungs if not rung.on_card])
    by, kind = ladder.rule.by, ladder.rule.kind
    if kind == "grows":
        return 0.3 + (by + 0.02) * (logs - logs[0]), 0.3 - 0.02 * (logs - logs[0])
    if kind == "shrinks":
        return 0.3 - (by + 0.02) * (logs - logs[0]), 0.3 + 0.02 * (logs - logs[0])
    if kind == "vanishes":
        return by - 0.02 + 0.05 * (logs[-1] - logs), by + 0.02 + 0.05 * (logs - logs[0])
    sign = 1 if kind == "stays above" else -1
    steps = (logs - logs[0]) / (logs[-1] - logs[0])
    return by + sign * (0.05 + 0 * logs), by + sign * (0.05 - 0.1 * steps)


@pytest.mark.parametrize("name", LADDERS)
def test_the_rule_of_every_ladder_rejects_the_opposite_trend(name):
    ladder = LADDERS[name]
    right, wrong = right_and_wrong(ladder)
    assert judgement.judge(ladder, measured(ladder, right)).verdict == HELD
    assert judgement.judge(ladder, measured(ladder, wrong)).verdict == NOT_HELD


@pytest.mark.parametrize("name", LADDERS)
def test_every_ladder_follows_a_row_of_the_ledger(name):
    paper, _, item = LADDERS[name].row.partition(": ")
    assert item in {i.name for i in PAPERS[paper].items}


def test_each_of_four_papers_has_at_least_two_ladders():
    papers = [ladder.row.partition(": ")[0] for ladder in LADDERS.values()]
    assert all(papers.count(p) >= 2 for p in set(papers)) and set(papers) == set(PAPERS)


@pytest.mark.parametrize(
    ("rule", "values", "verdict"),
    [
        (Trend("grows"), (0.1, 0.1, 0.1), OPEN),  # flat, so neither
        (Trend("grows", 0.05), (0.1, 0.12, 0.14), NOT_HELD),  # too slow
        (Trend("stays above", 0.2), (0.4, 0.3, 0.21), OPEN),  # it may level off, or go on falling
        (Trend("stays above", 0.2), (0.1, 0.3, 0.4), NOT_HELD),  # one size contradicts
        (Trend("stays below", 0.2), (0.1, 0.1, 0.17), OPEN),  # it bends again
        (Trend("vanishes", 0.05), (0.3, 0.15, 0.04), HELD),
        (Trend("vanishes", 0.05), (0.3, 0.2, 0.1), OPEN),  # the last size still has it
        (Trend("vanishes", 0.05), (0.3, 0.25, 0.2), NOT_HELD),  # too slow
        (Trend("vanishes", 0.05), (0.01, 0.01, 0.01), HELD),  # nothing was there
        (Trend("vanishes", 0.05), (0.01, 0.02, 0.03), NOT_HELD),  # little, but it grows
    ],
)
def test_what_a_rule_asks(rule, values, verdict):
    ladder = replace(LADDER, rule=rule)
    assert judgement.judge(ladder, measured(ladder, values)).verdict == verdict


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rungs": over({8: 1})}, "needs at least 3 rungs"),
        ({"rungs": ()}, "its sizes are none"),
        ({"rungs": over({4: 1, 8: 1, 16: 1}, card=(16,))}, "without an accelerator"),
        ({"rungs": over({16: 1, 8: 1, 4: 1})}, "in order, smallest first; they are 16, 8, 4"),
        ({"rungs": over({4: 1, 8: 1, 9: 1})}, "about twice the one before"),
        ({"paper_size": None}, "needs the paper's size"),
        ({"seeds": 3}, "needs 5 seeds, got 3"),
        ({"rungs": over({4: 1, 8: 1, 16: 1}, {"n_seeds": "3"})}, "unequal seeds"),
        ({"cells": {n: c._replace(overrides={"seed": "1"}) for n, c in CELLS.items()}}, "unequal"),
        ({"rule": Trend("rises")}, "unknown kind of trend"),
        ({"left": of("standrad")}, "Did you mean 'standard'"),
        ({"solved": "nobody"}, "unknown solved cell"),
        (
            {"rungs": (Rung(4, on_card=True), *over({8: 1, 16: 1, 32: 1}))},
            "a rung for a card below one for a CPU",
        ),
    ],
)
def test_a_wrong_ladder_is_a_one_line_error(changes, words):
    with pytest.raises(UserError, match=words) as error:
        replace(LADDER, **changes)
    assert "\n" not in str(error.value)


def test_three_seeds_suffice_where_a_size_takes_an_hour_a_seed():
    long = over({4: 1, 8: 1, 16: 200})
    assert replace(LADDER, rungs=long, seeds=3).seeds == 3


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """A plan of one ladder and its file."""
    made = plan.make("test-1", [LADDER])
    file = tmp_path_factory.mktemp("ladders") / "PLAN.json"
    plan.write(made, file)
    return made, file


def scores(variant: str, size: float, turn: int = 1) -> list[float]:
    """Accuracies of five seeds: Standard solves the task, MixiT loses .1 with every doubling."""
    middle = 0.98 if variant == "standard" else 0.7 - turn * 0.1 * math.log2(size / 8)
    return (middle + 0.002 * np.arange(-2, 3) * (1 if variant == "standard" else -1)).tolist()


def write_records(made, folder, turn=1, change=lambda content, size, cell: content, skip=()):
    folder.mkdir(exist_ok=True)
    for rung, cells in zip(LADDER.rungs, made.rungs["pairs"], strict=True):
        for cell, (name,) in cells.items():
            if (rung.size, cell) in skip:
                continue
            run = made.runs[name]
            overrides = overrides_with_seeds(made.hash, run)
            content = population(run.config, overrides, scores(cell, rung.size, turn))
            content = change(content, rung.size, cell)
            content.pop("sum")
            content["sum"] = validate_record.sum_of(content)
            record_file(folder, name).write_text(json.dumps(content))


def judged(made, folder):
    (one,) = runs.judge_all(made, {"pairs": LADDER}, folder, folder / "runs")
    return one


def test_records_with_the_claimed_trend_hold_and_those_with_the_opposite_one_do_not(
    planned, tmp_path
):
    made, _ = planned
    write_records(made, tmp_path / "as claimed")
    grows = judged(made, tmp_path / "as claimed")
    assert grows.verdict == HELD and grows.is_complete
    assert grows.slope.mean == pytest.approx(0.1) and grows.slope.low > 0.09
    assert grows.predicted.mean == pytest.approx(0.28 + 0.1 * math.log2(30 / 8))
    text = table.sentence(grows)
    assert "at the paper's size, 30, the trend predicts 0.471" in text
    assert "an extrapolation by a factor of 1.88; published 0.888" in text
    write_records(made, tmp_path / "opposite", turn=-1)
    assert judged(made, tmp_path / "opposite").verdict == NOT_HELD


def test_a_diverged_seed_leaves_its_size_out_and_says_so(planned, tmp_path):
    made, _ = planned

    def diverge(content, size, cell):
        if (size, cell) == (8, "mixit"):
            content["members"][2]["diverged_at"] = 70
        return content

    write_records(made, tmp_path / "records", change=diverge)
    one = judged(made, tmp_path / "records")
    assert one.verdict == OPEN and one.slope is None and one.is_complete
    seed = one.measured[1].problem
    assert seed.startswith("mixit: seed ") and seed.endswith("diverged")
    assert any("M, pairs = 8 does not count: mixit: seed" in line for line in table.details(one))


def test_a_size_at_which_the_task_is_not_solved_is_left_out(planned, tmp_path):
    """Two variants that both fail have no gap, which would look like a gap that closes."""
    made, _ = planned

    def fail(content, size, cell):
        if size < 16 or cell == "mixit":
            return content
        overrides = content["overrides"]
        return population(content["config_file"], overrides, [0.3, 0.31, 0.32, 0.33, 0.34])

    write_records(made, tmp_path / "records", change=fail)
    one = judged(made, tmp_path / "records")
    assert one.measured[2].problem == "standard reaches 0.32, so the task is not solved"
    assert one.verdict == OPEN


def test_the_line_of_a_row_goes_over_the_sizes_that_count(tmp_path, monkeypatch):
    ladder = replace(LADDER, rungs=over({2: 1} | dict.fromkeys(SIZES, 1)))
    sizes = measured(ladder, (0.01, 0.2, 0.3, 0.4))
    too_hard = sizes[0]._replace(problem="standard reaches 0.32, so the task is not solved")
    made = plan.make("test", [ladder])
    plan.write(made, tmp_path / "PLAN.json")
    monkeypatch.setattr(shown, "LADDERS", {"pairs": ladder})

    def sentence(*measured):
        found = judgement.judge(ladder, measured)
        monkeypatch.setattr(shown.runs, "judge_all", lambda *_: [found])
        ((trend,),) = shown.trends(tmp_path).values()
        return trend.sentence

    assert sentence(too_hard, *sizes[1:]).startswith(
        "With size: from 4 to 16 (M, pairs) the Standard minus MixiT goes from 0.2 to 0.4, so "
    )
    # Two sizes have no trend.
    without_score = sizes[1]._replace(problem="mixit: seed 3 diverged", core_seconds=9.0)
    assert sentence(too_hard._replace(core_seconds=9.0), without_score, *sizes[2:]) == ""


def test_a_paper_below_the_smallest_size_is_an_extrapolation_too():
    ladder = replace(LADDER, paper_size=1)
    found = judgement.judge(ladder, measured(ladder, (0.1, 0.2, 0.3)))
    assert ", an extrapolation by a factor of 4;" in table.sentence(found)
    inside = replace(LADDER, paper_size=6)
    found = judgement.judge(inside, measured(inside, (0.1, 0.2, 0.3)))
    assert "extrapolation" not in table.sentence(found)


def test_a_record_of_other_packages_is_not_used(planned, tmp_path):
    made, _ = planned

    def older(content, size, cell):
        content["environment"]["versions"] = {"jax": "0.9" if size == 16 else "0.10"}
        return content

    write_records(made, tmp_path / "records", change=older)
    one = judged(made, tmp_path / "records")
    assert "ran with other versions of jax: run it again" in one.measured[2].problem


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda content: content | {"seeds": content["seeds"][:4]}, "4 seeds, the plan"),
        (lambda content: content | {"config_hash": "0" * 12}, "another config or other seeds"),
        (lambda content: content | {"schema": 1}, "schema 1, this version reads"),
    ],
)
def test_a_foreign_record_says_what_to_do_and_does_not_stop_the_others(
    planned, tmp_path, change, words
):
    made, _ = planned
    write_records(
        made,
        tmp_path / "records",
        change=lambda content, size, cell: change(content) if size == 8 else content,
    )
    one = judged(made, tmp_path / "records")
    assert words in one.measured[1].problem and "jaxformer ladder run" in one.measured[1].problem
    assert one.measured[0].counts and one.measured[2].counts and one.verdict == NOT_RUN


def test_an_interrupted_size_says_that_run_resumes_it(planned, tmp_path):
    made, _ = planned
    write_records(made, tmp_path / "records", skip={(16, "mixit")})
    half = judged(made, tmp_path / "records")
    assert table.details(half)[-1] == "M, pairs = 16 does not count: 1 of 2 runs are recorded"
    folder = tmp_path / "records/runs"
    (job,) = (
        job
        for name, job in runs.jobs_by_cost(made, folder, ["pairs"], on_card=False).items()
        if name == made.rungs["pairs"][2]["mixit"][0]
    )
    job.workdir.mkdir(parents=True)
    (job.workdir / "config.json").write_text("{}")
    assert "interrupted" in judged(made, tmp_path / "records").measured[2].problem


def test_a_size_on_a_card_tests_the_prediction_and_decides_nothing():
    ladder = replace(LADDER, rungs=(*LADDER.rungs, Rung(32, on_card=True)), rule=Trend("grows"))
    sizes = measured(ladder, (0.1, 0.2, 0.3))
    without = judgement.judge(ladder, [*sizes, Measured(ladder.rungs[-1])])
    number = sizes[0].number
    on_card = Measured(ladder.rungs[-1], number, sizes[0].value, core_seconds=9.0)
    with_card = judgement.judge(ladder, [*sizes, on_card])
    assert with_card[2:] == without[2:] and without.verdict == HELD and without.is_complete
    # The time on a card says nothing about that on a core.
    waiting = [*sizes[:2], Measured(sizes[2].rung), on_card]
    assert table.next_cost(judgement.judge(ladder, waiting)) == "16: 1 min 0 s"
    (line,) = table.card_sentences(with_card)
    assert line.startswith("size 32 on a card: predicted 0.4")


def test_estimates_have_the_digits_of_their_interval():
    assert table.short(Estimate(0.0234, -0.000645, 0.0474)) == "0.023 (-0.001 to 0.047)"
    assert table.short(Estimate(-0.00001, -0.2, 0.2)) == "0.00 (-0.20 to 0.20)"
    assert table.short(Estimate(12.3, -40.0, 64.0)) == "12 (-40 to 64)"
    assert table.short(Estimate(0.5, 0.5, 0.5)) == "0.50000 (0.50000 to 0.50000)"
    assert table.short(None) == "-"


def test_ladders_with_a_verdict_come_first():
    sizes = measured(LADDER, (0.1, 0.2, 0.3))
    waiting = [Measured(rung) for rung in LADDER.rungs]
    none, some, done = (
        judgement.judge(LADDER, runs) for runs in (waiting, [sizes[0], *waiting[1:]], sizes)
    )
    assert table.by_progress([none, some, done]) == [done, some, none]


def test_a_quarter_of_an_hour_on_a_card_is_enough_for_some_sizes(tmp_path):
    """Guesses for one core would refuse the budget of a card, which is hundreds of times faster."""
    made = plan.make("test", [LADDERS["recall-width"], LADDERS["capacity-width-mixit"]])
    on_card = runs.jobs_by_cost(made, tmp_path, made.ladders, on_card=True)
    assert len(on_card) == 3 and all(40 < job.seconds < 300 for job in on_card.values())
    on_core = runs.jobs_by_cost(made, tmp_path, made.ladders, on_card=False)
    assert not on_card.keys() & on_core.keys()


def test_a_changed_plan_ladder_code_or_config_is_a_one_line_error(planned, tmp_path, monkeypatch):
    made, file = planned
    plan.check(plan.read(file), {"pairs": LADDER})
    edited = tmp_path / "PLAN.json"
    edited.write_text(file.read_text().replace('"kind": "grows"', '"kind": "shrinks"', 1))
    softer = {"pairs": replace(LADDER, rule=Trend("grows", -1.0))}
    run = next(iter(made.runs))
    other_config = made._replace(runs={run: made.runs[run]._replace(digest="0")})
    cases = [
        ("its hash does not fit", lambda: plan.read(edited)),
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


TINY = replace(
    LADDER,
    name="tiny",
    cells={
        "standard": CELLS["standard"]._replace(overrides={"train.steps": "4", "optim.warmup": "1"})
    },
    right=Side("", "", 0.0),
    rungs=over({2: 0.1, 4: 0.1, 8: 0.1}, {"task.max_pairs": "{size}"}),
    limits=(0.0, 1.0),
    solved="",
)


class FakeExecutor(pretended.FakeExecutor):
    """Writes the files of a run instead of training it."""

    def run(self, jobs):
        for job in jobs:
            job.workdir.mkdir(parents=True)
            result = population(job.config, job.overrides, scores("standard", SIZES[0]))
            identity = {"config": result["config"], "config_file": job.config}
            write_json(job.workdir / "config.json", identity)
            write_json(job.workdir / "result.json", result)
            yield Outcome(job, 0, 1.0, "")


# The three trainings in processes of their own take most of a minute.
@pytest.mark.parametrize("trains", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_tiny_ladder_from_plan_to_picture(trains, tmp_path, capsys, monkeypatch):
    if not trains:
        monkeypatch.setattr(running, "LocalExecutor", FakeExecutor)
    monkeypatch.setattr(command, "DOCS", tmp_path / "ladders.md")
    monkeypatch.setattr(command, "PICTURES", tmp_path / "ladders")
    monkeypatch.setattr(command, "NICENESS", 0)
    (tmp_path / "ladders.md").write_text(f"# Ladders\n{command.BEGIN}\nold\n{command.END}\nend\n")
    ladders = {"tiny": TINY}
    options = [f"--plan={tmp_path}/PLAN.json", f"--workdir={tmp_path}/runs"]
    assert command.main(["plan", *options], ladders) == 0
    assert command.main(["judge", *options], ladders) == 0
    assert "sizes run: 0 of 3" in capsys.readouterr().out
    assert command.main(["run", *options], ladders) == 0
    assert "ran 3 of 3" in capsys.readouterr().out
    assert command.main(["run", *options], ladders) == 0
    assert "all 3 runs are recorded" in capsys.readouterr().out
    assert command.main(["judge", "--write", *options], ladders) == 0
    text = (tmp_path / "ladders.md").read_text()
    assert "| tiny | 3 of 3 | 2: " in text and text.endswith(f"{command.END}\nend\n")
    assert "\nold\n" not in text and (tmp_path / "ladders/tiny.png").stat().st_size > 1000


def test_wrong_words_on_the_command_line_are_one_line_errors(planned, capsys):
    _, file = planned
    ladders = {"pairs": LADDER}
    for arguments, words in (
        (["plann"], "Did you mean 'plan'"),
        (["judge", "--only=pears", f"--plan={file}"], "ladder of the plan"),
        (["run", "--card", f"--plan={file}"], "leave out --card"),
        (["run", "--budget=1s", f"--plan={file}"], "a budget of 1 s is too small"),
    ):
        assert command.main(arguments, ladders) == 2
        assert words in capsys.readouterr().err
