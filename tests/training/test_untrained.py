"""A network that is not trained is a run like any other, so that it can stand in a table."""

import jax
import numpy as np
import pytest

import jaxformer
from jaxformer.core.errors import UserError
from jaxformer.core.settings import DataSettings
from jaxformer.models.decoder import decoder
from jaxformer.tasks.retrieval import Retrieval

TASK = Retrieval(max_pairs=3, vocab=16)
MODEL = decoder(**TASK.sizes, width=8, layers=1, heads=1, mlp_width=8)
OPTIONS = {"batch_size": 8, "progress": False, "data": DataSettings(split="hash")}
FROZEN = ((".*", "frozen"),)


def initial(seed):
    key_params = jaxformer.train(TASK, MODEL, steps=1, seeds=[seed], learning_rate=1e-30, **OPTIONS)
    return key_params.params


@pytest.mark.parametrize("rules, steps", [(FROZEN, 0), (FROZEN, 3), ("standard", 0)])
def test_a_network_in_which_nothing_is_trained_is_a_run_with_its_initial_values(
    rules, steps, capsys
):
    run = jaxformer.train(TASK, MODEL, rules, steps=steps, seeds=[5], **OPTIONS)
    assert "train longer" not in capsys.readouterr().out
    for drawn, expected in zip(
        jax.tree.leaves(run.params), jax.tree.leaves(initial(5)), strict=True
    ):
        np.testing.assert_allclose(drawn, expected, atol=1e-12)
    assert run.result.steps == steps
    assert 0 <= run.result.metrics["accuracy"].mean < 0.6
    assert run.result.metrics["trained_share"].mean == (rules == "standard")


def test_an_untrained_run_in_a_folder_is_found_again(tmp_path):
    run = jaxformer.train(TASK, MODEL, FROZEN, steps=0, workdir=tmp_path / "null", **OPTIONS)
    again = jaxformer.open(tmp_path / "null")
    loss = run.result.metrics["loss"].mean
    assert again.result.metrics["loss"].mean == loss
    _, params, _ = jaxformer.load(tmp_path / "null")
    leaves = zip(jax.tree.leaves(params), jax.tree.leaves(run.params), strict=True)
    assert all((one == other).all() for one, other in leaves)
    resumed = jaxformer.train(TASK, MODEL, FROZEN, steps=0, workdir=tmp_path / "null", **OPTIONS)
    assert resumed.result.metrics["loss"].mean == loss


def test_nothing_can_be_unfrozen_in_a_run_without_steps():
    with pytest.raises(UserError, match="unfreeze steps must increase between 0 and steps = 0"):
        jaxformer.train(TASK, MODEL, FROZEN, steps=0, unfreeze=[(1, "standard")], **OPTIONS)


def test_a_negative_number_of_steps_is_refused():
    with pytest.raises(UserError, match=r"^steps must be at least 0, got -1"):
        jaxformer.train(TASK, MODEL, steps=-1, **OPTIONS)
