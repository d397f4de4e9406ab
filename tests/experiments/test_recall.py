"""The recall recipe: probes, truncations and the two fits of fine-tuning."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import recall_probes
from experiments.run import main
from jaxformer import surgery
from jaxformer.errors import UserError
from jaxformer.records import Workdir

FINETUNE = "--config=configs/associations/finetune.py:scale=tiny"


def test_every_fraction_is_laser_in_one_program():
    key = jax.random.key(0)
    params = {"a": {"kernel": jax.random.normal(key, (6, 4))}, "b": {"kernel": jnp.ones((3, 3))}}
    fractions = (0.0, 0.3, 0.5, 1.0)
    traced = []

    def measure(cut):
        traced.append(1)
        return cut["a"]["kernel"]

    found = recall_probes.truncations(params, "a", fractions, measure)
    assert len(traced) == 1
    for cut, fraction in zip(found, fractions, strict=True):
        expected = surgery.laser(params, "a", fraction)["a"]["kernel"]
        np.testing.assert_allclose(cut, expected, atol=1e-5)
    with pytest.raises(UserError, match=r"in \[0, 1\], got 1.5"):
        recall_probes.truncations(params, "a", (1.5,), measure)


def test_finetuning_is_two_fits_with_probes(tmp_path):
    sizes = ("--config.model.width=8", "--config.data.test_size=16", "--config.train.batch_size=8")
    assert main([FINETUNE, *sizes, f"--workdir={tmp_path / 'run'}"]) == 0
    result = json.loads((tmp_path / "run/result.json").read_text())
    expected = {"p_correct", "p_noise_drop_without_f2", "attention_difference_clean"}
    assert expected <= set(result["metrics"])
    steps = [row["step"] for row in Workdir(tmp_path / "run").rows() if "probes" in row]
    # Every second of the first steps on either kind of data, here all.
    assert steps == [*range(0, 21, 2)]
    with np.load(tmp_path / "run/arrays.npz") as arrays:
        full = arrays["probes/p_correct"][-1]
        cut = arrays["truncated/block_1/mlp/in/p_correct"]
        np.testing.assert_allclose(cut[:, -1], full, rtol=1e-4)
        dropped = arrays["probes/p_correct_without_f2"][-1]
        np.testing.assert_allclose(cut[:, 0], dropped, rtol=1e-4)
    assert (tmp_path / "run/memories.png").exists()


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("--config.recall.truncate=('block_1/mpl/in',)", "matches no path"),
        ("--config.recall.fractions=(2.0,)", "LASER fraction must be in"),
        ("--config.recall.pretrain_steps=20", "must be 0 to train.steps - 1 = 19"),
        ("--config.task.alpha=1.5", "alpha must be in"),
        ("--config.task.triggers=#", "not among the 32 symbols"),
    ],
)
def test_mistakes(word, message, tmp_path, capsys):
    assert main([FINETUNE, word, f"--workdir={tmp_path / 'w'}"]) == 2
    assert message in capsys.readouterr().err
