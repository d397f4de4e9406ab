"""Jobs of the Slurm executor with simulated commands of Slurm: signals, workers, foreign files."""

import json
import os
import pickle
import signal
import sys
import threading

import pytest

from experiments.schedule import launch
from experiments.schedule.jobs import Job
from experiments.schedule.slurm.executor import SlurmExecutor
from experiments.schedule.slurm.options import Options
from experiments.schedule.slurm.worker import Worker
from jaxformer.runtime.progress import Interrupt


def test_a_repeated_signal_of_submitit_saves(monkeypatch):
    monkeypatch.setenv("SUBMITIT_EXECUTOR", "slurm")
    monkeypatch.setenv("SUBMITIT_PREEMPT_SIGNAL", "USR1")
    before = signal.getsignal(signal.SIGUSR1)
    with Interrupt() as interrupt:
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGUSR1)
        assert interrupt.signal == signal.SIGTERM
    assert signal.getsignal(signal.SIGUSR1) == before


def test_outside_of_a_job_the_signal_has_its_default_effect(monkeypatch):
    monkeypatch.delenv("SUBMITIT_EXECUTOR", raising=False)
    monkeypatch.delenv("SUBMITIT_PREEMPT_SIGNAL", raising=False)
    with Interrupt():
        assert signal.getsignal(signal.SIGUSR2) == signal.SIG_DFL


# Ends as its config demands; saves on the signal of submitit.
RUN = """
import os, pathlib, signal, sys, time
arguments = dict(argument.partition("=")[::2] for argument in sys.argv[1:])
folder = pathlib.Path(arguments["--workdir"])
folder.mkdir(exist_ok=True)
assert signal.getsignal(signal.SIGUSR2) == signal.SIG_IGN  # until it listens
with open(folder / "starts", "a") as file:
    file.write("x")
if arguments["--config"] == "killed" and len((folder / "starts").read_text()) < 3:
    os.kill(os.getpid(), signal.SIGKILL)
if arguments["--config"] == "slow":
    signal.signal(signal.SIGUSR2, lambda *_: sys.exit(143))
    (folder / "ready").touch()
    time.sleep(60)
if arguments["--config"] == "finished":
    (folder / "result.json").write_text("{}")
sys.exit(0 if arguments["--config"] != "broken" else 2)
"""


@pytest.fixture
def worker(tmp_path, monkeypatch):
    monkeypatch.setenv("SUBMITIT_EXECUTOR", "slurm")
    monkeypatch.setattr(launch, "PROGRAM", (sys.executable, "-c", RUN))
    return lambda kind: Worker(Job("a", kind, {}, tmp_path / "run"), 60.0, tmp_path / "run.json")


def test_a_worker_starts_a_killed_run_again_and_writes_its_code(
    worker, tmp_path, monkeypatch, capsys
):
    assert worker("killed")() == 0 and (tmp_path / "run/starts").read_text() == "xxx"
    assert worker("broken")() == 2
    assert json.loads((tmp_path / "run.json").read_text()) == {"code": 2}
    monkeypatch.setattr(launch, "PROGRAM", None)
    with pytest.raises(TypeError):
        worker("broken")()
    assert "NoneType" in json.loads((tmp_path / "run.json").read_text())["error"]
    out = capsys.readouterr().out
    assert out.count("killed by signal 9; it is started again") == 2
    assert "scontrol is missing" in out or os.path.exists("/usr/bin/scontrol")


def test_a_worker_saves_at_its_time_limit_and_can_be_queued_again(worker, tmp_path, monkeypatch):
    submitit = type(sys)("submitit")
    helpers = type(sys)("submitit.helpers")
    helpers.DelayedSubmission = lambda function: ("again", function)
    monkeypatch.setitem(sys.modules, "submitit", submitit)
    monkeypatch.setitem(sys.modules, "submitit.helpers", helpers)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    slow_worker = worker("slow")

    def up(number, frame):  # as submitit does it: in the middle of the wait
        raise SystemExit(repr(slow_worker.checkpoint()[0]))

    before = signal.signal(signal.SIGALRM, up)
    try:

        def later():
            while not (tmp_path / "run/ready").exists():
                pass
            os.kill(os.getpid(), signal.SIGALRM)

        threading.Thread(target=later).start()
        with pytest.raises(SystemExit, match="again"):
            slow_worker()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert slow_worker.process.wait() == 143
    assert pickle.loads(pickle.dumps(slow_worker)).process is None


# A Slurm of shell scripts. Job 7 starts before sbatch returns, hence before submitit has written
# what the job is to do. A file in alive/ is a job that runs.
SBATCH = """
jobs=$(sed -n 's/^#SBATCH --array=0-\\([0-9]*\\)%.*/\\1/p' "$1")
mkdir -p "$ROOM/alive"
for i in $(seq 0 "${jobs:-0}"); do
  touch "$ROOM/alive/7_$i"
  (
    SLURM_JOB_ID=7 SLURM_ARRAY_JOB_ID=7 SLURM_ARRAY_TASK_ID=$i bash "$1"
    rm "$ROOM/alive/7_$i"
  ) > "$ROOM/job-$i.log" 2>&1 &
done
sleep "$HEAD_START"
echo "Submitted batch job 7"
"""
SQUEUE = 'for job in $(ls "$ROOM/alive"); do echo "$job|RUNNING|n1|None"; done'
SRUN = """
log=$(echo "$3" | sed "s/%A_%a_%t/7_${SLURM_ARRAY_TASK_ID}_0/")
shift 3
exec "$@" > "$log" 2>&1
"""


class Planted:
    """An object that writes a file when it is unpickled."""

    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return (os.mkdir, (str(self.file),))


@pytest.fixture
def shell_cluster(pretended, tmp_path, monkeypatch):
    """Returns a cluster of shell scripts; its folder has pickles with the names of job 7."""
    pytest.importorskip("submitit")
    monkeypatch.setenv("ROOM", str(tmp_path))
    monkeypatch.setenv("HEAD_START", "0")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    for program, script in (("srun", SRUN), ("sbatch", SBATCH), ("squeue", SQUEUE)):
        pretended(program, script)
    for program in ("sinfo", "scancel"):
        pretended(program, "exit 0")
    root = tmp_path / "sweep"
    (root / "slurm").mkdir(parents=True)
    planted = pickle.dumps(Planted(tmp_path / "executed"))
    for i in (0, 1):
        for name in (f"7_{i}_0_result.pkl", f"7_{i}_submitted.pkl"):
            (root / "slurm" / name).write_bytes(planted)
    monkeypatch.setattr(launch, "PROGRAM", (sys.executable, "-c", RUN))
    return root


def test_a_planted_result_is_not_unpickled(shell_cluster, pretended, tmp_path):
    pretended("sbatch", "echo Submitted batch job 7")  # its jobs vanish
    pretended("squeue", "exit 0")
    jobs = [Job(f"run {i}", "finished", {}, shell_cluster / f"run-{i}") for i in range(2)]
    with SlurmExecutor(Options(), shell_cluster) as cluster:
        outcomes = list(cluster.run(jobs))
    assert [outcome.code for outcome in outcomes] == [1, 1]
    assert not (tmp_path / "executed").exists()


@pytest.mark.slow
def test_a_job_runs_the_submitted_file_and_not_a_planted_one(shell_cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("HEAD_START", "3")
    kinds = ("finished", "broken")
    jobs = [Job(kind, kind, {}, shell_cluster / f"run-{kind}") for kind in kinds]
    with SlurmExecutor(Options(), shell_cluster) as cluster:
        outcomes = {outcome.job.name: outcome.code for outcome in cluster.run(jobs)}
    assert outcomes == {"finished": 0, "broken": 2}
    assert not (tmp_path / "executed").exists()
