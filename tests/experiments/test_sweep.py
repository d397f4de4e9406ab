"""Grids, the runs of a sweep and its table. All runs but one are made up."""

import csv
import signal
from typing import NamedTuple

import pytest

from experiments import sweep
from experiments.cli import flags
from experiments.schedule import grids, launch, running, sweep_table
from experiments.schedule.launch import Outcome
from jaxformer.core.errors import UserError
from jaxformer.io.atomic_files import write_json
from jaxformer.io.run_folder import Workdir

CONFIG = "configs/mixit/memorization.py:scale=tiny,variant={standard,mixit}"
FILES = sorted((flags.ROOT / "configs/sweeps").glob("*.toml"))


def test_braces_and_fields_multiply_and_learning_rates_do_not():
    grid = grids.parse_grid(["model.layers=2,4", "optim.learning_rate=1e-3,3e-3", "seed=5,6,7"])
    runs = grids.expand(CONFIG, grid, {"train.steps": "9"})
    assert [(run.config[-8:], run.varied) for run in runs] == [
        ("standard", {"model.layers": "2"}),
        ("standard", {"model.layers": "4"}),
        ("nt=mixit", {"model.layers": "2"}),
        ("nt=mixit", {"model.layers": "4"}),
    ]
    config = launch.config_dict(runs[0].config, runs[0].overrides)
    assert config["optim"]["learning_rate"] == (1e-3, 3e-3)
    assert (config["seed"], config["n_seeds"], config["train"]["steps"]) == (5, 3, 9)


def test_seeds_become_runs_if_they_are_not_consecutive_or_not_used():
    assert len(grids.expand(CONFIG, {"seed": ["0", "2"]}, {})) == 4
    assert len(grids.expand("configs/mixit/sde_paths.py:scale=tiny", {"seed": ["0", "1"]}, {})) == 2


def test_joined_fields_and_values_with_commas():
    grid = grids.parse_grid(["model.width+model.mlp_width=16+64,32+128"])
    varied = [run.varied for run in grids.expand("configs/mixit/hops.py:variant=mixit", grid, {})]
    assert varied == [
        {"model.width": "16", "model.mlp_width": "64"},
        {"model.width": "32", "model.mlp_width": "128"},
    ]
    values = grids.parse_grid(["figure.widths=(20, 40),(10,)"])["figure.widths"]
    assert values == ["(20, 40)", "(10,)"]


def test_sweep_files_name_configs_and_fields_that_exist(tmp_path):
    failures = []
    for file in FILES:
        if file.stem not in "".join(file.read_text().splitlines()[:3]):
            failures.append(f"{file.stem}: the first lines do not show the command")
        try:
            runs = grids.expand(*grids.read_file(str(file)))
            for run in (runs[0], runs[-1]):
                launch.make_job("a", run.config, run.overrides, tmp_path)
        except UserError as error:
            failures.append(f"{file.stem}: {error}")
    assert FILES and not failures


def test_table_7_has_the_published_sizes():
    config, grid, fields = grids.read_file("configs/sweeps/table7_retrieval.toml")
    runs = grids.expand(config, grid, fields)
    assert len(runs) == 4 * 3 * 2 * 4 * 3
    last = launch.config_dict(runs[-1].config, runs[-1].overrides)
    model = last["model"]
    assert (model["layers"], model["width"], model["mlp_width"]) == (8, 1024, 4096)
    assert (model["heads"], last["train"]["batch_size"]) == (64, 1024)
    assert last["optim"]["learning_rate"] == (1e-3, 5e-4, 1e-4)


WRONG_FILES = [
    ("grid = [", "is not TOML"),
    ("[gird]\na = [1]", "'gird'"),
    ("[grid]\n'model.layers' = 2", "model.layers must be a list of values"),
    ("[grid]\n'model.layers' = []", "model.layers must be a list of values"),
]


def test_wrong_sweep_files_are_one_line_errors(tmp_path):
    file, failures = tmp_path / "sweep.toml", []
    for text, message in WRONG_FILES:
        file.write_text(text)
        with pytest.raises(UserError) as error:
            grids.read_file(str(file))
        if message not in str(error.value):
            failures.append(f"{text!r}: expected {message!r}, got {error.value}")
    assert not failures


def member(seed, rate, validation, test, diverged_at=None):
    return {
        "seed": seed,
        "learning_rate": rate,
        "validation_accuracy": validation,
        "metrics": {"accuracy": {"mean": test, "sem": 0.01, "n": 40}},
        "diverged_at": diverged_at,
    }


def finished(workdir, members):
    workdir.mkdir(parents=True)
    result = {"config": {}, "seeds": [0, 1], "members": members, "metrics": {}}
    write_json(workdir / "result.json", result)


def test_the_best_is_chosen_on_validation_and_reported_on_the_test(tmp_path, capsys):
    config = "configs/mixit/memorization.py:variant=mixit,scale=tiny"
    runs = grids.expand(config, {"model.layers": ["1", "2"]}, {})
    jobs = [launch.make_job("j", run.config, run.overrides, tmp_path) for run in runs]
    finished(
        jobs[0].workdir,
        [
            member(0, 1e-3, 0.5, 0.99),  # best on the test, which must not count
            member(1, 1e-3, 0.5, 0.99),
            member(0, 1e-2, 0.8, 0.6),
            member(1, 1e-2, 0.9, 0.8),
        ],
    )
    finished(
        jobs[1].workdir, [member(0, 1e-2, 1.0, 1.0), member(1, 1e-2, None, None, diverged_at=7)]
    )
    rows = sweep_table.rows_of_runs(list(zip(runs, jobs, strict=True)))
    (best,) = [row for row in rows if row.best]
    assert best.rate == 1e-2 and best.varied == {"model.layers": "1"}
    assert best.metrics["accuracy"].mean == pytest.approx(0.7)
    assert best.metrics["accuracy"].sem == pytest.approx(0.1)
    sweep_table.show(rows)
    out = capsys.readouterr().out
    assert "best memorization mixit: test accuracy 0.70 ± 0.10 (2 seeds) with model.layers" in out
    assert "1 diverged" in out
    sweep_table.write(tmp_path / "sweep.csv", rows)
    with open(tmp_path / "sweep.csv") as file:
        lines = list(csv.DictReader(file))
    assert [line["best"] for line in lines] == ["", "yes", ""]
    assert [line["diverged"] for line in lines] == ["0", "0", "1"]
    assert float(lines[1]["validation_accuracy"]) == 0.85 and lines[2]["accuracy"] == ""


def test_the_lowest_validation_loss_is_the_best(tmp_path, capsys):
    config = "configs/mixit/memorization.py:variant=mixit,scale=tiny"
    (run,) = grids.expand(config, {}, {})
    job = launch.make_job("j", run.config, run.overrides, tmp_path)
    chosen = [(1e-2, 0.3, 2.5), (1e-3, 0.2, 1.5), (1e-4, 0.1, None)]
    members = [
        member(0, rate, accuracy, accuracy) | {"chosen_by": "loss", "validation_loss": loss}
        for rate, accuracy, loss in chosen
    ]
    finished(job.workdir, members)
    rows = sweep_table.rows_of_runs([(run, job)])
    assert [row.best for row in rows] == [False, True, False]
    sweep_table.show(rows)
    assert "chosen on validation loss" in capsys.readouterr().out
    sweep_table.write(tmp_path / "sweep.csv", rows)
    with open(tmp_path / "sweep.csv") as file:
        assert [line["validation_loss"] for line in csv.DictReader(file)] == ["2.5", "1.5", ""]


def test_no_row_is_best_if_all_have_diverged(tmp_path):
    config = "configs/mixit/memorization.py:variant=mixit,scale=tiny"
    (run,) = grids.expand(config, {}, {})
    job = launch.make_job("j", run.config, run.overrides, tmp_path)
    finished(job.workdir, [member(0, 1e-2, None, None, diverged_at=7)])
    (row,) = sweep_table.rows_of_runs([(run, job)])
    assert row.diverged == 1 and not row.best


def test_a_figure_has_rows_without_members(tmp_path):
    runs = grids.expand("configs/mixit/sde_paths.py:scale=tiny", {"figure.steps": ["4"]}, {})
    job = launch.make_job("j", runs[0].config, runs[0].overrides, tmp_path)
    job.workdir.mkdir()
    metrics = {"ks": {"mean": 0.1, "sem": None, "n": 1}}
    result = {"config": {}, "seeds": [0], "members": [], "metrics": metrics}
    write_json(job.workdir / "result.json", result)
    (row,) = sweep_table.rows_of_runs([(runs[0], job)])
    assert row.rate is None and row.metrics["ks"].mean == 0.1 and not row.best


class FakeExecutor(NamedTuple):
    """Finishes all runs but the second, which fails."""

    slots: int
    deadline: float
    signal: int = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def run(self, jobs):
        for i, job in enumerate(jobs):
            if i == 1:
                yield Outcome(job, 2, 1.0, "no such thing")
            else:
                finished(job.workdir, [member(0, 1e-2, 0.9, 0.8), member(1, 1e-2, 0.9, 0.8)])
                yield Outcome(job, 0, 1.0, "")


def test_finished_runs_are_skipped_and_a_failure_leaves_the_table(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(running, "LocalExecutor", FakeExecutor)
    arguments = [f"--config={CONFIG}", "--grid=model.layers=1,2", f"--workdir={tmp_path / 'sweep'}"]
    assert sweep.main([*arguments, "--dry-run", "--seeds=2"]) == 0
    # Each run takes 15 seconds for a seed of two layers (SECONDS of the config) and 12 to start.
    assert "4 runs with 8 members; 4 to run, about 2 min 18 s" in capsys.readouterr().out
    assert sweep.main(arguments) == 1
    out = capsys.readouterr().out
    assert "failed: memorization standard, model.layers = 2: no such thing" in out
    assert "best memorization mixit" in out and (tmp_path / "sweep/sweep.csv").exists()
    assert sweep.main(arguments) == 0
    assert "4 runs with 4 members; 1 to run" in capsys.readouterr().out


def test_an_interrupted_sweep_prints_how_to_resume(tmp_path, monkeypatch, capsys):
    class Stopped(FakeExecutor):
        def run(self, jobs):
            yield Outcome(next(jobs), 128 + signal.SIGTERM, 1.0, "")

    monkeypatch.setattr(running, "LocalExecutor", lambda n, end: Stopped(n, end, signal.SIGINT))
    arguments = [f"--config={CONFIG}", f"--workdir={tmp_path}"]
    assert sweep.main(arguments) == 128 + signal.SIGINT
    out = capsys.readouterr().out
    assert "ran 0 of 2 in 0 s; 2 left" in out and "Run the same command again: it resumes" in out


@pytest.mark.slow
def test_a_real_sweep_in_two_processes(tmp_path, capsys):
    arguments = ["--file=configs/sweeps/tiny.toml", f"--workdir={tmp_path}", "--processes=2"]
    assert sweep.main(arguments) == 0
    out = capsys.readouterr().out
    assert out.count("best memorization") == 2 and "optim.learning_rate = 0.01" in out
    with open(tmp_path / "sweep.csv") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 8
    for line in lines:
        assert Workdir(line["workdir"]).read("result.json")["seeds"] == [0, 1]
    assert sweep.main(arguments) == 0
    assert "0 to run" in capsys.readouterr().out
