"""Two processes train, checkpoint and resume as one run. If one is killed, the other reports it."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import pytest

from jaxformer.io.run_folder import Workdir
from tests.experiments.conftest import ROOT, instead, tiny

pytestmark = pytest.mark.slow  # six starts of a process, a minute of CPU time
STEPS = 200
HANG_SECONDS = 900  # after which a process is taken for hung, on a busy machine too
MESH = (
    "--config.devices.data=1",
    "--config.devices.fsdp=2",
    "--config.train.log_every=5",
    "--config.train.target=2",
    "--config.train.eval_every=100",
    f"--config.train.steps={STEPS}",
)


def start(workdir, *arguments, program=""):
    """Starts both processes of a job with one device each. `program` replaces run.py."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "JAX_COORDINATOR_ADDRESS": f"localhost:{port}",
        "JAX_NUM_PROCESSES": "2",
    }
    run = ["-c", program] if program else [str(ROOT / "experiments/run.py")]
    command = [sys.executable, *run, *instead(tiny(*MESH), *arguments)]
    return [
        subprocess.Popen(
            [*command, f"--workdir={workdir}"],
            env=environment | {"JAX_PROCESS_ID": str(index)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(2)
    ]


def finish(processes):
    return [process.communicate(timeout=HANG_SECONDS) for process in processes]


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """Returns a job that was killed in the middle and then resumed to its end."""
    workdir = tmp_path_factory.mktemp("job") / "run"
    processes = start(workdir)
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline and processes[0].poll() is None:
        if (workdir / "ckpt").exists() and any((workdir / "ckpt").glob("[1-9]*[0-9]")):
            break
        time.sleep(0.05)
    processes[1].send_signal(signal.SIGKILL)
    (_, message), _ = finish(processes)
    code = processes[0].returncode
    resumed = start(workdir)
    (out, errors), (quiet, _) = finish(resumed)
    assert [p.returncode for p in resumed] == [0, 0], errors[-2000:]
    return workdir, code, message, out, quiet


def test_a_killed_process_ends_the_other_with_a_message(job):
    _, code, message, _, _ = job
    assert code == 3 and "another process of this job stopped" in message


def test_the_job_resumes_and_writes_one_record(job):
    workdir, _, _, out, quiet = job
    assert "resuming from step" in out and "parameters:" in out
    assert "parameters:" not in quiet  # only process 0 prints
    result = json.loads((workdir / "result.json").read_text())
    assert result["environment"]["devices"] == 2 and result["steps"] == STEPS
    steps = [row["step"] for row in Workdir(workdir).rows() if "loss" in row]
    assert steps == list(range(5, STEPS + 1, 5))
