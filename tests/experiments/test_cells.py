"""A random variant of every config at scale tiny, from the command to the record.

CELLS_SEED draws the variants; tests/test_configs.py builds all of them. A trained cell runs 40
steps, because the records show whether it learns.
"""

import json
import os
import random

import pytest

from experiments.cli import flags
from experiments.run import main
from tests.choices import cells

pytestmark = pytest.mark.slow  # 5 to 20 CPU seconds for each config
SHORT = ("--config.train.steps=40", "--config.optim.warmup=5", "--config.train.eval_every=20")
DRAW = random.Random(int(os.environ.get("CELLS_SEED") or 0))
CELLS = [
    DRAW.choice(cells(file, scale=("tiny",), preset=("paper",))) for file in flags.config_files()
]


@pytest.mark.parametrize("cell", CELLS)
def test_a_tiny_cell_runs(cell, tmp_path):
    config = flags.load_config(cell)
    short = SHORT if config.recipe in ("train", "look") and not config.unfreeze else ()
    assert main([f"--config={cell}", *short, f"--workdir={tmp_path / 'run'}"]) == 0
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert result["scale"] == "tiny" and result["metrics"]
    for name, value in result["metrics"].items():
        assert value["mean"] is not None, f"{name} is not a number"
