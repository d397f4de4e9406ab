"""`ladder plan`, `run` and `judge` from a plan to a picture."""

from dataclasses import replace

import pytest

from experiments import ladder as command
from experiments.ledger.ladder import over
from experiments.ledger.rules import Side
from experiments.schedule import running
from experiments.schedule.jobs import Outcome
from jaxformer.io.atomic_files import write_json
from tests.experiments import pretended
from tests.experiments.ladders.small import CELLS, LADDER, SIZES, scores
from tests.experiments.made_up import population

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
