"""A run in a folder is reused only by code that does what it did when the run began."""

import json
from dataclasses import dataclass

import flax.linen as nn
import jax.numpy as jnp
import pytest

import jaxformer
from jaxformer.core.errors import UserError
from jaxformer.core.settings import DataSettings
from jaxformer.tasks.retrieval import Retrieval

SHIFT = 0  # a constant of the user's module
GAIN = 1.0


@dataclass(frozen=True)
class Shifted(Retrieval):
    def example(self, key, index):
        batch = super().example(key, index)
        targets = jnp.where(batch.weights > 0, (batch.targets + SHIFT) % 32, batch.targets)
        return batch._replace(targets=targets)


class Net(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(32, 8, name="embed")(tokens)
        return nn.Dense(32, name="unembed")(GAIN * nn.tanh(x))


TASK = Shifted(max_pairs=3, vocab=32)
MODEL = jaxformer.wrap(Net(), vocab_size=32, length=TASK.length)
DATA = DataSettings(test_size=100, validation_size=100)


def train(folder):
    return jaxformer.train(
        TASK, MODEL, steps=4, batch_size=8, data=DATA, workdir=folder, progress=False
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    train(folder)
    return folder


@pytest.mark.parametrize(
    "constant, value, reason",
    [("SHIFT", 1, "the first held-out examples are others"), ("GAIN", 2.0, "the model's logits")],
)
def test_an_edited_task_or_module_does_not_touch_the_run(
    folder, monkeypatch, constant, value, reason
):
    before = (folder / "result.json").read_bytes()
    monkeypatch.setitem(globals(), constant, value)
    with pytest.raises(UserError) as error:
        train(folder)
    assert reason in str(error.value) and "\n" not in str(error.value)
    assert (folder / "result.json").read_bytes() == before


def test_taking_the_edit_back_makes_the_run_valid_again(folder, monkeypatch):
    accuracy = json.loads((folder / "result.json").read_text())["metrics"]["accuracy"]
    with monkeypatch.context() as edit, pytest.raises(UserError):
        edit.setitem(globals(), "SHIFT", 1)
        train(folder)
    assert train(folder).result.as_json()["metrics"]["accuracy"].mean == accuracy["mean"]


def test_a_folder_of_an_older_version_is_reused_with_a_warning(folder, tmp_path, capsys):
    train(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["identity"], config["sha256"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    train(tmp_path)
    assert "does not say what its task did" in capsys.readouterr().err
    train(tmp_path)
    assert "does not say" not in capsys.readouterr().err
