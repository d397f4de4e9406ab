"""Two processes of one job: whatever ends one of them, the other ends with a one-line error."""

import signal
import time

import pytest

from tests.experiments.test_processes import start

pytestmark = pytest.mark.hostile
LIMIT = 30.0  # seconds until the other has ended
OURS = "error: another process of this job stopped"
JAX = "Terminating process because the JAX distributed service detected fatal errors"
# Before the job begins, process WHO gets an error in the middle of its training.
FAILS = """
import os, sys
from experiments import run
from jaxformer.training.session import Session
record = Session.record
def and_then(self, first, metrics):
    record(self, first, metrics)
    if os.environ["JAX_PROCESS_ID"] == "{who}" and first >= 20:
        raise {error}
Session.record = and_then
sys.exit(run.main(sys.argv[1:]))
"""
LONG = ("--config.train.steps=200000", "--config.train.eval_every=100000")


def trains(workdir, processes):
    """Waits until rows are written."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and all(p.poll() is None for p in processes):
        if (workdir / "metrics.jsonl").exists() and (workdir / "metrics.jsonl").stat().st_size:
            time.sleep(0.5)
            return
        time.sleep(0.05)
    raise AssertionError([p.communicate() for p in processes if p.poll() is not None])


def ends(process, since):
    """(exit code, stderr) of a process that ends in time."""
    try:
        _, error = process.communicate(timeout=LIMIT)
    except BaseException:
        process.kill()
        raise
    assert time.monotonic() - since < LIMIT
    return process.returncode, error


def end(processes):
    for process in processes:
        process.kill()
        for pipe in (process.stdout, process.stderr):
            pipe.close()


def lines(error):
    """Returns the lines of stderr without those of a run without errors."""
    expected = ("step ", "stopping after", "Gloo", "[Gloo]")
    return [line for line in error.splitlines() if line and not line.startswith(expected)]


@pytest.mark.parametrize("who", [0, 1])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_killed_or_hung_process_ends_the_other(tmp_path, who, how):
    processes = start(tmp_path / "run", *LONG)
    try:
        trains(tmp_path / "run", processes)
        since = time.monotonic()
        processes[who].send_signal(how)
        code, error = ends(processes[1 - who], since)
        if who == 0 and how == signal.SIGKILL:  # JAX's service dies with process 0
            assert (code == 3 and OURS in error) or (code == -signal.SIGABRT and JAX in error)
        else:
            assert code == 3 and len(lines(error)) == 1 and lines(error)[0].startswith(OURS), error
        if how == signal.SIGSTOP:
            processes[who].send_signal(signal.SIGCONT)
            assert ends(processes[who], time.monotonic())[0] == 3
    finally:
        end(processes)


ERRORS = ["RuntimeError('x')", "OSError(28, 'full', 'f')", "MemoryError()", "UserError('y')"]


@pytest.mark.parametrize("who, error", [(i % 2, error) for i, error in enumerate(ERRORS)])
def test_a_failed_process_ends_the_other(tmp_path, who, error):
    program = "from jaxformer.core.errors import UserError\n" + FAILS.format(who=who, error=error)
    processes = start(tmp_path / "run", *LONG, program=program)
    try:
        since = time.monotonic() + 120  # the start is in it
        own, ended = processes[who].communicate(timeout=150), time.monotonic()
        code, other = ends(processes[1 - who], ended)
        assert since > ended
        assert code == 3 and len(lines(other)) == 1 and lines(other)[0].startswith(OURS), other
        assert processes[who].returncode in (1, 2)
        if error.startswith(("OSError", "UserError")):
            assert len(lines(own[1])) == 1, own[1]
    finally:
        end(processes)


def test_a_mesh_that_leaves_a_process_out_is_refused_by_all(tmp_path):
    processes = start(tmp_path / "run", "--config.devices.fsdp=1", "--config.devices.data=1")
    for process in processes:
        _, error = process.communicate(timeout=120)
        assert process.returncode == 2
        assert len(lines(error)) == 1 and "leaves out a process of this job" in error


@pytest.mark.parametrize("who", [0, 1])
def test_a_signal_to_one_stops_both_alike(tmp_path, who):
    processes = start(tmp_path / "run", *LONG)
    trains(tmp_path / "run", processes)
    processes[who].send_signal(signal.SIGTERM)
    since = time.monotonic()
    for process in processes:
        code, error = ends(process, since)
        assert code == 128 + signal.SIGTERM, error
