"""Every recipe ends as if it had not been killed, at whatever moment it was.

HOSTILE_SEED draws the moments; HOSTILE_KILLS is how many there are over all recipes. A recipe more
is a line more.
"""

import os
import subprocess
import sys

import pytest

from tests.experiments.conftest import POSTERIOR, ROOT, TINY, instead

pytestmark = pytest.mark.hostile
SEED = int(os.environ.get("HOSTILE_SEED") or 0)
KILLS = int(os.environ.get("HOSTILE_KILLS") or 200)

SMALL = instead(TINY, "--config.train.steps=40", "--config.optim.warmup=5")
RECALL = (
    "--config=configs/associations/finetune.py:scale=tiny",
    "--config.model.width=8",
    "--config.data.test_size=16",
    "--config.train.batch_size=8",
)
COMMANDS = {
    "train": SMALL,
    "population": [*SMALL, "--config.n_seeds=2", "--config.optim.learning_rate=1e-3,1e-2"],
    "look": instead(SMALL, "--config=configs/mixit/induction_head.py:scale=tiny"),
    "recall": RECALL,
    "posterior": POSTERIOR,
    "solve": ("--config=configs/two_failure_modes/figB1_overlap.py:scale=tiny",),
    "measure": (
        "--config=configs/mixit/initialisation.py:variant=frozen_qk,scale=tiny",
        "--config.model.width=16",
        "--config.model.mlp_width=64",
        "--config.data.test_size=20",
    ),
    "oneshot": (
        "--config=configs/attention_paths/oneshot.py:scale=tiny",
        "--config.train.steps=20",
        "--config.optim.warmup=5",
        "--config.train.eval_every=10",
    ),
}


@pytest.mark.parametrize("recipe", COMMANDS)
def test_a_killed_run_ends_as_if_it_had_not_been(recipe, tmp_path):
    beside("harness", tmp_path, SEED, max(1, KILLS // len(COMMANDS)), *COMMANDS[recipe])


def beside(module, *words):
    """Runs a module of this folder in a process of its own, where no device is used yet."""
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".jax_cache"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    done = subprocess.run(
        [sys.executable, "-m", f"tests.hostile.{module}", *map(str, words)],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    print(f"HOSTILE_SEED={SEED}\n{done.stdout}")
    assert done.returncode == 0, f"HOSTILE_SEED={SEED}\n{done.stdout}{done.stderr[-3000:]}"
