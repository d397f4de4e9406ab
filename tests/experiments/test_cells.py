"""Every config in each of its variants at scale tiny, from the command to the record.

Trained cells run a tenth of their steps: whether they learn is what the records say; here every
path from a config to a result is walked, with its real sizes.
"""

import json

import pytest

from experiments.cli import flags
from experiments.run import main
from tests.choices import cells

pytestmark = pytest.mark.slow  # about 110 cells, 5 to 20 CPU seconds each
SHORT = ("--config.train.steps=40", "--config.optim.warmup=5", "--config.train.eval_every=20")


CELLS = [
    cell
    for file in flags.config_files()
    for cell in cells(file, scale=("tiny",), preset=("paper",))
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
