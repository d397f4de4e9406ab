"""reproduce.py: the runs it starts, its time budget, its records. All runs but one are made up."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from experiments import reproduce
from experiments.cli import flags
from experiments.ledger import write
from experiments.ledger.item import Cell, Item
from experiments.schedule import launch, planning, recording, running
from experiments.schedule.launch import Outcome
from jaxformer import build
from jaxformer.io.atomic_files import write_json
from jaxformer.io.run_folder import Workdir, config_hash
from tests.experiments import pretended
from tests.experiments.schedule.test_planning import PAPERS, record

DEFAULTS = {"failing": (), "stopping": (), "spent": 1.0}


class FakeExecutor(pretended.FakeExecutor):
    """Starts nothing and writes the files of finished runs."""

    failing: tuple[str, ...]
    stopping: tuple[str, ...]
    spent: float

    def run(self, jobs):
        for job in jobs:
            config = launch.config_dict(job.config, job.overrides)
            workdir = Workdir(job.workdir)
            workdir.path.mkdir(parents=True, exist_ok=True)
            identity = {
                "config": config,
                "config_hash": config_hash(build.config_identity(config)),
                "config_file": job.config,
                "overrides": job.overrides,
            }
            write_json(workdir / "config.json", identity)
            if config["arguments"]["variant"] in self.stopping:
                self.signal = signal.SIGINT
                (workdir / "metrics.jsonl").write_text('{"step": 750}\n')
                yield Outcome(job, 128 + signal.SIGTERM, self.spent, "stopped")
                return
            if config["arguments"]["variant"] in self.failing:
                yield Outcome(job, 2, self.spent, "no such data")
                continue
            cell = Cell(job.config.removesuffix(",scale=small"))
            made = vars(record(cell, seeds=config["n_seeds"]))
            made |= {
                "config": config,
                "config_hash": config_hash(build.config_identity(config)),
                "overrides": job.overrides,
            }
            write_json(workdir / "result.json", made)
            write.write_record(workdir)
            yield Outcome(job, 0, self.spent, "")


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """command(arguments) returns (exit code, output)."""
    (tmp_path / "results").mkdir()
    monkeypatch.setattr(write, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(running, "LocalExecutor", FakeExecutor)

    def command(*arguments, **launcher):
        for name in ("failing", "stopping", "spent"):
            monkeypatch.setattr(
                FakeExecutor, name, launcher.get(name, DEFAULTS[name]), raising=False
            )
        code = reproduce.main([*arguments, f"--workdir={tmp_path / 'runs'}"], PAPERS)
        printed = capsys.readouterr()
        return code, printed.out + printed.err

    return command


def test_open_runs_start_once(command, tmp_path):
    code, text = command("--paper=one")
    assert code == 0 and "open runs: 4, about" in text and "ran 4 of 4" in text
    assert "run 1 of 4: one Table 1: c (and for 1 more)" in text
    assert "accuracy 0.900 ± 0.010 in 1 s" in text and "Table 10: held" in text
    assert len(list((tmp_path / "results").rglob("*.json"))) == 4
    code, text = command("--paper=one")
    assert code == 0 and "nothing to run: 4 of 4 runs are recorded" in text


def test_a_run_that_fails_is_named_and_does_not_stop_the_others(command):
    code, text = command("--paper=one", failing=("frozen_qk",))
    assert code == 1 and "ran 3 of 4" in text
    assert "failed: one Table 1: b: no such data" in text


def test_the_next_start_begins_with_an_interrupted_run(command):
    code, text = command("--paper=one", stopping=("random",))
    assert code == 130 and "stopped; the next start resumes it" in text
    assert "ran 3 of 4" in text and "1 left" in text
    code, text = command("--paper=all")
    # A quarter of its steps, of four learning rates.
    assert code == 0 and "run 1 of 2: one Table 10: d: resumes, about 53 s" in text


def test_a_stopped_run_without_checkpoints_restarts_with_a_longer_estimate(
    tmp_path, monkeypatch, capsys
):
    item = Item("Figure 5", "x.", {"f": Cell("configs/mixit/sde_paths.py")})
    (run,) = planning.plan_runs([(PAPERS["one"], item)], [], "small", 0, lambda config: 20.0)
    job = recording.job_of_run(run, tmp_path)
    assert not job.resumes and running.remaining_seconds(job) == 20

    class Stopping(FakeExecutor):
        def run(self, jobs):
            (only,) = jobs
            only.workdir.mkdir()
            (only.workdir / "config.json").write_text("{}")
            yield Outcome(only, -signal.SIGTERM, 40.0, "")

    monkeypatch.setattr(running, "LocalExecutor", Stopping)
    assert running.run_all([job], budget=40.0) == 0
    assert "stopped; the next start runs it from the beginning" in capsys.readouterr().out
    assert running.remaining_seconds(job) == 80


def test_a_run_without_record_is_recorded_or_repeated_if_the_code_changed(
    command, tmp_path, monkeypatch
):
    arguments = ("--paper=one", "--only=Table 10")
    command(*arguments)
    for commit, message in (
        ("0" * 40, "resumes, about 10 s"),
        ("1" * 40, "one Table 10: c: about"),
    ):
        shutil.rmtree(tmp_path / "results")
        monkeypatch.setattr(recording, "current_commit", lambda commit=commit: commit)
        code, text = command(*arguments)
        assert code == 0 and message in text and "ran 2 of 2" in text


def test_more_seeds_replace_the_record_of_fewer(command, tmp_path):
    command("--paper=one", "--only=Table 10")
    before = {file.name for file in (tmp_path / "results").rglob("*.json")}
    code, text = command("--paper=one", "--only=Table 10", "--seeds=5")
    after = {file.name for file in (tmp_path / "results").rglob("*.json")}
    assert code == 0 and text.count("replaces mixit/retrieval/") == 2
    assert len(after) == 2 and not before & after


def test_estimates_are_corrected_by_the_time_of_finished_runs(command):
    _, text = command("--paper=one", spent=40.0)
    lines = [line for line in text.splitlines() if line.startswith("run ")]
    assert "about 12 min 12 s; then 8 min 36 s more" in lines[0]
    ratio = (40 + 60) / (732 + 60)  # a minute as estimated is taken for granted
    assert f"about {132 * ratio:.0f} s; then " in lines[1]


def test_only_runs_that_fit_the_budget_start(command, monkeypatch):
    clock = iter(range(0, 10_000, 70))
    monkeypatch.setattr(running.time, "monotonic", lambda: float(next(clock)))
    code, text = command("--paper=one", "--budget=5m", spent=120.0)
    assert code == 0 and "ran 2 of 4" in text and "2 left, about 15 min" in text


def test_a_budget_that_is_too_small_is_a_one_line_error(command):
    code, text = command("--paper=one", "--budget=20s")
    assert code == 2 and text.count("\n") == 1
    assert "a budget of 20 s is too small: the cheapest of 4 runs, one Table 1: a, takes" in text


def test_a_cluster_has_no_budget_of_this_machine(command):
    code, text = command("--paper=one", "--budget=5h", "--executor=slurm")
    assert code == 2 and "--budget is the time of this machine" in text


def test_list_and_dry_run_start_nothing(command, tmp_path):
    code, text = command("--paper=all", "--list")
    assert code == 0 and "one Table 10: not run" in text and planning.OTHER_SCALE in text
    code, text = command("--paper=all", "--dry-run", "--budget=5m")
    assert code == 0 and "would run 2 in about 4 min 24 s; 3 more do not fit" in text
    run = "jaxformer run mixit/retrieval:variant="
    assert run + "standard" in text and run + "mixit" not in text  # which does not fit
    assert not (tmp_path / "runs").exists()


def test_a_scale_without_runs_is_reported(command):
    code, text = command("--paper=two", "--only=Table 3")
    assert code == 0 and "no run is meant at scale small; try paper" in text


def test_a_damaged_record_is_named_and_the_plan_still_made(command, tmp_path):
    (tmp_path / "results/torn.json").write_text("{")
    code, text = command("--paper=one", "--dry-run")
    assert code == 0 and "not used: torn.json" in text and "would run 4" in text


def test_the_real_papers_can_be_listed(capsys):
    assert reproduce.main(["--paper=all", "--list"]) == 0
    out = capsys.readouterr().out
    assert "mixit Table 2, retrieval: " in out and "gone" not in out
    assert reproduce.main(["--help"]) == 0


REAL = """
import sys, pathlib
from experiments import reproduce
from experiments.ledger import write
from experiments.ledger.item import Cell, Item, Paper
from experiments.ledger.rules import above, of
from experiments.schedule import launch
root = pathlib.Path({root!r})
write.RESULTS = root / "results"
save = "import pathlib, sys; from experiments import run; from experiments.ledger import write; " \\
    f"write.RESULTS = pathlib.Path({{str(write.RESULTS)!r}}); sys.exit(run.main(sys.argv[1:]))"
launch.PROGRAM = (sys.executable, "-c", save)
small = {{"model.width": "16", "model.mlp_width": "64", "train.batch_size": "8",
    "train.steps": "1000", "train.eval_every": "100", "train.target": "2"}}
cell = Cell("configs/mixit/memorization.py:variant=mixit", small, scales=("tiny",))
items = (Item("Table 1", "x.", {{"mixit": cell}}, {{"": above(of("mixit"), 0.1)}}),)
sys.exit(reproduce.main(["--paper=p", "--scale=tiny", "--seeds=2", f"--workdir={{root / 'runs'}}"],
    {{"p": Paper("p", "t", "s", items)}}))
"""


@pytest.mark.slow
def test_an_interrupted_start_resumes_and_ends_with_a_record(tmp_path, in_process):
    code = REAL.format(root=str(tmp_path))
    child = subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(flags.ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    limit = time.monotonic() + 120
    while not list(tmp_path.glob("runs/*/metrics.jsonl")):
        assert child.poll() is None and time.monotonic() < limit, child.communicate()[0]
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=60)
    assert child.returncode == 130 and "stopped; the next start resumes it" in out
    assert not (tmp_path / "results").exists()
    done = in_process(code)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "resumes, about" in done.stdout and "Table 1: held" in done.stdout
    assert "resuming from step" in next(tmp_path.glob("runs/*.log")).read_text()
    (file,) = (tmp_path / "results").rglob("*.json")
    assert json.loads(file.read_text())["seeds"] == [0, 1]
