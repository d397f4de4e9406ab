"""The local executor: order of jobs, signals and failures. A stand-in replaces run.py."""

import io
import os
import re
import signal
import subprocess
import sys
import threading
import time

import pytest
from rich.console import Console

from experiments.cli import flags
from experiments.schedule import devices, launch, show_runs
from experiments.schedule.launch import Job, LocalExecutor
from jaxformer.core.errors import UserError

# Prints a step, then ends as its config demands. On SIGTERM it saves and stops.
STAND_IN = """
import pathlib, signal, sys, time
arguments = dict(argument.partition("=")[::2] for argument in sys.argv[1:])
folder, kind = pathlib.Path(arguments["--workdir"]), arguments["--config"]
def stop(number, frame):
    (folder / "saved").touch()
    sys.exit(128 + number)
signal.signal(signal.SIGTERM, stop)
folder.mkdir(parents=True, exist_ok=True)
(folder / "config.json").touch()
print("step 3/9  loss 1", flush=True)
if kind == "slow":
    (folder.parent / "ready").touch()
    time.sleep(30)
if kind == "broken":
    print("error: the field x must be 1, got 2.", file=sys.stderr)
    sys.exit(2)
if kind == "killed":
    import os
    os.kill(os.getpid(), signal.SIGKILL)
(folder / "result.json").touch()
"""


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "PROGRAM", (sys.executable, "-c", STAND_IN))
    return tmp_path


def jobs(root, *kinds):
    return [Job(f"{kind} {i}", kind, {}, root / str(i)) for i, kind in enumerate(kinds)]


def test_a_failing_job_is_named_and_the_others_still_run(root):
    with LocalExecutor() as local:
        outcomes = list(local.run(jobs(root, "broken", "killed", "good")))
    assert [outcome.code for outcome in outcomes] == [2, -9, 0]
    assert outcomes[2].job.is_finished() and local.signal == 0
    first, second, _ = outcomes
    assert first.message == "the field x must be 1, got 2."
    assert second.message == "killed by signal 9 (out of memory?)"


def test_a_job_is_drawn_when_a_slot_is_free(root):
    drawn = []

    def lazy_jobs():
        for job in jobs(root, "good", "good", "good"):
            drawn.append(job.name)
            yield job

    with LocalExecutor(2) as local:
        next(local.run(lazy_jobs()))
    assert 2 <= len(drawn) <= 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_reaches_the_job_which_saves_and_no_other_starts(number, root, capfd):
    def send_signal():
        while not (root / "ready").exists():
            time.sleep(0.02)
        os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    thread = threading.Thread(target=send_signal)
    thread.start()
    with LocalExecutor() as local:
        (outcome,) = local.run(jobs(root, "slow", "good"))
    thread.join()
    assert outcome.stopped
    assert (root / "0/saved").exists() and not (root / "1").exists()
    assert local.signal == number and signal.getsignal(number) == before
    assert "press again to stop at once" in capfd.readouterr().err


def test_at_the_deadline_the_job_saves_and_stops(root):
    def pass_the_deadline():
        while not (root / "ready").exists():
            time.sleep(0.02)
        local.deadline = time.monotonic() - 1

    thread = threading.Thread(target=pass_the_deadline)
    with LocalExecutor() as local:
        thread.start()
        (outcome,) = local.run(jobs(root, "slow"))
    thread.join()
    assert outcome.stopped and (root / "0/saved").exists() and local.signal == 0


def test_leaving_the_executor_stops_running_jobs(root):
    with LocalExecutor() as local:
        outcomes = local.run(jobs(root, "good", "slow"))
        next(outcomes)
        local.start(jobs(root, "good", "slow")[1])
        while not (root / "ready").exists():
            time.sleep(0.02)
    # The job saved, so it was told to stop. A job that was only waited for would have finished.
    assert (root / "1/saved").exists() and not (root / "1/result.json").exists()
    assert all(process.poll() is not None for process in local.running)


def test_the_display_shows_the_step_of_a_job(root):
    (job,) = jobs(root, "good")
    job.log().write_text("step 3/9  loss 1\nstep 6/9  loss 1\n")
    assert show_runs.progress_line(job, time.monotonic()) == "good 0: 0 s, step 6 of 9"
    running = show_runs.Running(job, time.monotonic(), devices.Slot("GPU 3"))
    console = Console(width=80, file=io.StringIO())
    console.print(show_runs.table([running], free=2, deferred=1))
    text = console.file.getvalue()
    assert re.search(r"GPU 3 +good 0 +0 s +6 of 9", text)
    assert "1 running, 2 slots free, 1 in other launchers" in text


def test_jobs_of_different_configs_have_different_folders(tmp_path):
    config = "configs/mixit/retrieval.py:variant=mixit,scale=tiny"
    default = launch.make_job("a", config, {}, tmp_path)
    longer = launch.make_job("a", config, {"train.steps": "7"}, tmp_path)
    assert default.workdir.name.startswith("mixit-retrieval-mixit-tiny-")
    assert default.workdir != longer.workdir
    with pytest.raises(UserError, match=r"no field 'train.step'\. Did you mean 'train.steps'"):
        launch.make_job("a", config, {"train.step": "7"}, tmp_path)


def test_a_run_does_not_inherit_the_slurm_task_of_its_launcher(monkeypatch):
    monkeypatch.setenv("SLURM_NTASKS", "16")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "16")
    monkeypatch.setenv("OTHER", "value")
    environment = launch.run_environment(devices.Slot())
    assert environment["OTHER"] == "value"
    assert not [name for name in environment if name.startswith("SLURM_")]


def test_the_recipe_decides_whether_a_job_resumes(tmp_path):
    assert launch.make_job("a", "configs/mixit/hops.py:variant=mixit", {}, tmp_path).resumes
    assert not launch.make_job("a", "configs/mixit/sde_paths.py", {}, tmp_path).resumes


# A launcher of one job; it is killed while the job runs.
LAUNCHER = """
import sys
from pathlib import Path
from experiments.schedule import launch
from tests.experiments.schedule.test_launch import STAND_IN, jobs
launch.PROGRAM = (sys.executable, "-c", STAND_IN)
with launch.LocalExecutor() as executor:
    list(executor.run(jobs(Path({!r}), "slow")))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs the parent-death signal of Linux")
def test_the_run_of_a_killed_launcher_saves_and_stops(tmp_path):
    environment = os.environ | {"PYTHONPATH": str(flags.ROOT)}
    command = [sys.executable, "-c", LAUNCHER.format(str(tmp_path))]
    with subprocess.Popen(command, env=environment) as launcher:
        wait_until(lambda: (tmp_path / "ready").exists())
        launcher.kill()
    wait_until(lambda: (tmp_path / "0/saved").exists())


def wait_until(condition):
    """Waits up to 30 seconds for a condition."""
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("the condition did not become true in 30 seconds")
