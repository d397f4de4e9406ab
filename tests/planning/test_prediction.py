"""A dry run predicts the operations of all members, the memory and the time."""

import json

import jax
import pytest

from experiments.run import main, parse
from jaxformer import build
from jaxformer.planning import prediction
from jaxformer.training.cost import flops, memory, throughput
from tests.experiments.conftest import tiny


def phases(*flags):
    return build.phases(parse(tiny(*flags)).config)


def operations(*flags):
    setup = phases(*flags)[0].setup
    return flops.matmul_flops(
        setup.step(), jax.eval_shape(setup.create), memory.batch_shapes(setup)
    )


def test_members_multiply_the_operations_however_they_are_computed():
    """XLA counts the body of a loop once, so it cannot count members in turn."""
    one = operations()
    for how in ("map", "vmap"):
        assert operations("--config.n_seeds=3", f"--config.train.members={how}") == 3 * one
    assert operations("--config.train.accumulate=4") == one


@pytest.mark.slow  # traces three programs
def test_recomputation_is_not_counted_as_operations_of_the_model():
    flags = ("--config.model.remat=True", "--config.train.loss_chunk=4")
    assert operations(*flags) > operations()
    assert (
        throughput.Throughput(phases(*flags)[0].setup, 7).performance()["model_flops"]
        == operations()
    )


@pytest.mark.slow  # trains, and scores twice
def test_a_measured_plan_is_near_the_run(tmp_path, capsys):
    flags = [*tiny("--config.train.steps=200", "--config.train.eval_every=100")]
    assert main([*flags, "--measure"]) == 0
    assert "(measured)" in capsys.readouterr().out
    measured = prediction.measured_prediction(
        phases(*flags[1:]), build.settings(parse(flags).config)
    )
    assert main([*flags, f"--workdir={tmp_path / 'run'}"]) == 0
    performance = json.loads((tmp_path / "run/result.json").read_text())["performance"]
    assert measured.step_flops == performance["model_flops"]
    assert 0.85 < measured.memory / performance["peak_memory"] < 1.15


def test_a_recipe_without_training_cannot_be_measured(capsys):
    assert main(["--config=configs/attention_paths/posterior.py:scale=tiny", "--measure"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "the recipe 'posterior' cannot measure them" in line
