"""One tiny run a task and recipe, in this process."""

import json

import pytest

from experiments.run import main

SMALL = ("--config.model.width=16", "--config.model.mlp_width=64", "--config.data.test_size=20")


@pytest.fixture
def run(tmp_path):
    def run(config, *words):
        assert main([f"--config={config}", *SMALL, *words, f"--workdir={tmp_path / 'run'}"]) == 0
        return json.loads((tmp_path / "run/result.json").read_text())

    return run


def test_memorization_learns_its_table(run):
    result = run(
        "configs/mixit/memorization.py:variant=mixit,scale=tiny",
        "--config.task.symbols=4",
        "--config.train.batch_size=16",
        "--config.train.steps=100",
        "--config.n_seeds=2",
        "--config.optim.learning_rate=1e-6,1e-2",
    )
    accuracy = result["metrics"]["accuracy"]
    assert accuracy["mean"] == 1.0 and accuracy["n"] == 2 and accuracy["sem"] == 0
    bits = result["metrics"]["bits_per_parameter"]["mean"]
    assert bits == pytest.approx(16 * 2 / result["parameters"]["train"], rel=1e-6)
    chosen = {m["learning_rate"]: m["chosen"] for m in result["members"]}
    assert chosen == {1e-6: False, 1e-2: True}
    assert len(result["members"]) == 4


def test_measure_sees_frozen_attention_go_uniform(run):
    result = run(
        "configs/mixit/initialisation.py:variant=frozen_qk", "--config.model.qk_init_std=0.02"
    )
    metrics = result["metrics"]
    assert metrics["attention_entropy/block_0/attn/weights"]["mean"] > 0.999
    assert 0 < metrics["token_cosine/block_1/states"]["mean"] < 1
    assert result["parameters"]["frozen"] == 4 * 16 * 16
