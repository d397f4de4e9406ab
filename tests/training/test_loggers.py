"""Loggers receive every row and the result; the profiler traces its steps."""

import sys
import types

import numpy as np
import pytest

from experiments import run
from jaxformer.core.errors import UserError
from jaxformer.io.run_folder import Workdir
from jaxformer.training import loggers
from jaxformer.training.callbacks import AT_END
from jaxformer.training.loggers import Logger, Loggers, Profile, numbers
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


def test_the_next_step_is_the_first_that_a_logger_needs(tmp_path):
    loggers = Loggers([Logger(), Profile(tmp_path, 7, 5)])
    assert [loggers.next_step(step) for step in (3, 7, 12)] == [7, 12, AT_END]
    assert Loggers().next_step(3) == AT_END and loggers.at_start


class RecordingLogger(Logger):
    def __init__(self):
        self.calls = []

    def on_rows(self, rows):
        self.calls += [row["step"] for row in rows]

    def on_result(self, result):
        self.calls.append(sorted(result["metrics"]))


class BrokenLogger(Logger):
    def on_rows(self, rows):
        raise OSError("no space")

    def on_step(self, state, step):
        raise RuntimeError(f"step {step}")


def test_a_logger_that_raises_is_reported_once_and_disabled(tmp_path, capsys):
    workdir, recording = Workdir(tmp_path), RecordingLogger()
    workdir.loggers = Loggers([BrokenLogger(), recording])
    workdir.append([{"step": 1, "loss": [1.0]}])
    workdir.append([{"step": 2, "loss": [1.0]}])
    workdir.write("config.json", {"config": {}})
    workdir.write("result.json", {"config": {}, "members": [], "metrics": {"accuracy": 1}})
    assert recording.calls == [1, 2, ["accuracy"]]
    assert capsys.readouterr().err == "warning: BrokenLogger is disabled: no space\n"
    assert [row["step"] for row in Workdir(tmp_path).rows()] == [1, 2]


def test_a_logger_that_raises_between_steps_does_not_stop_training(capsys):
    group = Loggers([BrokenLogger()])
    for step in (0, 10):
        assert not group.on_step(None, step)
    assert capsys.readouterr().err == "warning: BrokenLogger is disabled: step 0\n"


def test_tensorboard_gets_every_number_and_the_first_step_to_replace(tmp_path, monkeypatch):
    calls = []

    class Writer:
        def __init__(self, folder, purge_step, flush_secs):
            calls.append(("from", purge_step))

        def add_scalar(self, name, value, step):
            calls.append((name, value, step))

        def close(self):
            calls.append("closed")

    fake = types.ModuleType("tensorboardX")
    fake.SummaryWriter = Writer
    monkeypatch.setitem(sys.modules, "tensorboardX", fake)
    logger = loggers.TensorBoard(tmp_path, {})
    logger.on_rows([{"step": 20, "loss": [0.5]}])
    logger.on_result({"metrics": {"accuracy": {"mean": 1.0}, "none": {"mean": None}}, "steps": 20})
    logger.close()
    assert calls == [("from", 20), ("loss", 0.5, 20), ("test/accuracy", 1.0, 20), "closed"]


def test_a_profile_begins_and_ends_at_its_steps(tmp_path, monkeypatch, capsys):
    calls = []
    profiler = types.SimpleNamespace(
        start_trace=lambda folder: calls.append("start"), stop_trace=lambda: calls.append("stop")
    )
    monkeypatch.setattr(loggers.jax, "profiler", profiler)
    profile, step = Profile(tmp_path, 7, 5), 0
    while step < 30:
        calls.append(step)
        profile.on_step((), step)
        step = min(profile.next_step(step), step + 10)
    profile.close()
    assert calls == [0, 7, "start", 12, "stop", 22]
    assert "the steps 7 to 12 is in" in capsys.readouterr().err
    late = Profile(tmp_path, 40, 5)
    late.close()
    assert "step 40 was not passed" in capsys.readouterr().err


def test_a_wrong_profile_is_a_one_line_error():
    for text in ("5", "a:b", "5:0", "-1:2", "1:2:3", "²:1", "1" * 30 + ":1"):
        with pytest.raises(UserError, match="must be START:STEPS"):
            loggers.parse_profile(text)


def test_wrong_flags_of_loggers_are_one_line_errors(monkeypatch, capsys):
    monkeypatch.setattr(loggers.importlib.util, "find_spec", lambda name: None)
    for flag, message in {
        "--track=tensorbord": "logger of --track 'tensorbord'. Did you mean 'tensorboard'",
        "--track=wandb": "--track=wandb needs wandb: pip install 'jaxformer[track]'.",
        "--profile=5": "--profile must be START:STEPS",
    }.items():
        assert run.main([*tiny(), "--dry-run", flag]) == 2
        error = capsys.readouterr().err
        assert error.startswith("error: ") and error.count("\n") == 1 and message in error


def test_a_recipe_without_steps_has_no_profile(capsys, tmp_path):
    arguments = ["--config=configs/mixit/sde_paths.py:scale=tiny", "--profile=0:1"]
    assert run.main([*arguments, f"--workdir={tmp_path / 'run'}"]) == 2
    assert "--profile needs steps of training" in capsys.readouterr().err


@pytest.mark.slow
def test_a_logger_gets_all_rows_of_a_run_and_the_profiler_leaves_a_trace(tmp_path, monkeypatch):
    recording = RecordingLogger()
    monkeypatch.setitem(loggers.PACKAGES, "wandb", "json")
    monkeypatch.setitem(loggers.TRACKERS, "wandb", lambda folder, config: recording)
    arguments = tiny(f"--workdir={tmp_path / 'run'}", "--track=wandb", "--profile=20:10")
    assert run.main([*arguments]) == 0
    rows = [row["step"] for row in Workdir(tmp_path / "run").rows()]
    assert recording.calls[:-1] == rows and "accuracy" in recording.calls[-1]
    assert [*(tmp_path / "run/profile").rglob("*.xplane.pb")]


@pytest.mark.slow
@pytest.mark.parametrize("name", loggers.TRACKERS)
def test_the_real_packages_take_a_run(name, tmp_path):
    pytest.importorskip(loggers.PACKAGES[name], reason="pip install 'jaxformer[track]'")
    assert run.main([*tiny(f"--workdir={tmp_path / 'run'}", f"--track={name}")]) == 0
    files = [file for file in (tmp_path / "run" / name).rglob("*") if file.is_file()]
    assert any("tfevents" in f.name or f.suffix in (".wandb", ".db") for f in files)
