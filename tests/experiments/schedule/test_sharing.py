"""Several launchers on the same folders share the work; the program is a stand-in."""

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
from tests.experiments.schedule.test_launch import STAND_IN, jobs, root, until

__all__ = ["root"]  # the fixture


def held(folder):
    """A lock on the folder as a run has it."""
    folder.mkdir(parents=True)
    lock = open(folder / ".lock", "w")  # noqa: SIM115
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def test_a_job_that_another_has_is_skipped_and_goes_on_here_when_it_is_left(root, capsys):
    lock = held(root / "0")
    one, two = jobs(root, "good", "good")

    def leave():
        until(two.is_finished)
        lock.close()

    thread = threading.Thread(target=leave)
    thread.start()
    assert running.run_all([one, two]) == 0
    thread.join()
    said = capsys.readouterr().out
    assert "good 0: skipped, another launcher runs it" in said
    assert said.index("skipped") < said.index("good 1: 0 s") < said.index("it resumes here")
    assert one.is_finished() and "ran 2 of 2" in said


def test_a_job_that_another_has_finished_is_done_here_too(root, capsys):
    lock = held(root / "0")
    one, two = jobs(root, "broken", "good")  # it would fail here

    def finish():
        until(two.is_finished)
        (root / "0/result.json").touch()
        lock.close()

    thread = threading.Thread(target=finish)
    thread.start()
    assert running.run_all([one, two]) == 0
    thread.join()
    said = capsys.readouterr().out
    assert "broken 0: another launcher finished it" in said and "ran 2 of 2" in said


def test_what_another_has_is_left_to_it_when_a_signal_ends_us(root, capsys):
    lock = held(root / "0")
    (one,) = jobs(root, "good")
    with LocalExecutor() as executor:
        executor._forward_signal(15, None)
        executor.deferred.append(one)
        (outcome,) = executor.run([])
    lock.close()
    assert outcome.by_other_launcher and outcome.stopped
    assert not (root / "0/.spent").exists()


def test_the_words_by_which_a_run_says_that_its_folder_is_held(tmp_path):
    held = {"config": {}, "config_hash": "x"}
    says = pytest.raises(UserError, match=launch.LOCKED_MESSAGE)
    with open_workdir(tmp_path, held), says, open_workdir(tmp_path, held):
        pass


# Two launchers that start at once, with one place each.
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
    counted = STAND_IN + '\nwith open(folder / "runs", "a") as file:\n    file.write("x")\n'
    words = [sys.executable, "-c", LAUNCHER.format(root=str(tmp_path), program=counted)]
    environment = os.environ | {"PYTHONPATH": str(flags.ROOT)}
    pipes = {"stdout": subprocess.PIPE, "text": True}
    both = [subprocess.Popen(words, env=environment, **pipes) for _ in range(2)]
    said = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert [(tmp_path / str(i) / "runs").read_text() for i in range(8)] == ["x"] * 8
    assert all("ran 8 of 8" in text for text in said)


def test_a_log_is_claimed_by_one(tmp_path):
    (one,) = jobs(tmp_path, "good")
    log = one.claim_log()
    assert one.claim_log() is None
    log.close()
    again = one.claim_log()
    assert again is not None
    again.close()
