"""Only the tasks of one srun join a Slurm job as processes of one run."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from experiments import run
from jaxformer.core.errors import UserError
from jaxformer.runtime import processes

ROOT = Path(__file__).parents[1]
BATCH = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "16", "SLURM_PROCID": "0"}


def test_only_a_step_of_several_tasks_joins(monkeypatch):
    joined = []
    monkeypatch.setattr(jax.distributed, "initialize", lambda **options: joined.append(options))
    for name in [name for name in os.environ if name.startswith(("SLURM_", "JAX_COO", "TPU_"))]:
        monkeypatch.delenv(name)
    for environment, joins in (
        ({}, False),
        (BATCH, False),  # an sbatch script without srun
        (BATCH | {"SLURM_STEP_NODELIST": "node[1-2]"}, True),
        (BATCH | {"SLURM_STEP_NODELIST": "node1", "SLURM_STEP_NUM_TASKS": "1"}, False),
        (BATCH | {"SLURM_STEP_NODELIST": "node1", "SLURM_STEP_NUM_TASKS": "4"}, True),
        ({"SLURM_NTASKS": "1", "SLURM_STEP_NODELIST": "node1"}, False),
    ):
        joined.clear()
        with monkeypatch.context() as patch:
            for name, text in environment.items():
                patch.setenv(name, text)
            processes.start()
        assert joined == [{"heartbeat_timeout_seconds": 60}] * joins, environment


def test_wrong_processes_by_hand_are_one_line_errors(monkeypatch):
    monkeypatch.setenv("JAX_COORDINATOR_ADDRESS", "localhost:1")
    for number, index, message in (
        ("two", "0", "JAX_NUM_PROCESSES must be a whole number, got 'two'"),
        ("2", "x", "JAX_PROCESS_ID must be a whole number, got 'x'"),
        ("2", "2", "JAX_PROCESS_ID must be 0 to 1, got 2"),
        ("", "0", "JAX_NUM_PROCESSES and JAX_PROCESS_ID are needed too"),
    ):
        monkeypatch.setenv("JAX_NUM_PROCESSES", number)
        monkeypatch.setenv("JAX_PROCESS_ID", index)
        with pytest.raises(UserError, match=message) as error:
            processes.start()
        assert "\n" not in str(error.value)


def test_a_batch_script_reads_its_flags(monkeypatch, capsys):
    for name, value in BATCH.items():
        monkeypatch.setenv(name, value)
    assert run.main(["--help"]) == 0 and "--dry-run" in capsys.readouterr().out
    assert run.main(["--plto"]) == 2 and "Traceback" not in capsys.readouterr().err


def test_without_jax_one_line_says_what_to_do():
    folder = str(ROOT / "experiments")  # the first place where a script looks for modules
    code = f"import runpy, sys; sys.modules['jax'] = None; sys.path.insert(0, {folder!r}); "
    code += f"runpy.run_path({folder + '/run.py'!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert "source .venv/bin/activate" in done.stderr
