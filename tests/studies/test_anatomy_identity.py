"""A report belongs to what its task does and to how its run was trained."""

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
from jaxformer.studies.anatomy import sources, subject
from jaxformer.tasks.retrieval import Retrieval

SIZES = dict(width=8, layers=1, heads=2, mlp_width=8)
SHIFT = 0  # a constant of the user's module


class Shifted(Retrieval):
    def example(self, key, index):
        batch = super().example(key, index)
        targets = jnp.where(batch.weights > 0, (batch.targets + SHIFT) % 32, batch.targets)
        return batch._replace(targets=targets)


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
