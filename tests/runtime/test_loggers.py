"""Who else hears of a run: every row and the result, and the steps that are profiled."""

import sys
import types

import numpy as np
import pytest

from experiments import run
from jaxformer.core.errors import UserError
from jaxformer.io.run_folder import Workdir
from jaxformer.runtime import loggers
from jaxformer.runtime.loggers import Listener, Profile, numbers
from jaxformer.training.session import Session
from tests.experiments.conftest import tiny


def test_a_row_becomes_named_numbers():
    row = {"step": 3, "loss": np.array([0.5, 1.0]), "validation": {"accuracy": [None, 1]}, "n": [2]}
    assert dict(numbers(row)) == {
        "loss/member_0": 0.5,
        "loss/member_1": 1.0,
        "validation/accuracy/member_1": 1.0,
        "n": 2.0,
    }


def test_the_layers_of_the_signal_are_called_layers():
    signal = {"cosine": [[0.1, 0.2], [0.3, 0.4]]}
    assert dict(numbers({"step": 0, "signal": signal})) == {
        "signal/cosine/member_0/layer_0": 0.1,
        "signal/cosine/member_0/layer_1": 0.2,
        "signal/cosine/member_1/layer_0": 0.3,
        "signal/cosine/member_1/layer_1": 0.4,
    }
    alone = {"signal": {"keys": np.array([[0.1, 0.2]])}}
    assert [name for name, _ in numbers(alone)] == ["signal/keys/layer_0", "signal/keys/layer_1"]


def test_a_listener_that_waits_for_no_step_is_left_alone_until_the_end(tmp_path):
    """While a hook of `fit` that says 0 is called after each dispatch."""
    workdir = Workdir(tmp_path)
    workdir.loggers = [Listener(), Profile(tmp_path, 7, 5)]
    asked = types.SimpleNamespace(
        watch=None, workdir=workdir, settings=types.SimpleNamespace(steps=30)
    )
    quiet, profile = Session.looks(asked)
    assert [hook.after(3) for hook in (quiet, profile)] == [30, 7]
    assert profile.after(12) == 30 and quiet.at_start


class Heard(Listener):
    def __init__(self):
        self.all = []

    def rows(self, rows):
        self.all += [row["step"] for row in rows]

    def result(self, result):
        self.all.append(sorted(result["metrics"]))


class Broken(Listener):
    def rows(self, rows):
        raise OSError("no space")


def test_a_listener_that_fails_is_named_and_the_others_hear_on(tmp_path, capsys):
    workdir, heard = Workdir(tmp_path), Heard()
    workdir.loggers = [Broken(), heard]
    workdir.append([{"step": 1, "loss": [1.0]}])
    workdir.append([{"step": 2, "loss": [1.0]}])
    workdir.write("config.json", {"config": {}})
    workdir.write("result.json", {"config": {}, "members": [], "metrics": {"accuracy": 1}})
    assert heard.all == [1, 2, ["accuracy"]]
    assert capsys.readouterr().err.count("Broken is disabled: no space") == 1
    assert [row["step"] for row in Workdir(tmp_path).rows()] == [1, 2]


def test_tensorboard_is_told_every_number_and_that_steps_are_written_again(tmp_path, monkeypatch):
    told = []

    class Writer:
        def __init__(self, folder, purge_step, flush_secs):
            told.append(("from", purge_step))

        def add_scalar(self, name, value, step):
            told.append((name, value, step))

        def close(self):
            told.append("closed")

    fake = types.ModuleType("tensorboardX")
    fake.SummaryWriter = Writer
    monkeypatch.setitem(sys.modules, "tensorboardX", fake)
    sink = loggers.TensorBoard(tmp_path, {})
    sink.rows([{"step": 20, "loss": [0.5]}])
    sink.result({"metrics": {"accuracy": {"mean": 1.0}, "none": {"mean": None}}, "steps": 20})
    sink.close()
    assert told == [("from", 20), ("loss", 0.5, 20), ("test/accuracy", 1.0, 20), "closed"]


def test_a_profile_begins_and_ends_at_its_steps(tmp_path, monkeypatch, capsys):
    calls = []
    profiler = types.SimpleNamespace(
        start_trace=lambda folder: calls.append("start"), stop_trace=lambda: calls.append("stop")
    )
    monkeypatch.setattr(loggers.jax, "profiler", profiler)
    profile, step = Profile(tmp_path, 7, 5), 0
    while step < 30:
        calls.append(step)
        profile.at((), step)
        step = min(profile.after(step) or 30, step + 10)
    profile.close()
    assert calls == [0, 7, "start", 12, "stop", 22]
    assert "the steps 7 to 12 is in" in capsys.readouterr().err
    late = Profile(tmp_path, 40, 5)
    late.close()
    assert "step 40 was not passed" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["5", "a:b", "5:0", "-1:2", "1:2:3", "²:1", "1" * 30 + ":1"])
def test_a_wrong_profile_is_one_line(text):
    with pytest.raises(UserError, match="must be START:STEPS"):
        loggers.profiled(text)


@pytest.mark.parametrize(
    "words, message",
    [
        (
            ["--track=tensorbord"],
            "unknown sink of --track 'tensorbord'. Did you mean 'tensorboard'",
        ),
        (["--track=wandb"], "--track=wandb needs wandb: pip install 'jaxformer[track]'."),
        (["--profile=5"], "--profile must be START:STEPS"),
    ],
)
def test_wrong_words_are_one_line(words, message, monkeypatch, capsys):
    monkeypatch.setattr(loggers.importlib.util, "find_spec", lambda name: None)
    assert run.main([*tiny(), "--dry-run", *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1 and message in error


def test_what_has_no_steps_has_no_profile(capsys, tmp_path):
    words = ["--config=configs/mixit/sde_paths.py:scale=tiny", "--profile=0:1"]
    assert run.main([*words, f"--workdir={tmp_path / 'run'}"]) == 2
    assert "--profile needs steps of training" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_tells_all_its_rows_and_leaves_a_trace(tmp_path, monkeypatch):
    heard = Heard()
    monkeypatch.setitem(loggers.PACKAGES, "wandb", "json")
    monkeypatch.setitem(loggers.SINKS, "wandb", lambda folder, config: heard)
    words = tiny(f"--workdir={tmp_path / 'run'}", "--track=wandb", "--profile=20:10")
    assert run.main([*words]) == 0
    rows = [row["step"] for row in Workdir(tmp_path / "run").rows()]
    assert heard.all[:-1] == rows and "accuracy" in heard.all[-1]
    assert [*(tmp_path / "run/profile").rglob("*.xplane.pb")]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_the_real_sinks_take_a_run(name, tmp_path):
    pytest.importorskip(loggers.PACKAGES[name], reason="pip install 'jaxformer[track]'")
    assert run.main([*tiny(f"--workdir={tmp_path / 'run'}", f"--track={name}")]) == 0
    files = [file for file in (tmp_path / "run" / name).rglob("*") if file.is_file()]
    assert any("tfevents" in file.name or file.suffix == ".wandb" for file in files)
