"""A report belongs to what its task does and to how its run was trained."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import optax
import pytest

import jaxformer
from jaxformer.core import optim
from jaxformer.core.errors import UserError
from jaxformer.core.settings import DataSettings
from jaxformer.models.decoder import decoder
from jaxformer.studies.anatomy import retraining, sources, subject
from jaxformer.tasks.retrieval import Retrieval
from jaxformer.tasks.task import TRAIN

SIZES = dict(width=8, layers=1, heads=2, mlp_width=8)
SHIFT = 0  # constants of the user's module
SHOWN = 32  # training shows the tokens below it
SCALE = 1.0  # of the initial values of a small parameter


@dataclasses.dataclass(frozen=True)
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


class Net(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(32, 8, name="embed")(tokens)
        return nn.Dense(32, name="unembed", bias_init=bias_init)(x)


def bias_init(key, shape, dtype):
    return jnp.full(shape, 0.01 * SCALE, dtype)


def of_own_code(**settings):
    task = Shifted(max_pairs=3, vocab=32)
    model = jaxformer.wrap(Net(), vocab_size=32, length=task.length)
    return subject.of_task(task, model, steps=4, **settings)


@pytest.mark.parametrize("constant, value", [("SHOWN", 8), ("SCALE", 2.0)])
def test_members_of_other_training_data_or_initial_values_are_not_reused(
    monkeypatch, tmp_path, constant, value
):
    before = of_own_code()
    folder = retraining.members_folder(tmp_path, before)
    folder.mkdir()
    monkeypatch.setitem(globals(), constant, value)
    edited = of_own_code()
    assert edited.hash != before.hash and edited.older_hash == before.older_hash
    assert retraining.members_folder(tmp_path, edited) != folder and folder.is_dir()


def test_the_members_of_an_older_version_are_found_and_said_to_be_unproven_once(tmp_path, capsys):
    what = of_own_code()
    older = tmp_path / f"members-{what.older_hash[:12]}"
    older.mkdir()
    (older / "member.json").write_text("{}")
    folder = retraining.members_folder(tmp_path, what)
    assert "an older version wrote it" in capsys.readouterr().err
    assert (folder / "member.json").exists() and not older.exists()
    assert retraining.members_folder(tmp_path, what) == folder
    assert not capsys.readouterr().err


def test_the_members_of_our_networks_on_our_tasks_keep_their_folder():
    what = subject.of_task(Retrieval(max_pairs=3, vocab=32), steps=4, **SIZES)
    assert what.hash == what.older_hash


def test_members_of_an_edited_task_are_not_reused(monkeypatch):
    def of_task():
        return subject.of_task(Shifted(max_pairs=3, vocab=32), steps=4, **SIZES)

    before = of_task().hash
    monkeypatch.setitem(globals(), "SHIFT", 1)
    assert of_task().hash != before
    monkeypatch.setitem(globals(), "SHIFT", 0)
    assert of_task().hash == before


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run with settings that differ from the defaults of `jaxformer.train`."""
    folder, task = tmp_path_factory.mktemp("run") / "one", Retrieval(max_pairs=3, vocab=32)
    return jaxformer.train(
        task,
        decoder(**task.sizes, **SIZES),
        steps=4,
        batch_size=8,
        optimizer=optim.SGD(momentum=0.5),
        schedule="linear",
        warmup=1,
        data=DataSettings(split="hash", seed=77, test_size=90, validation_size=60),
        workdir=folder,
        progress=False,
    )


def test_the_report_of_a_library_run_repeats_its_split_and_its_optimizer(run):
    what = sources.of_run(run.folder)
    session = run.trained.session
    ours, theirs = what.drawn.sets, session.heldout
    jax.tree.map(np.testing.assert_array_equal, ours._asdict(), theirs._asdict())
    assert what.network.data.shares == (0.0625, 0.125)
    # Three steps from equal parameters: the same optimizer, schedule and clipping.
    params = what.network.init(jax.random.key(0))
    gradient = jax.tree.map(jnp.ones_like, params)
    both = []
    for tx in (what.network.optimizer, session.setup.tx):
        state, updates = tx.init(params), gradient
        for _ in range(3):
            updates, state = tx.update(gradient, state, params)
        both.append(updates)
    jax.tree.map(np.testing.assert_array_equal, *both)


def test_an_optimizer_of_optax_cannot_be_repeated_and_says_so(run, tmp_path):
    task = Retrieval(max_pairs=3, vocab=32)
    jaxformer.train(
        task,
        decoder(**task.sizes, **SIZES),
        steps=4,
        batch_size=8,
        optimizer=optax.sgd(0.1),
        data=DataSettings(split="hash", seed=77, test_size=90, validation_size=60),
        workdir=tmp_path / "two",
        progress=False,
    )
    with pytest.raises(UserError, match="the optimizer of the label 'train' is yours"):
        sources.of_run(tmp_path / "two")


def test_data_of_the_user_cannot_be_repeated_and_says_so():
    stored = {"task": {"name": "retrieval"}, "data": {"name": "Recorded"}}
    with pytest.raises(UserError, match="the data of one are a Recorded of yours; in Python"):
        subject.check_task_and_data(ml_collections.ConfigDict(stored), None, "one")
    stored["data"] = {"name": "Source"}
    with pytest.raises(UserError, match="or an older version wrote the run"):
        subject.check_task_and_data(ml_collections.ConfigDict(stored), None, "one")


def test_the_network_of_a_run_is_not_explained_on_an_edited_task(monkeypatch, tmp_path):
    task = Shifted(max_pairs=3, vocab=32)
    jaxformer.train(
        task,
        decoder(**task.sizes, **SIZES),
        steps=4,
        batch_size=8,
        workdir=tmp_path / "own",
        progress=False,
    )
    assert sources.of_run(tmp_path / "own", task).task == task
    monkeypatch.setitem(globals(), "SHIFT", 1)
    with pytest.raises(UserError, match="does something else today"):
        sources.of_run(tmp_path / "own", task)
