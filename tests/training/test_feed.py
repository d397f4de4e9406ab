"""Batches of rows on disk do not depend on when they are read; each row is read once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.core.errors import UserError
from jaxformer.core.optim import AdamW, optimizer, schedule
from jaxformer.core.partition import Partition
from jaxformer.core.settings import DataSettings, DeviceSettings, TrainSettings
from jaxformer.models.decoder import decoder
from jaxformer.tasks.language import NextToken
from jaxformer.tasks.source import make_source
from jaxformer.training.cost import memory
from jaxformer.training.loop import fit
from jaxformer.training.population import population
from jaxformer.training.setup import make_setup
from tests.training.recorder import Recorder

NO_FINGERPRINTS = jnp.zeros(1, jnp.uint32)


def built(n_seeds=2, rates=(1e-2, 1e-3), train_size=0):
    task = NextToken(window=8)
    model = decoder(vocab_size=task.vocab_size, length=8, width=8, layers=1, heads=2, mlp_width=8)
    rules = Partition((".*", "train") for _ in range(1))
    data = make_source(task, DataSettings(train_size=train_size), 4)
    tx = optimizer(rules, {"train": AdamW()}, 1.0, schedule("constant", 100, 0))
    members = population(0, n_seeds, rates)
    return make_setup(task, model, rules, tx, data, members, TrainSettings(4), DeviceSettings())


SETUP = built()


def trained(state, feed, steps):
    recorder = Recorder()
    state = fit(state, SETUP.step(), feed, steps=steps, callbacks=[recorder])
    return state, [loss.tolist() for loss in recorder.metrics["loss"]]


def test_a_feed_gives_the_batches_of_the_steps(monkeypatch):
    monkeypatch.setattr("jaxformer.tasks.disk.MAX_READ_STEPS", 3)
    feed = SETUP.batch_at(NO_FINGERPRINTS)
    assert feed.steps_per_read == 3 and [feed.steps_left(step) for step in range(4)] == [3, 2, 1, 3]
    keys = SETUP.population.data_keys()
    for step in range(7):
        batch = feed.batch(feed.read(step), jnp.int32(step))
        for member, key in enumerate(keys):
            expected_batch = SETUP.data.batch_at(key, step, NO_FINGERPRINTS)
            for got, expected, again in zip(batch, expected_batch, feed(step), strict=True):
                np.testing.assert_array_equal(got[member], expected)
                np.testing.assert_array_equal(again[member], expected)
    first, second = (np.asarray(feed(step).inputs) for step in (0, 1))
    assert (first[0] == first[2]).all() and (first[0] != first[1]).any()  # seeds, not rates
    assert (first != second).any()


def test_shapes_of_a_batch_need_no_rows(monkeypatch):
    """A plan for an accelerator that is absent cannot put rows on its devices."""
    batch = jax.tree.map(lambda x: (x.shape, x.dtype), SETUP.batch_at(NO_FINGERPRINTS)(0))
    monkeypatch.setattr("jaxformer.tasks.disk.DiskFeed._load", lambda *_: pytest.fail("was read"))
    shapes = jax.tree.map(lambda x: (x.shape, x.dtype), memory.batch_shapes(SETUP))
    assert shapes == batch


def test_the_memory_of_heldout_rows_is_that_of_their_arrays():
    heldout = SETUP.data.heldout()
    arrays = jax.tree.leaves((heldout.test, heldout.validation))
    assert memory.heldout_bytes(SETUP.data) == sum(array.nbytes for array in arrays) > 0


def test_stopping_anywhere_changes_no_bit(monkeypatch):
    monkeypatch.setattr("jaxformer.tasks.disk.MAX_READ_STEPS", 5)
    whole, losses = trained(SETUP.create(), SETUP.batch_at(NO_FINGERPRINTS), 13)
    part, before = trained(SETUP.create(), SETUP.batch_at(NO_FINGERPRINTS), 7)
    again, after = trained(part, SETUP.batch_at(NO_FINGERPRINTS), 13)
    assert before + after == losses and len(losses) == 13
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(a, b)


def test_each_row_is_read_once_for_all_members_of_a_seed(monkeypatch):
    read, rows = [], NextToken.rows

    def counted(self, part, index, shift):
        read.append(len(index))
        return rows(self, part, index, shift)

    feed = SETUP.batch_at(NO_FINGERPRINTS)
    monkeypatch.setattr(NextToken, "rows", counted)
    monkeypatch.setattr(feed, "steps_per_read", 6)
    trained(SETUP.create(), feed, 12)
    feed.pending[2].result()  # what is read ahead of the end
    # 18 steps, two seeds, batches of four; rates share what is read.
    assert sum(read) == 18 * 2 * 4


def test_the_text_is_not_a_constant_of_the_program():
    feed = SETUP.batch_at(NO_FINGERPRINTS)
    program = jax.jit(feed.batch).lower(feed.read(0), jnp.int32(0)).as_text()
    assert len(program) < 100_000  # the chain has 160,000 tokens


def test_a_finite_set_is_a_part_of_the_rows():
    feed = built(1, (1e-3,), train_size=8).batch_at(NO_FINGERPRINTS)
    seen = [np.asarray(feed(step).inputs).reshape(4, 8) for step in range(4)]
    starts = {row.tobytes() for rows in seen[:2] for row in rows}
    assert len(starts) == 8  # an epoch of two steps sees each row once; the next one begins anew
    assert seen[0].tobytes() != seen[2].tobytes()


def test_a_step_inside_jit_is_refused():
    with pytest.raises(UserError, match="rows on disk cannot be read inside jit"):
        jax.jit(SETUP.batch_at(NO_FINGERPRINTS))(0)
    with pytest.raises(UserError, match="NextToken reads its examples from disk"):
        SETUP.task.example(jax.random.key(0), jnp.int32(0))
