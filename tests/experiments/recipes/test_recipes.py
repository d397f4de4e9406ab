"""One tiny run of each task and recipe, in this process."""

import json

import pytest

from experiments.run import main
from jaxformer.io.checkpoint_writer import Checkpoints
from tests.experiments.conftest import wrong_errors

SMALL = ("--config.model.width=16", "--config.model.mlp_width=64", "--config.data.test_size=20")


@pytest.fixture
def run(tmp_path):
    def run(config, *arguments):
        assert (
            main([f"--config={config}", *SMALL, *arguments, f"--workdir={tmp_path / 'run'}"]) == 0
        )
        return json.loads((tmp_path / "run/result.json").read_text())

    return run


@pytest.mark.slow
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


@pytest.mark.slow
def test_parts_thaw_on_time_and_keep_their_moments(run, tmp_path):
    arguments = ("--config.train.steps=40", "--config.optim.warmup=5", "--config.task.max_pairs=3")
    config = "configs/mixit/unfreezing.py:thaw=at_100"
    late = "--config.unfreeze=((20, (('.*/(query|key)/.*', 'late'), ('.*', 'train'))),)"
    small = ("--config.train.batch_size=8", "--config.task.vocab=16", "--config.model.layers=1")
    result = run(config, *arguments, late, *small)
    share = 1 - 0.5 * 2 * 16 * 16 / sum(result["parameters"].values())
    assert result["metrics"]["trained_share"]["mean"] == pytest.approx(share, rel=1e-6)
    assert result["parameters"]["late"] == 2 * 16 * 16 and "frozen" not in result["parameters"]
    with Checkpoints(tmp_path / "run/ckpt") as checkpoints:
        arrays = checkpoints.restore().arrays
    counts = {path: int(x[0]) for path, x in arrays.items() if path.endswith("/count")}
    late = [n for path, n in counts.items() if "/late/" in path]
    train = [n for path, n in counts.items() if "/train/" in path]
    assert late == [20] and train == [40]


WRONG_SCHEDULES = [
    ("((30, (('.*', 'train'),)), (20, (('.*', 'train'),)))", "must increase between 0 and"),
    ("((500, (('.*', 'train'),)),)", "train.steps = 400, got 500 after 0"),
    ("((50, (('.*/(query|key)/.*', 'frozen'), ('.*', 'train'))),)", "change nothing"),
    ("((50, (('.*/(qery|key)/.*', 'frozen'), ('.*', 'trai'))),)", "no optimizer for the label"),
]


def test_wrong_unfreezing_schedules(tmp_path, capsys):
    config = "--config=configs/mixit/unfreezing.py:thaw=never"
    workdir = f"--workdir={tmp_path / 'w'}"
    cases = [
        ([config, f"--config.unfreeze={schedule}", workdir], message)
        for schedule, message in WRONG_SCHEDULES
    ]
    assert not wrong_errors(main, cases, capsys)


# tests/experiments/test_cells.py runs every cell of every task among the long checks.
@pytest.mark.slow  # test_configs.py builds them; retrieval is trained by the quick tests
@pytest.mark.parametrize("task", ["addition", "dyck", "hops", "modular_addition"])
def test_every_algorithmic_task_trains_beside_its_baselines(run, task):
    arguments = (
        "--config.train.steps=20",
        "--config.optim.warmup=5",
        "--config.train.batch_size=16",
    )
    arguments += ("--config.model.layers=1",)
    result = run(f"configs/mixit/{task}.py:variant=standard,scale=tiny", *arguments)
    assert result["metrics"]["loss"]["mean"] > 0 and result["steps"] == 20
    chance = {name: v for name, v in result["baselines"].items() if not name.endswith("_loss")}
    assert all(0 <= value <= 1 for value in chance.values()) and "unigram_loss" not in chance
    above = result["metrics"]["loss"]["mean"] > result["baselines"]["unigram_loss"] + 1e-3
    assert ("alarms" in result) == above
    groups = {n: m for n, m in result["members"][0]["metrics"].items() if n.startswith("accuracy/")}
    if task == "hops":  # every token counts, so the groups weigh what they have of examples
        assert {*groups} == {"accuracy/hops=0", "accuracy/hops=1"}
        total = sum(m["mean"] * m["n"] for m in groups.values())
        whole = result["members"][0]["metrics"]["accuracy"]
        assert total == pytest.approx(whole["mean"] * whole["n"], rel=1e-5)
        assert "accuracy_existing/hops=1" in result["metrics"]
