"""Every config in each of its variants at scale tiny, from the command to the record.

Trained cells run a tenth of their steps: whether they learn is what the records say; here every
path from a config to a result is walked, with its real sizes.
"""

import itertools
import json
from unittest.mock import patch

import pytest

from configs import common
from experiments.run import main
from experiments.shared import flags

pytestmark = pytest.mark.slow  # about 110 cells, 5 to 20 CPU seconds each
SHORT = ("--config.train.steps=40", "--config.optim.warmup=5", "--config.train.eval_every=20")


def choices(file: str) -> dict[str, tuple[str, ...]]:
    """The arguments of a config and their choices, but for the scale and the preset."""
    seen: dict[str, tuple[str, ...]] = {}
    parse = common.parse

    def spy(arg, **options):
        for name, values in options.items():
            seen.setdefault(name, values)  # of a config that calls another, its own choices
        return parse(arg, **options)

    with patch.object(common, "parse", spy):
        flags.load_config(file)
    return {name: values for name, values in seen.items() if name not in ("scale", "preset")}


def cells() -> list[str]:
    found = []
    for file in flags.known_configs():
        options = choices(file)
        for values in itertools.product(*options.values()):
            words = [f"{name}={value}" for name, value in zip(options, values, strict=True)]
            found.append(f"{file}:{','.join([*words, 'scale=tiny'])}")
    return found


@pytest.mark.parametrize("cell", cells())
def test_a_tiny_cell_runs(cell, tmp_path):
    config = flags.load_config(cell)
    short = SHORT if config.recipe in ("train", "look") and not config.unfreeze else ()
    assert main([f"--config={cell}", *short, f"--workdir={tmp_path / 'run'}"]) == 0
    result = json.loads((tmp_path / "run/result.json").read_text())
    assert result["scale"] == "tiny" and result["metrics"]
    for name, value in result["metrics"].items():
        assert value["mean"] is not None, f"{name} is not a number"
