"""Runs on a local Slurm have the numbers of runs without it; several nodes; bad input."""

import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from experiments.schedule import child
from jaxformer.io.run_folder import Workdir
from tests.experiments.conftest import instead, tiny
from tests.slurm import cluster as daemons
from tests.slurm.conftest import PATIENCE, ROOT

pytestmark = pytest.mark.slow
SWEEP = ROOT / "experiments/sweep.py"
OPTIONS = 'time = "30m"\nsignal = 60\n'
# Long enough to be saved on the way.
STEPS = ("--config.train.steps=600", "--config.train.eval_every=300", "--config.train.target=2")


@pytest.fixture
def options(tmp_path):
    """Returns options(text), the flag --slurm=FILE for a file of these lines."""

    def write(text=""):
        (tmp_path / "cluster.toml").write_text(OPTIONS + text)
        return f"--slurm={tmp_path / 'cluster.toml'}"

    return write


def same(folder: Path, alone: Path):
    """Checks that rows and numbers are equal to the last bit."""
    assert Workdir(folder).rows() == Workdir(alone).rows()
    one, other = (Workdir(path).read("result.json") for path in (folder, alone))
    for field in ("members", "metrics", "baselines", "steps", "config_hash"):
        assert one[field] == other[field]


def test_a_sweep_that_is_queued_again_ends_as_alone(python, cluster, options, tmp_path):
    arguments = [*instead(tiny(*STEPS)), "--grid=model.layers=1,2"]
    started = python.started(
        SWEEP,
        *arguments,
        f"--workdir={tmp_path}/cluster",
        "--executor=slurm",
        options("cpus = 1\n"),
    )
    cluster.until(lambda: any(tmp_path.glob("cluster/*/ckpt/[1-9]*")), 200)
    for name in cluster.ask("squeue", "-h", "-r", "-t", "R", "-o", "%A").split():
        cluster.ask("scancel", "--signal=USR2", name)
    output, _ = started.communicate(timeout=PATIENCE)
    assert started.returncode == 0 and "ran 2 of 2" in output, output
    logs = [file.read_text() for file in tmp_path.glob("cluster/*.log")]
    assert any("resuming from step" in log and "start 2" in log for log in logs), logs
    code, text = python(SWEEP, *arguments, f"--workdir={tmp_path}/alone")
    assert code == 0, text
    folders = sorted(tmp_path.glob("alone/*/result.json"))
    assert len(folders) == 2
    for file in folders:
        same(tmp_path / "cluster" / file.parent.name, file.parent)


def test_two_nodes_are_one_run(python, cluster, options, tmp_path):
    arguments = tiny("--config.devices.data=1", "--config.devices.fsdp=2")
    arguments += ["--grid=model.layers=1,2", f"--workdir={tmp_path}/two"]
    nodes = options("nodes = 2\ncpus = 1\n")
    code, output = python(SWEEP, *arguments, "--executor=slurm", nodes)
    assert code == 0, output + "".join(f.read_text() for f in tmp_path.glob("two/**/*.out"))
    for file in tmp_path.glob("two/*/result.json"):
        assert json.loads(file.read_text())["environment"]["devices"] == 2
    code, text = python(SWEEP, *arguments, "--status")
    assert code == 0 and "2 runs: 2 finished" in text


def test_a_process_of_two_is_killed_and_both_start_again(python, cluster, options, tmp_path):
    steps = ("--config.train.steps=500", "--config.train.eval_every=250")
    arguments = tiny("--config.devices.data=1", "--config.devices.fsdp=2", *steps)
    arguments += ["--grid=model.layers=1,2", "--processes=1", f"--workdir={tmp_path}/two"]
    arguments += ["--executor=slurm", options("nodes = 2\ncpus = 1\n"), "--config.train.target=2"]
    started = python.started(SWEEP, *arguments)
    cluster.until(lambda: len([*tmp_path.glob("two/*/ckpt/[1-9]*")]) > 1, 200)
    (folder,) = {file.parent.parent for file in tmp_path.glob("two/*/ckpt/[1-9]*")}
    os.kill(run_of(folder, rank=1), signal.SIGKILL)
    output, _ = started.communicate(timeout=PATIENCE)
    assert started.returncode == 0 and "ran 2 of 2" in output, output
    log = folder.with_name(f"{folder.name}.log").read_text()
    assert "another process of this job stopped" in log and "resuming from step" in log, log


def run_of(folder: Path, rank: int) -> int:
    """Returns the process of a run in a job of several."""
    for file in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            arguments = (file.parent / "cmdline").read_text().split("\0")
            is_run = (
                any("run.py" in word for word in arguments) and f"--workdir={folder}" in arguments
            )
            if is_run and f"SLURM_PROCID={rank}" in file.read_text().split("\0"):
                return int(file.parent.name)
    raise AssertionError(f"no run of {folder} with rank {rank}")


def test_a_batch_script_without_srun_runs_alone(python, cluster, tmp_path):
    arguments = " ".join(
        [str(ROOT / ".venv/bin/python"), str(ROOT / "experiments/run.py"), *tiny()]
    )
    script = f"#!/bin/sh\n{arguments} --workdir={tmp_path}/run\n{arguments} --help | head -3\n"
    (tmp_path / "script.sh").write_text(script)
    done = subprocess.run(
        ["sbatch", "--wait", "-N2", "-n4", "-o", f"{tmp_path}/out", str(tmp_path / "script.sh")],
        env=python.environment,
        timeout=PATIENCE,
    )
    output = (tmp_path / "out").read_text()
    assert done.returncode == 0 and "Traceback" not in output, output
    assert (tmp_path / "run/result.json").exists()


@pytest.mark.parametrize(
    "lines, message",
    [
        ("partition = 'mian'\n", "unknown partition 'mian'. Did you mean 'main'?"),
        ("constraint = 'h100'\n", "Slurm does not accept the jobs: Batch job submission failed: "),
        ("[more]\nreservation = 'none'\n", "Slurm does not accept the jobs: Batch job submission"),
        ("[more]\nno-such-flag = '1'\n", "Slurm does not accept the jobs: "),
    ],
)
def test_what_the_cluster_lacks_is_a_one_line_error(lines, message, python, options, tmp_path):
    arguments = [*tiny(), "--grid=model.layers=1,2", f"--workdir={tmp_path}/sweep"]
    code, output = python(SWEEP, *arguments, "--executor=slurm", options(lines))
    error = [line for line in output.splitlines() if line.startswith("error: ")]
    assert code == 2 and len(error) == 1 and message in error[0], output
    assert "Traceback" not in output and "sbatch: error" not in output


def test_a_full_queue_is_a_one_line_error(python, tmp_path, options):
    """The cluster accepts three jobs; sbatch itself waits two minutes for room."""
    with daemons.running(nodes=2, most=3) as small:
        python.environment = python.environment | {"SLURM_CONF": str(small.folder / "slurm.conf")}
        grid = "--grid=model.layers=1,2,3,4,5,6"
        arguments = [*tiny(), grid, f"--workdir={tmp_path}/sweep", "--executor=slurm", options()]
        code, output = python(SWEEP, *arguments)
    assert code == 2 and "error: Slurm does not accept the jobs: " in output, output


@pytest.mark.skipif(os.geteuid() != 0, reason="only root hides a folder from a process")
def test_a_folder_that_the_nodes_do_not_share_is_noticed(python, cluster, options, tmp_path):
    room = tmp_path / "folder"
    room.mkdir()
    for name in cluster.names:
        cluster.daemons[name].terminate()
        cluster.daemons[name].wait()
    hidden = f"mount -t tmpfs none {room} && exec slurmd -D -N "
    for name in cluster.names:
        arguments = child.tied_command(["/usr/bin/unshare", "-m", "sh", "-c", hidden + name])
        cluster.daemons[name] = subprocess.Popen(arguments, env=cluster.environment)
    try:
        arguments = [*tiny(), "--grid=model.layers=1,2", f"--workdir={room}", "--executor=slurm"]
        code, output = python(SWEEP, *arguments, options())
        assert code == 1 and output.count("is it a folder that all nodes share?") == 4, output
    finally:
        for name in cluster.names:
            cluster.daemons[name].terminate()
            cluster.daemons[name].wait()
            cluster.start_node(name)
