"""Options of the training engine work in every recipe that trains, or are refused."""

import json

import pytest

from experiments import recipes
from experiments.cli import flags
from experiments.cli.recipe_table import RECIPES
from experiments.run import main
from jaxformer import build
from jaxformer.core.errors import UserError
from tests.experiments.conftest import TINY

RECALL = (
    "--config=configs/associations/recall.py:scale=tiny",
    "--config.model.width=8",
    "--config.data.test_size=16",
    "--config.train.batch_size=8",
)
THAWED = "--config.unfreeze=((10, (('.*', 'train'),)),)"


@pytest.mark.slow
def test_recall_unfreezes_and_records_the_trained_share(tmp_path):
    little = ("--config.recall.fractions=0.0,", "--config.recall.probe_every=20")
    assert main([*RECALL, *little, THAWED, f"--workdir={tmp_path}"]) == 0
    result = json.loads((tmp_path / "result.json").read_text())
    assert "frozen" not in result["parameters"]  # at the end all parameters train
    counts = build.phases(flags.load_config(RECALL[0].removeprefix("--config=")))[0].setup.counts()
    assert "frozen" in counts
    assert 0.5 < result["metrics"]["trained_share"]["mean"] < 1


@pytest.mark.parametrize("arguments", [TINY, RECALL], ids=["train", "recall"])
def test_members_that_do_not_fit_are_refused(arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("jaxformer.training.cost.memory.free_memory", lambda: 2**16)
    assert main([*arguments, f"--workdir={tmp_path / 'run'}"]) == 2
    assert "a population of 1 needs about" in capsys.readouterr().err


def test_a_section_that_a_recipe_does_not_use_is_refused():
    config = flags.to_dict(flags.load_config("configs/mixit/initialisation.py:scale=tiny"))
    recipes.check(config)
    config["optim"] = {"schedule": "constant"}
    with pytest.raises(UserError, match="'measure' does not use 'optim'; leave it at its default"):
        recipes.check(config)


def test_an_unknown_recipe_is_named():
    with pytest.raises(UserError, match=r"unknown recipe 'trane'\. Did you mean 'train'"):
        recipes.module("trane")


def test_every_recipe_has_run_and_dry_run():
    for name in RECIPES:
        module = recipes.module(name)
        assert callable(module.run) and callable(module.dry_run)
