"""A run in a folder is reused only by code that does what it did when the run began."""

import dataclasses
import json
import shutil
from dataclasses import dataclass

import flax.linen as nn
import jax.numpy as jnp
import pytest
from flax import nnx

import jaxformer
from jaxformer.core.errors import UserError
from jaxformer.core.settings import DataSettings
from jaxformer.tasks.retrieval import Retrieval
from jaxformer.tasks.source import make_source
from jaxformer.tasks.task import TRAIN
from tests.training import tiny

SHIFT = 0  # constants of the user's modules
SHOWN = 32  # training shows the tokens below it
GAIN = 1.0
SCALE = 1.0  # of the initial values of a small parameter
FLIP = 0
WIDTH = 4


@dataclass(frozen=True)
class Shifted(Retrieval):
    is_training: bool = False

    def part(self, stream):
        return dataclasses.replace(self, is_training=stream == TRAIN)

    def example(self, key, index):
        batch = super().example(key, index)
        targets = jnp.where(batch.weights > 0, (batch.targets + SHIFT) % 32, batch.targets)
        if self.is_training:
            targets = targets % SHOWN
        return batch._replace(targets=targets)


def bias_init(key, shape, dtype):
    return jnp.full(shape, 0.01 * SCALE, dtype)


class Net(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(32, 8, name="embed")(tokens)
        x = nn.Dense(2, name="small", bias_init=bias_init)(x)
        return nn.Dense(32, name="unembed")(GAIN * nn.tanh(x))


TASK = Shifted(max_pairs=3, vocab=32)
MODEL = jaxformer.wrap(Net(), vocab_size=32, length=TASK.length)
DATA = DataSettings(test_size=100, validation_size=100)
OPTIONS = dict(steps=4, batch_size=8, progress=False)


def train(folder):
    return jaxformer.train(TASK, MODEL, data=DATA, workdir=folder, **OPTIONS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    train(folder)
    return folder


@pytest.mark.parametrize(
    "constant, value, reason",
    [
        ("SHIFT", 1, "the first held-out examples are others"),
        ("SHOWN", 8, "the first training examples are others"),
        ("GAIN", 2.0, "the model's logits"),
        ("SCALE", 2.0, "initial small/bias: "),
    ],
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


def test_a_new_folder_is_used_without_a_warning(tmp_path, capsys):
    train(tmp_path)
    train(tmp_path)
    assert "warning" not in capsys.readouterr().err


def test_taking_the_edit_back_makes_the_run_valid_again(folder, monkeypatch):
    accuracy = json.loads((folder / "result.json").read_text())["metrics"]["accuracy"]
    with monkeypatch.context() as edit, pytest.raises(UserError):
        edit.setitem(globals(), "SHIFT", 1)
        train(folder)
    assert train(folder).result.as_json()["metrics"]["accuracy"].mean == accuracy["mean"]


def stored_identity(folder):
    return json.loads((folder / "config.json").read_text())["identity"]


def forget(folder, kinds):
    """Makes the identity of a folder what an older version wrote, without these kinds."""
    file = folder / "config.json"
    config = json.loads(file.read_text())
    del config["sha256"]
    if kinds is None:
        del config["identity"]
    else:
        known = config["identity"]
        known.pop("training")
        known["numbers"] = {k: v for k, v in known["numbers"].items() if k.split()[0] not in kinds}
    file.write_text(json.dumps(config))


@pytest.mark.parametrize(
    "kinds, warning",
    [
        (None, "does not say what its task did"),
        (("initial", "training"), "does not say what initial parameters and training examples"),
    ],
    ids=["no identity", "less identity"],
)
def test_a_folder_of_an_older_version_is_reused_with_one_warning(
    folder, tmp_path, capsys, monkeypatch, kinds, warning
):
    older = tmp_path / "older"
    shutil.copytree(folder, older)
    forget(older, kinds)
    train(older)
    assert warning in capsys.readouterr().err
    assert stored_identity(older) == stored_identity(folder)
    train(older)
    assert "does not say" not in capsys.readouterr().err
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    with pytest.raises(UserError, match="initial small/bias"):
        train(older)


def test_a_run_of_this_package_alone_notes_nothing_more(tmp_path):
    """Its spec and its task identify it, so nothing is drawn for its identity."""
    model = tiny.network()
    jaxformer.train(tiny.TASK, model, data=DATA, workdir=tmp_path, **OPTIONS)
    identity = stored_identity(tmp_path)
    assert identity.keys() == {"examples", "numbers"}
    assert all(name.startswith("baseline ") for name in identity["numbers"])


class Recorded:
    """Data of the user with a training stream of its own."""

    batch_size = 8

    def __init__(self):
        self.source = make_source(tiny.TASK, DATA, self.batch_size)
        self.key = self.source.key

    def heldout(self):
        return self.source.heldout()

    def batch_at(self, member_key, step, avoid):
        batch = self.source.batch_at(member_key, step, avoid)
        later = (step > 500) * FLIP  # what the user edits is read late in training only
        return batch._replace(targets=(batch.targets + later) % tiny.TASK.vocab_size)

    def unseen(self, member_key, batch):
        return None


def test_an_edited_batch_at_of_own_data_is_noticed(tmp_path, monkeypatch):
    def train():
        return jaxformer.train(
            tiny.TASK, tiny.network(), data=Recorded(), workdir=tmp_path, **OPTIONS
        )

    train()
    monkeypatch.setitem(globals(), "FLIP", 1)
    with pytest.raises(UserError, match="the first training examples are others"):
        train()


class Bag(nnx.Module):
    def __init__(self, rngs):
        self.embed = nnx.Embed(16, 8, rngs=rngs)
        self.unembed = nnx.Linear(8, 16, rngs=rngs)

    def __call__(self, tokens):
        return self.unembed(self.embed(tokens))


def test_two_modules_that_differ_in_their_seed_only_are_two_runs(tmp_path):
    def train(seed):
        model = jaxformer.wrap(Bag(nnx.Rngs(seed)), vocab_size=16, length=tiny.TASK.length)
        return jaxformer.train(tiny.TASK, model, data=DATA, workdir=tmp_path, **OPTIONS)

    train(0)
    train(0)
    with pytest.raises(UserError, match="initial embed/embedding"):
        train(1)


def test_a_checkpoint_of_another_task_with_the_same_shapes_is_not_resumed(folder, tmp_path, capsys):
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    long = dict(data=DATA, log_every=100, eval_every=0, steps=4, batch_size=8, progress=False)
    jaxformer.train(TASK, MODEL, workdir=ours, **long)
    other = Shifted(max_pairs=2, vocab=32)
    model = jaxformer.wrap(Net(), vocab_size=32, length=other.length)
    jaxformer.train(other, model, workdir=theirs, **long)
    shutil.rmtree(ours / "ckpt")
    shutil.copytree(theirs / "ckpt", ours / "ckpt")
    (ours / "metrics.jsonl").write_bytes((theirs / "metrics.jsonl").read_bytes())
    with pytest.raises(UserError, match="it is a checkpoint of another run"):
        jaxformer.train(TASK, MODEL, workdir=ours, **long)


class Wide(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        return nn.Dense(16, name="unembed")(nn.Embed(16, WIDTH, name="embed")(tokens))


class WideBag(nnx.Module):
    def __init__(self, rngs):
        self.factor = WIDTH
        self.embed = nnx.Embed(16, WIDTH, rngs=rngs)
        self.unembed = nnx.Linear(WIDTH, 16, rngs=rngs)

    def __call__(self, tokens):
        return self.factor * self.unembed(self.embed(tokens))


@pytest.mark.parametrize("module", [Wide(), WideBag], ids=["linen", "nnx"])
def test_a_module_that_reads_a_changed_global_is_called_anew_in_the_same_session(
    module, monkeypatch
):
    model = jaxformer.wrap(module, vocab_size=16, length=tiny.TASK.length)
    before = jaxformer.train(tiny.TASK, model, data=DATA, **OPTIONS)
    assert before.params["embed"]["embedding"].shape == (16, 4)
    monkeypatch.setitem(globals(), "WIDTH", 6)
    after = jaxformer.train(tiny.TASK, model, data=DATA, **OPTIONS)
    assert after.params["embed"]["embedding"].shape == (16, 6)
    again = jaxformer.wrap(module, vocab_size=16, length=tiny.TASK.length)
    tokens = jnp.arange(6)[None]
    ours, theirs = (net.apply({"params": after.params}, tokens) for net in (model, again))
    assert (ours == theirs).all()
