"""The anatomy of a task on a local Slurm has the numbers of the same command without it."""

import json
import signal

import pytest

from tests.slurm.conftest import PATIENCE, ROOT

pytestmark = pytest.mark.slow
PROGRAM = ROOT / "experiments/anatomy.py"
TASK = "from jaxformer.tasks.memorize import Memorize\nSmall = Memorize(8)\n"
FLAGS = ("--width=16", "--layers=1", "--heads=2", "--steps=60", "--rates=3e-2", "--seeds=1")
FLAGS += ("--methods=frozen",)


def members_of(folder):
    files = folder.glob("members-*/*-seed*.json")
    return {file.name: json.loads(file.read_text())["test"] for file in files}


def test_jobs_train_the_members_and_are_found_again_after_ctrl_c(python, cluster, tmp_path):
    (tmp_path / "small_task.py").write_text(TASK)
    (tmp_path / "cluster.toml").write_text('time = "30m"\nsignal = 60\ncpus = 1\n')
    task = [PROGRAM, f"--task={tmp_path}/small_task.py:Small", *FLAGS]
    command = [*task, f"--workdir={tmp_path}/cluster"]
    command += ["--executor=slurm", f"--slurm={tmp_path}/cluster.toml"]

    def set_nodes(state):
        for name in cluster.names:
            words = ("scontrol", "update", f"nodename={name}", f"state={state}", "reason=test")
            cluster.ask(*words)

    set_nodes("drain")  # the first job waits
    try:
        first = python.started("-u", *command)
        cluster.until(lambda: cluster.ask("squeue", "-h", "-o", "%i"), PATIENCE)
        first.send_signal(signal.SIGINT)
        text, _ = first.communicate(timeout=PATIENCE)
        assert first.returncode == 130 and "still in the queue: 1" in text, text
        second, text = python.started("-u", *command), ""
        for line in second.stdout:
            text += line
            if "in the queue already: 1" in line or line.startswith("submitted"):
                break
    finally:
        set_nodes("resume")
    text += second.communicate(timeout=PATIENCE)[0]
    assert second.returncode == 0 and "in the queue already: 1" in text, text
    assert text.count("submitted") == 1 and "embedding, frozen: accuracy" in text, text
    packs = tmp_path.glob("cluster/members-*/job-*/pack.json")
    # The whole network alone, then jobs of several members: one, or more on a slow machine.
    sizes = sorted(len(json.loads(file.read_text())["members"]) for file in packs)
    assert sizes[0] == 1 and sizes[-1] > 1 and sum(sizes) == 11, sizes
    code, text = python(*task, f"--workdir={tmp_path}/alone")
    assert code == 0, text
    assert members_of(tmp_path / "cluster") == members_of(tmp_path / "alone")
    assert len(members_of(tmp_path / "alone")) == 11
