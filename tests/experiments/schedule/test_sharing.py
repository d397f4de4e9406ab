"""Several launchers share the jobs of the same folders. A stand-in replaces run.py."""

import fcntl
import os
import subprocess
import sys
import threading

import pytest

from experiments.cli import flags
from experiments.schedule import launch, running
from experiments.schedule.launch import LocalExecutor
from jaxformer.core.errors import UserError
from jaxformer.io.run_folder import open_workdir
from tests.experiments.schedule.test_launch import STAND_IN, jobs, root, wait_until

__all__ = ["root"]  # the fixture


def lock_folder(folder):
    """Locks a folder as a run does; returns the open lock file."""
    folder.mkdir(parents=True)
    lock = open(folder / ".lock", "w")  # noqa: SIM115
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def test_a_job_of_another_launcher_is_skipped_and_resumes_here_when_it_is_left(root, capsys):
    lock = lock_folder(root / "0")
    first, second = jobs(root, "good", "good")

    def leave():
        wait_until(second.is_finished)
        lock.close()

    thread = threading.Thread(target=leave)
    thread.start()
    assert running.run_all([first, second]) == 0
    thread.join()
    out = capsys.readouterr().out
    assert "good 0: skipped, another launcher runs it" in out
    assert out.index("skipped") < out.index("good 1: ") < out.index("it resumes here")
    assert first.is_finished() and "ran 2 of 2" in out


def test_a_job_that_another_launcher_finishes_is_done_here_too(root, capsys):
    lock = lock_folder(root / "0")
    first, second = jobs(root, "broken", "good")  # it would fail here

    def finish():
        wait_until(second.is_finished)
        (root / "0/result.json").touch()
        lock.close()

    thread = threading.Thread(target=finish)
    thread.start()
    assert running.run_all([first, second]) == 0
    thread.join()
    out = capsys.readouterr().out
    assert "broken 0: another launcher finished it" in out and "ran 2 of 2" in out


def test_jobs_of_another_launcher_are_left_to_it_on_a_signal(root, capsys):
    lock = lock_folder(root / "0")
    (one,) = jobs(root, "good")
    with LocalExecutor() as executor:
        executor.unfinished.append(one)
        executor.deferred.append(one)
        executor.receive_signal(15, None)
        (outcome,) = executor.run([])
    lock.close()
    assert outcome.by_other_launcher and outcome.stopped
    assert not (root / "0/.spent").exists()


def test_the_error_of_a_locked_folder_contains_the_message_of_the_executor(tmp_path):
    identity = {"config": {}, "config_hash": "x"}
    is_refused = pytest.raises(UserError, match=launch.LOCKED_MESSAGE)
    with open_workdir(tmp_path, identity), is_refused, open_workdir(tmp_path, identity):
        pass


# Two launchers that start at once, with one slot each.
LAUNCHER = """
import sys
from pathlib import Path
from experiments.schedule import launch, running
from tests.experiments.schedule.test_launch import STAND_IN, jobs
launch.PROGRAM = (sys.executable, "-c", {program!r})
sys.exit(running.run_all(jobs(Path({root!r}), *["good"] * 8)))
"""


@pytest.mark.slow
def test_two_launchers_do_each_job_once(tmp_path):
    counting_program = (
        STAND_IN + '\nwith open(folder / "runs", "a") as file:\n    file.write("x")\n'
    )
    command = [sys.executable, "-c", LAUNCHER.format(root=str(tmp_path), program=counting_program)]
    environment = os.environ | {"PYTHONPATH": str(flags.ROOT)}
    pipes = {"stdout": subprocess.PIPE, "text": True}
    both = [subprocess.Popen(command, env=environment, **pipes) for _ in range(2)]
    outputs = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], outputs
    assert [(tmp_path / str(i) / "runs").read_text() for i in range(8)] == ["x"] * 8
    assert all("ran 8 of 8" in text for text in outputs)


def test_a_log_is_claimed_by_one(tmp_path):
    (job,) = jobs(tmp_path, "good")
    log = job.claim_log()
    assert job.claim_log() is None
    log.close()
    again = job.claim_log()
    assert again is not None
    again.close()
