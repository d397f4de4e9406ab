"""The plan of the experiments at the papers' settings, and the command that makes its runs."""

import json
from pathlib import Path
from typing import ClassVar

import pytest

from experiments.at_size import __main__ as command
from experiments.at_size import due, plan, questions, runs
from experiments.at_size.due import When
from experiments.at_size.questions import Asked
from experiments.schedule import running
from experiments.schedule.jobs import Outcome
from jaxformer.core.errors import UserError
from jaxformer.io.atomic_files import write_json
from tests.experiments import pretended
from tests.experiments.made_up import population

CONFIG = "configs/mixit/retrieval.py:variant=standard,scale=tiny"
SHORT = {"train.steps": "4", "optim.warmup": "1"}
RATES = {"optim.learning_rate": "(1e-3,)"}
ASKED = (
    Asked("pairs/standard/search", CONFIG, SHORT | RATES, 1, 60.0, replica=1),
    Asked("pairs/standard/final", CONFIG, SHORT, 2, 90.0, rate_from=("pairs/standard/search",)),
    Asked(
        "pairs/standard/double",
        CONFIG,
        SHORT | {"train.steps": "8"},
        2,
        90.0,
        when=When(due.UNSOLVED, ("pairs/standard/final",)),
        rate_from=("pairs/standard/search",),
    ),
    Asked(
        "pairs/standard/lower",
        CONFIG,
        SHORT | {"optim.learning_rate": "(1e-5,)"},
        1,
        60.0,
        when=When(due.NEVER_LEARNS, ("pairs/standard/search",)),
    ),
)


@pytest.fixture
def planned(tmp_path):
    """A plan whose random value is drawn, and its file."""
    file = tmp_path / "PLAN.json"
    plan.write(plan.make("test-1", ASKED, {"question": "which?"}), file)
    plan.draw_value(file)
    return plan.read(file), file


class FakeExecutor(pretended.FakeExecutor):
    """Writes the files of a run that solves the task in its first seed only."""

    made: ClassVar[list] = []

    def run(self, jobs):
        for job in jobs:
            self.made.append(job)
            job.workdir.mkdir(parents=True)
            n_seeds = int(job.overrides["n_seeds"])
            result = population(job.config, job.overrides, [0.9] * n_seeds)
            for i, member in enumerate(result["members"]):
                member |= {"chosen_by": "accuracy", "validation_accuracy": 0.9}
                member |= {"learning_rate": 1e-3, "reached_at": 2 if i == 0 else None}
            write_json(
                job.workdir / "config.json",
                {"config": result["config"], "config_file": job.config},
            )
            write_json(job.workdir / "result.json", result)
            yield Outcome(job, 0, 1.0, "")


@pytest.fixture
def pretend(monkeypatch):
    monkeypatch.setattr(running, "LocalExecutor", FakeExecutor)
    monkeypatch.setattr(command, "NICENESS", 0)
    monkeypatch.setattr(FakeExecutor, "made", [])
    return FakeExecutor


def options(file):
    return [f"--plan={file}", f"--runs={file.parent}/runs"]


def test_an_edited_plan_is_refused(planned, capsys):
    _, file = planned
    content = json.loads(file.read_text())
    content["experiments"]["question"] = "another?"
    write_json(file, content)
    assert command.main(["run", *options(file)]) == 2
    assert "was edited" in capsys.readouterr().err


def test_seeds_are_not_known_before_the_value_is_drawn(tmp_path, capsys):
    file = tmp_path / "PLAN.json"
    plan.write(plan.make("test-1", ASKED, {}), file)
    assert command.main(["run", *options(file)]) == 2
    assert "has no random value" in capsys.readouterr().err
    assert command.main(["draw", *options(file)]) == 0
    assert command.main(["draw", *options(file)]) == 2
    assert "must not be drawn again" in capsys.readouterr().err


def test_a_value_gives_other_seeds_than_another_value(planned):
    made, _ = planned
    other = made._replace(value="another")
    seeds = [
        runs.job_of(p, "pairs/standard/search", {}, Path("runs")).overrides["seed"]
        for p in (made, other)
    ]
    assert seeds[0] != seeds[1]


def test_runs_follow_from_what_earlier_ones_found_and_are_made_once(planned, pretend, capsys):
    _, file = planned
    assert command.main(["run", *options(file)]) == 0
    names = [job.name for job in pretend.made]
    # The second seed of `final` missed the target, and the search beats a guess.
    assert names == [f"pairs/standard/{role}" for role in ("search", "final", "double")]
    assert pretend.made[1].overrides["optim.learning_rate"] == "(0.001,)"
    assert "lower: not needed" not in capsys.readouterr().out
    assert command.main(["run", *options(file)]) == 0
    assert len(pretend.made) == 3
    assert "all due runs are recorded" in capsys.readouterr().out
    assert command.main(["show", *options(file)]) == 0
    assert "pairs/standard/lower: not needed" in capsys.readouterr().out
    for name in names:
        record = runs.file_of(file.parent / "records", name)
        assert record.exists() and record.with_name(record.stem + ".curves.csv").exists()


def test_a_run_that_was_killed_before_its_record_is_recorded_and_not_made_again(
    planned, pretend, monkeypatch
):
    made, file = planned
    job = runs.job_of(made, "pairs/standard/search", {}, file.parent / "runs")
    list(FakeExecutor([], 0).run([job]))
    FakeExecutor.made.clear()
    assert command.main(["run", "--only=pairs/standard/search", *options(file)]) == 0
    assert not FakeExecutor.made
    assert runs.file_of(file.parent / "records", "pairs/standard/search").exists()


def test_a_run_whose_seeds_all_diverged_is_noted_and_not_made_again(
    planned, pretend, monkeypatch, capsys
):
    made, file = planned

    def diverge(self, jobs):
        for job in jobs:
            self.made.append(job)
            job.workdir.mkdir(parents=True, exist_ok=True)
            job.log().write_text("error: the loss was not finite at step 3. Try a lower rate.\n")
            yield Outcome(job, 1, 1.0, "the loss was not finite at step 3")

    monkeypatch.setattr(FakeExecutor, "run", diverge)
    only = "--only=pairs/standard/search"
    assert command.main(["run", only, *options(file)]) == 0
    assert command.main(["run", only, *options(file)]) == 0
    assert len(FakeExecutor.made) == 1
    state = runs.state_of(made, file.parent / "records")
    assert state.of_run["pairs/standard/search"] == runs.ALL_DIVERGED
    # There is no rate to take, and a grid without a survivor learns at no rate.
    assert state.of_run["pairs/standard/final"] == runs.NOT_NEEDED
    assert state.of_run["pairs/standard/lower"] == runs.DUE


def test_a_record_of_another_rate_is_refused(planned, pretend):
    made, file = planned
    command.main(["run", "--only=pairs/standard/search", *options(file)])
    command.main(["run", "--only=pairs/standard/final", *options(file)])
    record = runs.file_of(file.parent / "records", "pairs/standard/final")
    other = plan.with_hash(made._replace(name="other"))
    with pytest.raises(UserError, match="is not the run"):
        runs.state_of(other._replace(value=made.value), file.parent / "records")
    assert record.exists()


def test_a_plan_of_changed_rules_is_refused(planned):
    made, _ = planned
    with pytest.raises(UserError, match="code that decides"):
        plan.check(made._replace(code="0" * 16))
    changed = made.runs["pairs/standard/search"]._replace(digest="0" * 12)
    with pytest.raises(UserError, match="config of the run"):
        plan.check(made._replace(runs={"pairs/standard/search": changed}))


def test_every_run_depends_on_runs_that_stand_before_it():
    seen = set()
    for asked in questions.all_runs():
        assert {*asked.when.runs, *asked.rate_from} <= seen, asked.name
        assert asked.when.condition in due.CONDITIONS
        assert asked.name not in seen
        seen.add(asked.name)


def test_runs_that_are_compared_share_their_seeds_and_a_search_has_others():
    of_name = {asked.name: asked for asked in questions.all_runs()}
    for start in questions.STARTS:
        for role in ("grid", "double", "quadruple"):
            assert of_name[f"depth/{start}-16/{role}"].replica == 0
            assert of_name[f"depth/{start}-16/{role}"].seeds == 3
    search = of_name["addition/mixit-64-8/search"]
    final = of_name["addition/mixit-64-8/final"]
    assert search.replica != final.replica
    recall = [of_name[f"associations/recall/seed-{i}"] for i in range(1, 6)]
    assert len({asked.replica for asked in recall}) == 5
