"""run.py as users run it: results, resuming, signals, locks, wrong folders and loading."""

import fcntl
import json
import os
import shutil
import signal

import jax
import numpy as np
import pytest

import jaxformer
from experiments import compare
from experiments.run import main
from jaxformer.core.errors import UserError
from jaxformer.core.partition import Partition
from jaxformer.io.run_folder import Workdir
from tests.experiments.conftest import AFTER_ROWS, TINY, WHILE_SAVING, tiny

TIMES = ("seconds", "environment", "performance", "timing")  # fields that differ between runs


def rows(workdir):
    return Workdir(workdir).rows()


def one_line(capsys):
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1
    return error


def test_a_finished_run_has_a_complete_result(finished):
    result = json.loads((finished / "result.json").read_text())
    assert set(result) >= {
        "config", "overrides", "config_hash", "scale", "seeds", "metrics", "members", "baselines",
        "parameters", "environment", "seconds",
    }  # fmt: skip
    assert result["scale"] == "tiny" and result["seeds"] == [0]
    assert set(result["metrics"]["accuracy"]) == {"mean", "sem", "n"}
    member = result["members"][0]
    assert member["learning_rate"] == 1e-2 and member["diverged_at"] is None
    assert member["metrics"]["accuracy"]["n"] == 40
    assert result["baselines"]["in_context_guess"] > result["baselines"]["uniform_value"]
    assert result["parameters"]["frozen"] == 4 * 16 * 16
    assert result["environment"]["versions"]["jax"] == jax.__version__
    assert result["overrides"]["model.width"] == 16
    steps = [row["step"] for row in rows(finished) if "loss" in row]
    assert steps == [10, 20, 30, 40, 50, 60]
    assert [row["step"] for row in rows(finished) if "validation" in row] == [20, 40, 60]
    assert (finished / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_a_finished_run_reports_its_speed(finished):
    """The expected FLOPs are counted by hand: forward, and less than twice as many backward."""
    performance = json.loads((finished / "result.json").read_text())["performance"]
    assert performance["tokens_per_second"] * performance["step_seconds"] == pytest.approx(8 * 7)
    assert 0 < performance["share_of_matmul"] < 1
    assert 2**27 < performance["peak_memory"] < 2**36
    B, T, N, M = 8, 7, 16, 64
    dense = 2 * B * N * (T * (6 * N + 3 * M) + 2 * N + 3 * M)  # one query in the last layer
    assert 2 * dense < performance["model_flops"] < 4 * dense


def test_load_gives_the_trained_network_and_its_frozen_weights(finished):
    model, params, config = jaxformer.load(finished)
    assert config.model.width == 16
    query = params["block_0"]["attn"]["query"]["kernel"]
    key = jax.random.fold_in(jax.random.key(0), 0)
    fresh = jax.jit(model.init)(key, np.zeros((1, 1), int))["params"]
    np.testing.assert_array_equal(query, fresh["block_0"]["attn"]["query"]["kernel"])
    assert (params["embed"]["embedding"] != fresh["embed"]["embedding"]).any()
    assert Partition(config.partition).count(params)["frozen"] == 4 * 16 * 16
    with pytest.raises(jaxformer.core.errors.UserError, match="members 0 to 0, got 3"):
        jaxformer.load(finished, member=3)


def test_the_same_command_again_shows_the_result_and_changes_nothing(finished, capsys):
    before = (finished / "result.json").read_bytes()
    assert main([*TINY, f"--workdir={finished}"]) == 0
    assert "holds the finished run" in capsys.readouterr().out
    assert (finished / "result.json").read_bytes() == before


@pytest.mark.slow  # tests/hostile/test_kills.py has the same for every recipe
def test_a_run_killed_at_any_moment_ends_with_the_same_bits(finished, interrupted, tmp_path):
    workdir = tmp_path / "killed"
    arguments = [*TINY, f"--workdir={workdir}"]

    stopped = interrupted(arguments, AFTER_ROWS, 10, signal.SIGTERM)
    assert stopped.returncode == 128 + signal.SIGTERM, stopped.stderr
    assert "Run the same command again: it resumes." in stopped.stdout
    killed = interrupted(arguments, WHILE_SAVING, 30, signal.SIGKILL)
    assert killed.returncode == -signal.SIGKILL and "resuming from step" in killed.stdout
    with open(workdir / "metrics.jsonl", "a") as file:
        file.write('{"step": 999999, "loss": [')  # a row cut short by the kill
    assert not (workdir / "result.json").exists()

    assert main(arguments) == 0
    assert rows(workdir) == rows(finished)
    assert comparable(workdir) == comparable(finished)
    jax.tree.map(
        np.testing.assert_array_equal,
        jaxformer.load(workdir)[1],
        jaxformer.load(finished)[1],
    )


def comparable(workdir):
    """Returns result.json without times and without the description of the machine."""
    result = Workdir(workdir).read("result.json")
    return {name: result[name] for name in result if name not in TIMES}


def test_a_locked_workdir_is_refused(tmp_path, capsys):
    workdir = tmp_path / "busy"
    workdir.mkdir()
    with open(workdir / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write(str(os.getpid()))
        lock.flush()
        assert main([*TINY, f"--workdir={workdir}"]) == 2
    assert f"in use by process {os.getpid()}" in one_line(capsys)


def test_a_refused_config_does_not_keep_the_folder(tmp_path, capsys):
    here = f"--workdir={tmp_path / 'run'}"
    assert main([*TINY, "--config.train.log_every=0", here]) == 2
    assert "train.log_every must be at least 1" in one_line(capsys)
    assert main([*TINY, "--config.train.log_every=-1", here]) == 2
    assert "got -1" in one_line(capsys)


@pytest.mark.parametrize("case", ["other config", "a file", "someone's files"])
def test_a_wrong_workdir_is_refused_and_left_as_it_was(case, finished, tmp_path, capsys):
    workdir = {"other config": finished}.get(case, tmp_path / "place")
    if case == "a file":
        workdir.write_text("mine")
    if case == "someone's files":
        workdir.mkdir()
        (workdir / "thesis.tex").write_text("mine")
    extra = ["--config.train.steps=70"] if case == "other config" else []
    messages = {
        "other config": "1 fields differ, such as --config.train.steps = 60 there",
        "a file": "cannot write to the workdir",
        "someone's files": "has files but no config.json",
    }
    capsys.readouterr()
    assert main([*tiny(*extra), f"--workdir={workdir}"]) == 2
    assert messages[case] in one_line(capsys)
    if case == "someone's files":
        assert [f.name for f in workdir.iterdir() if f.suffix] == ["thesis.tex"]


def test_a_nan_loss_stops_the_run_and_names_the_step(tmp_path, capsys):
    workdir = tmp_path / "diverged"
    high = ("--config.optim.learning_rate=1e35", "--config.optim.clip=0")
    assert main([*tiny(*high), f"--workdir={workdir}"]) == 2
    error = capsys.readouterr().err
    assert "error: the loss was not finite at step" in error and "Traceback" not in error
    assert not (workdir / "result.json").exists()


def test_the_dry_run_prints_the_cost_and_writes_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main([*TINY, "--dry-run"]) == 0
    out = capsys.readouterr().out
    for message in ("1,024 frozen", "held-out examples", "memory: about", "--measure runs a few"):
        assert message in out
    assert "FLOPs a step: 1.78e+06 (matrix products of all members)" in out
    assert not list(tmp_path.iterdir())


def test_compare_shows_differences_and_numbers(finished, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert compare.main([str(finished), str(finished)]) == 0
    assert "accuracy" in capsys.readouterr().out and not list(tmp_path.iterdir())
    assert compare.main([str(finished), "--plot", "curves.svg", str(finished)]) == 0
    assert "curves: curves.svg" in capsys.readouterr().out
    assert [file.name for file in tmp_path.iterdir()] == ["curves.svg"]
    measured = shutil.copytree(finished, tmp_path / "measured")
    result = Workdir(measured).read("result.json")
    for member in result["members"]:  # as of a recipe that chooses nothing
        del member["chosen"]
    Workdir(measured).write("result.json", result)
    assert compare.main([str(finished), str(measured), "--plot=both.svg"]) == 0
    assert "curves: both.svg" in capsys.readouterr().out
    assert compare.main([str(finished), str(finished), "--plot=curves.bmp"]) == 2
    assert "--plot must end in one of .png, .pdf, .svg; got 'curves.bmp'" in one_line(capsys)
    assert compare.main([str(finished)]) == 2
    assert "at least two run folders" in one_line(capsys)
    assert compare.main([str(finished), str(tmp_path / "nothing")]) == 2
    assert "has no config.json" in one_line(capsys)


def test_compare_in_python_gives_numbers_and_refuses_another_task(finished, tmp_path):
    comparison = jaxformer.compare(finished, jaxformer.open(finished))
    (row,) = (r for r in comparison.rows if r["metric"] == "accuracy" and "difference" in r)
    assert row["difference"] == 0 and row["verdict"] == "cannot tell"
    assert comparison.settings == {} and "accuracy, difference" in str(comparison)
    assert "accuracy_unseen" not in str(comparison)
    assert repr(comparison) == str(comparison)
    assert "accuracy_unseen" in comparison.text(with_cost=True)
    assert comparison._repr_html_().startswith("<pre>") and comparison.plot().axes
    other = Workdir(shutil.copytree(finished, tmp_path / "other"))
    stored = other.read("config.json")
    stored["config"]["task"]["name"] = "dyck"
    other.write("config.json", stored)
    with pytest.raises(UserError, match="different tasks, retrieval and dyck"):
        jaxformer.compare(finished, other.path)
    with pytest.raises(UserError, match="at least two runs, got 1"):
        jaxformer.compare(finished)


def test_compare_refuses_runs_with_other_held_out_examples(finished, tmp_path):
    other = Workdir(shutil.copytree(finished, tmp_path / "other"))
    stored = other.read("config.json")
    stored["identity"]["examples"] = "0123456789abcdef"
    other.write("config.json", stored)
    with pytest.raises(UserError, match="run and other have different held-out examples") as error:
        jaxformer.compare(finished, other.path)
    assert "\n" not in str(error.value)
    del stored["identity"]  # of an older version, which noted none
    other.write("config.json", stored)
    assert jaxformer.compare(finished, other.path).settings == {}


def test_a_misspelt_run_folder_is_named(finished):
    with pytest.raises(UserError, match=f"Did you mean '{finished.name}'"):
        jaxformer.open(finished.parent / f"{finished.name}x")


def test_a_refused_run_leaves_no_folder(tmp_path):
    refused = tmp_path / "refused"
    assert main([*TINY, "--config.optim.warmup=999", f"--workdir={refused}"]) == 2
    assert not refused.exists()
    (tmp_path / "mine").mkdir()
    assert main([*TINY, "--config.optim.warmup=999", f"--workdir={tmp_path / 'mine'}"]) == 2
    assert (tmp_path / "mine").is_dir()
