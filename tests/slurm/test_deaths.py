"""Every run ends once if launchers, workers, runs or nodes die. Stand-ins replace the runs."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.slurm.conftest import PATIENCE

pytestmark = pytest.mark.slow

# A run of some seconds, which counts its steps in its folder as a checkpoint would, saves when it
# is told to and goes on from there. It locks its folder as a run does. While the file "hold" is
# beside its folder it stays at step 6, so that no test depends on the speed of the machine.
STAND_IN = """
import fcntl, os, pathlib, signal, sys, time
words = dict(word.partition("=")[::2] for word in sys.argv[1:])
folder = pathlib.Path(words["--workdir"])
folder.mkdir(parents=True, exist_ok=True)
lock = open(folder / ".lock", "a")
fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
def stop(number, frame):
    with open(folder / "saved", "a") as file:
        file.write("x")
    sys.exit(143)
for number in (signal.SIGTERM, signal.SIGUSR2):
    signal.signal(number, stop)
with open(folder / "starts", "a") as file:
    file.write("x")
(folder / "config.json").touch()
(folder / "pid").write_text(str(os.getpid()))
steps = folder / "steps"
while (done := len(steps.read_text()) if steps.exists() else 0) < int(words["--config"]):
    print(f"step {done}/{words['--config']}", flush=True)
    time.sleep(0.1)
    while done > 5 and (folder.parent / "hold").exists():
        time.sleep(0.1)
    with open(steps, "a") as file:
        file.write("x")
if not (folder / "result.json").exists():
    with open(folder / "ends", "a") as file:
        file.write("x")
(folder / "result.json").write_text("{}")
"""
LAUNCHER = """
import functools, sys
from pathlib import Path
from experiments.schedule import launch, running
from experiments.schedule.jobs import Job
from experiments.schedule.slurm import executor
from experiments.schedule.slurm.options import Options
launch.PROGRAM = (sys.executable, "-c", {program!r})
root, partition, lengths = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
jobs = [Job(f"run {{i}}", n, {{}}, root / f"run-{{i}}") for i, n in enumerate(lengths)]
options = Options(time="30m", signal=60, partition=partition, cpus=2)
make_executor = functools.partial(executor.SlurmExecutor, options, root)
sys.exit(running.run_all(jobs, make_executor=make_executor))
"""


@pytest.fixture
def sweep(python, tmp_path):
    """Returns sweep(lengths), which starts a launcher of runs that take tenths of a second."""

    def start(*lengths, partition="main"):
        code = LAUNCHER.format(program=STAND_IN)
        return python.started("-u", "-c", code, tmp_path, partition, *map(str, lengths))

    return start


@pytest.fixture
def hold(tmp_path):
    """Returns a file. No run ends as long as the file exists."""
    file = tmp_path / "hold"
    file.touch()
    yield file
    file.unlink(missing_ok=True)


def result_of(process):
    text, _ = process.communicate(timeout=PATIENCE)
    return process.returncode, text


def read(file):
    return file.read_text() if file.exists() else ""


def each_ended_once(root, lengths):
    for i, n in enumerate(lengths):
        assert read(root / f"run-{i}/ends") == "x", i
        assert len(read(root / f"run-{i}/steps")) == n


def test_an_array_ends_and_is_not_submitted_again(sweep, tmp_path):
    lengths = (5, 5, 5, 5)
    code, text = result_of(sweep(*lengths))
    assert code == 0 and "ran 4 of 4" in text, text
    each_ended_once(tmp_path, lengths)
    jobs = (tmp_path / "slurm/jobs.jsonl").read_text()
    assert jobs.count('"job": "') == 4 and jobs.count("_3") == 1
    assert "step 4/5" in (tmp_path / "run-0.log").read_text()  # beside the run
    code, text = result_of(sweep(*lengths))
    assert code == 0 and (tmp_path / "slurm/jobs.jsonl").read_text().count("job") == 8, text


def test_the_launcher_is_killed_and_the_next_one_watches_the_same_jobs(
    sweep, cluster, tmp_path, hold
):
    lengths = (10, 10)
    first = sweep(*lengths)
    cluster.until(lambda: read(tmp_path / "run-1/steps"))
    first.kill()
    result_of(first)
    text = ""
    with sweep(*lengths) as second:
        for line in second.stdout:
            text += line
            if "in the queue already" in line or line.startswith("submitted"):
                break
        hold.unlink()
        text += second.stdout.read()
    assert second.returncode == 0 and "in the queue already: 2" in text, text
    each_ended_once(tmp_path, lengths)
    assert all(read(tmp_path / f"run-{i}/starts") == "x" for i in (0, 1))


def test_ctrl_c_leaves_the_jobs_in_the_queue(sweep, cluster, tmp_path, hold):
    first = sweep(10)
    cluster.until(lambda: read(tmp_path / "run-0/steps"))
    first.send_signal(signal.SIGINT)
    code, text = result_of(first)
    assert code == 130 and "still in the queue: 1" in text and "scancel" in text, text
    hold.unlink()
    cluster.until(lambda: (tmp_path / "run-0/result.json").exists())
    each_ended_once(tmp_path, (10,))


def test_time_is_up_the_run_is_saved_and_queued_again(sweep, cluster, tmp_path, hold):
    started = sweep(10)
    cluster.until(lambda: read(tmp_path / "run-0/steps"))
    name = cluster.ask("squeue", "-h", "-o", "%A").split()[0]
    cluster.ask("scancel", "--signal=USR2", name)
    cluster.until(lambda: read(tmp_path / "run-0/saved"))
    hold.unlink()
    code, text = result_of(started)
    assert code == 0, text
    each_ended_once(tmp_path, (10,))
    assert read(tmp_path / "run-0/starts") == "xx" and read(tmp_path / "run-0/saved") == "x"


def test_a_preempted_run_goes_on_when_there_is_room(sweep, cluster, tmp_path, hold):
    lengths = (10, 10, 10)
    started = sweep(*lengths)
    cluster.until(lambda: all(read(tmp_path / f"run-{i}/steps") for i in range(3)))
    cluster.ask("sbatch", "-p", "urgent", "-n2", "-o", "/dev/null", "--wrap", "sleep 5")
    cluster.until(lambda: any(read(tmp_path / f"run-{i}/saved") for i in range(3)))
    hold.unlink()
    code, text = result_of(started)
    assert code == 0, text
    each_ended_once(tmp_path, lengths)


def test_a_run_that_is_killed_is_started_again(sweep, cluster, tmp_path, hold):
    started = sweep(10)
    cluster.until(lambda: len(read(tmp_path / "run-0/steps")) > 5)
    os.kill(int(read(tmp_path / "run-0/pid")), signal.SIGKILL)
    hold.unlink()
    code, text = result_of(started)
    assert code == 0, text
    each_ended_once(tmp_path, (10,))
    assert read(tmp_path / "run-0/starts") == "xx"


def test_a_worker_that_is_killed_is_submitted_again(sweep, cluster, tmp_path, hold):
    started = sweep(10)
    cluster.until(lambda: len(read(tmp_path / "run-0/steps")) > 5)
    run = int(read(tmp_path / "run-0/pid"))
    os.kill(parent(run), signal.SIGKILL)
    cluster.until(lambda: read(tmp_path / "run-0/saved"))
    hold.unlink()
    code, text = result_of(started)
    assert code == 0 and "was lost; it is submitted again" in text, text
    each_ended_once(tmp_path, (10,))
    assert read(tmp_path / "run-0/saved") == "x"  # no orphan: it heard of it


def test_a_node_is_lost_and_the_run_goes_on_elsewhere(sweep, cluster, tmp_path, hold):
    started = sweep(10)
    cluster.until(lambda: read(tmp_path / "run-0/steps"))
    (node,) = set(cluster.ask("squeue", "-h", "-o", "%N").split())
    daemon = cluster.daemons[node]
    run = int(read(tmp_path / "run-0/pid"))
    daemon.kill()
    daemon.wait()
    cluster.until(lambda: "down" in cluster.ask("sinfo", "-h", "-n", node, "-o", "%t"), 90)
    # The lost node may still compute: the run elsewhere waits for it, and takes over.
    time.sleep(2.0)
    os.kill(parent(run), signal.SIGKILL)
    cluster.start_node(node)
    hold.unlink()
    code, text = result_of(started)
    assert code == 0, text
    each_ended_once(tmp_path, (10,))


def test_the_controller_is_gone_for_a_while(sweep, cluster, tmp_path, hold):
    started = sweep(10)
    cluster.until(lambda: read(tmp_path / "run-0/steps"))
    cluster.daemons["slurmctld"].kill()
    cluster.daemons["slurmctld"].wait()
    hold.unlink()
    cluster.until(lambda: (tmp_path / "run-0/result.json").exists())
    time.sleep(3.0)
    cluster.daemon("slurmctld", "-D")
    code, text = result_of(started)
    assert code == 0, text
    each_ended_once(tmp_path, (10,))


def parent(pid):
    text = Path(f"/proc/{pid}/stat").read_text()
    return int(text.rpartition(")")[2].split()[1])
