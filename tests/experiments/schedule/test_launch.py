"""Jobs in processes of their own: order, signals, failures; the program is a stand-in."""

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

# Says a step, then ends as its config says; told to stop, it saves and says so.
STAND_IN = """
import pathlib, signal, sys, time
words = dict(word.partition("=")[::2] for word in sys.argv[1:])
folder = pathlib.Path(words["--workdir"])
def stop(number, frame):
    (folder / "saved").touch()
    sys.exit(128 + number)
signal.signal(signal.SIGTERM, stop)
folder.mkdir(parents=True, exist_ok=True)
(folder / "config.json").touch()
print("step 3/9  loss 1", flush=True)
if words["--config"] == "slow":
    (folder.parent / "ready").touch()
    time.sleep(30)
if words["--config"] == "broken":
    print("error: the field x must be 1, got 2.", file=sys.stderr)
    sys.exit(2)
if words["--config"] == "killed":
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
    with LocalExecutor() as executor:
        outcomes = list(executor.run(jobs(root, "broken", "killed", "good")))
    assert [outcome.code for outcome in outcomes] == [2, -9, 0]
    assert outcomes[2].job.is_finished() and executor.signal == 0
    first, second, _ = outcomes
    assert first.message == "the field x must be 1, got 2."
    assert second.message == "killed by signal 9 (out of memory?)"


def test_a_job_is_taken_when_a_place_is_free(root):
    taken = []

    def lazy():
        for job in jobs(root, "good", "good", "good"):
            taken.append(job.name)
            yield job

    with LocalExecutor(2) as executor:
        next(executor.run(lazy()))
    assert 2 <= len(taken) <= 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_reaches_the_job_which_saves_and_no_other_starts(number, root, capfd):
    def press():
        while not (root / "ready").exists():
            time.sleep(0.02)
        os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    thread = threading.Thread(target=press)
    thread.start()
    with LocalExecutor() as executor:
        (outcome,) = executor.run(jobs(root, "slow", "good"))
    thread.join()
    assert outcome.stopped
    assert (root / "0/saved").exists() and not (root / "1").exists()
    assert executor.signal == number and signal.getsignal(number) == before
    assert "once more to stop at once" in capfd.readouterr().err


def test_at_the_deadline_the_job_saves_and_stops(root):
    def pass_the_deadline():
        while not (root / "ready").exists():
            time.sleep(0.02)
        executor.deadline = time.monotonic() - 1

    thread = threading.Thread(target=pass_the_deadline)
    with LocalExecutor() as executor:
        thread.start()
        (outcome,) = executor.run(jobs(root, "slow"))
    thread.join()
    assert outcome.stopped and (root / "0/saved").exists() and executor.signal == 0


def test_leaving_early_stops_what_runs(root):
    with LocalExecutor() as executor:
        outcomes = executor.run(jobs(root, "good", "slow"))
        next(outcomes)
        executor._start(jobs(root, "good", "slow")[1])
        while not (root / "ready").exists():
            time.sleep(0.02)
    assert all(process.poll() is not None for process in executor.running)


def test_the_line_says_how_far_a_job_is(root):
    (job,) = jobs(root, "good")
    job.log().write_text("step 3/9  loss 1\nstep 6/9  loss 1\n")
    assert show_runs.progress_line(job, time.monotonic()) == "good 0: 0 s, step 6 of 9"
    shown = launch.Running(job, time.monotonic(), devices.Slot("GPU 3"))
    console = Console(width=80, file=io.StringIO())
    console.print(show_runs.table([shown], free=2, aside=1))
    text = console.file.getvalue()
    assert re.search(r"GPU 3 +good 0 +0 s +6 of 9", text)
    assert "1 running, 2 slots free, 1 in other launchers" in text


def test_the_workdir_of_a_job_is_its_own(tmp_path):
    config = "configs/mixit/retrieval.py:variant=mixit,scale=tiny"
    one = launch.make_job("a", config, {}, tmp_path)
    other = launch.make_job("a", config, {"train.steps": "7"}, tmp_path)
    assert one.workdir.name.startswith("mixit-retrieval-mixit-tiny-")
    assert one.workdir != other.workdir
    with pytest.raises(UserError, match=r"no field 'train.step'\. Did you mean 'train.steps'"):
        launch.make_job("a", config, {"train.step": "7"}, tmp_path)


def test_a_job_is_no_task_of_the_slurm_job_that_the_launcher_is_in(monkeypatch):
    monkeypatch.setenv("SLURM_NTASKS", "16")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "16")
    monkeypatch.setenv("MINE", "kept")
    environment = launch.run_environment(devices.Slot())
    assert environment["MINE"] == "kept"
    assert not [name for name in environment if name.startswith("SLURM_")]


def test_whether_a_job_resumes_is_what_its_recipe_says(tmp_path):
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


@pytest.mark.skipif(sys.platform != "linux", reason="nobody tells a child there")
def test_the_run_of_a_killed_launcher_saves_and_stops(tmp_path):
    environment = os.environ | {"PYTHONPATH": str(flags.ROOT)}
    words = [sys.executable, "-c", LAUNCHER.format(str(tmp_path))]
    with subprocess.Popen(words, env=environment) as launcher:
        until(lambda: (tmp_path / "ready").exists())
        launcher.kill()
    until(lambda: (tmp_path / "0/saved").exists())


def until(is_so):
    """Waits for it; the test's own time limit is the suite's."""
    for _ in range(600):
        if is_so():
            return
        time.sleep(0.05)
    raise AssertionError("it never was")
