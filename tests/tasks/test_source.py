"""Data as a function of key and index: disjoint held-out sets, whole epochs, resuming."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jaxformer.core.errors import UserError
from jaxformer.core.settings import DataSettings
from jaxformer.tasks import trivial
from jaxformer.tasks.arithmetic import ModularAddition
from jaxformer.tasks.hashes import fingerprints, shuffled, unit
from jaxformer.tasks.memorize import Memorize
from jaxformer.tasks.retrieval import Retrieval
from jaxformer.tasks.source import Source, make_source
from jaxformer.tasks.task import TEST, TRAIN, VALIDATION, Batch, OneAnswer

TOPS = {TRAIN: 3, VALIDATION: 7, TEST: 11}  # the largest number that each part shows


@dataclasses.dataclass(frozen=True)
class Largest(OneAnswer):
    """The largest of four numbers, which are smaller in training than in the held-out sets."""

    top: int = 9
    vocab_size = 12
    length = 5

    def part(self, stream):
        return dataclasses.replace(self, top=TOPS[stream])

    def example(self, key, index):
        numbers = jax.random.randint(key, (4,), 1, self.top + 1, jnp.int32)
        answer = jnp.full(5, numbers.max())
        return Batch(jnp.append(numbers, 0), answer, (jnp.arange(5) == 4) * 1.0)


# So few different sequences that collisions with the held-out sets are common.
CROWDED = Retrieval(max_pairs=2, vocab=8)


def rows(inputs):
    return {tuple(row) for row in np.asarray(inputs).reshape(-1, inputs.shape[-1])}


def test_a_stream_and_the_validation_set_avoid_the_test_set():
    source = Source(CROWDED, jax.random.key(0), 64, 0, 12, 12)
    heldout = source.heldout()
    test, validation = rows(heldout.test.inputs), rows(heldout.validation.inputs)
    assert not test & validation
    batch_at = jax.jit(lambda step: source.batch_at(jax.random.key(1), step, heldout.fingerprints))
    stream = rows(np.concatenate([batch_at(step).inputs for step in range(8)]))
    assert not stream & (test | validation)
    # The tripwire is real: without avoiding, the same stream does meet them.
    free = jax.jit(lambda s: source.batch_at(jax.random.key(1), s, jnp.zeros(1, jnp.uint32)))
    assert rows(np.concatenate([free(s).inputs for s in range(8)])) & test


@settings(derandomize=True, max_examples=4, deadline=None)  # each size is a program of its own
@given(st.integers(5, 300), st.integers(0, 2**31))
@example(1, 0)
@example(64, 0)
def test_shuffled_visits_every_index_once_an_epoch(size, seed):
    places, key = jnp.arange(3 * size, dtype=jnp.uint32), jax.random.key(seed)
    order = jax.jit(jax.vmap(lambda place: shuffled(key, place, size)))(places)
    epochs = np.asarray(order).reshape(3, size)
    assert (np.sort(epochs, axis=1) == np.arange(size)).all()
    if size > 1:
        assert (epochs[0] != epochs[1]).any() and (epochs[0] != np.arange(size)).any()


@settings(derandomize=True, max_examples=2, deadline=None)
@given(st.integers(3, 6), st.integers(1, 4), st.integers(1, 4), st.integers(0, 9))
def test_a_table_is_split_into_three_without_remainder(p, test_size, validation_size, seed):
    rest = p**2 - test_size - validation_size
    source = Source(ModularAddition(p), jax.random.key(seed), rest, 0, test_size, validation_size)
    heldout = source.heldout()
    train = jax.jit(lambda step: source.batch_at(jax.random.key(1), step, heldout.fingerprints))(0)
    parts = [rows(part.inputs) for part in (train, heldout.test, heldout.validation)]
    assert [len(part) for part in parts] == [rest, test_size, validation_size]
    assert set.union(*parts) == {(a, b) for a in range(p) for b in range(p)}


def test_a_finite_set_repeats_and_holds_no_held_out_example():
    source = Source(Retrieval(max_pairs=4, vocab=32), jax.random.key(0), 10, 30, 200, 100)
    key, heldout = jax.random.key(1), source.heldout()
    draw = jax.jit(lambda step: source.batch_at(key, step, heldout.fingerprints).inputs)
    epoch = [rows(draw(step)) for step in range(6)]
    first, second = set.union(*epoch[:3]), set.union(*epoch[3:])
    assert first == second and epoch[0] != epoch[3]
    assert not first & (rows(heldout.test.inputs) | rows(heldout.validation.inputs))
    assert np.asarray(source.unseen(key, heldout.test)).all()
    # The tripwire is real: without avoiding, the same set does meet them.
    free = jax.jit(lambda step: source.batch_at(key, step, jnp.zeros(1, jnp.uint32)).inputs)
    assert set.union(*[rows(free(step)) for step in range(3)]) & rows(heldout.test.inputs)


def test_a_finite_set_knows_what_it_contains():
    """Sequences of one pair are so few that training must contain some of the test set."""
    source = Source(Retrieval(max_pairs=1, vocab=4), jax.random.key(0), 30, 30, 40, 5)
    key, heldout = jax.random.key(1), source.heldout()
    train = rows(jax.jit(source.batch_at)(key, 0, heldout.fingerprints).inputs)
    unseen = np.asarray(source.unseen(key, heldout.test))
    assert not unseen.all()
    for row, new in zip(np.asarray(heldout.test.inputs), unseen, strict=True):
        assert new == (tuple(row) not in train)
    assert dataclasses.replace(source, train_size=0).unseen(key, heldout.test) is None


def test_an_enumerated_task_trains_on_its_whole_table():
    source = Source(Memorize(symbols=4), jax.random.key(0), 8, 0, 1, 1)
    none = jnp.zeros(1, jnp.uint32)
    batch_at = jax.jit(source.batch_at)
    seen = [rows(batch_at(jax.random.key(1), step, none).inputs) for step in (0, 1)]
    assert len(seen[0] | seen[1]) == 16
    assert rows(source.heldout().test.inputs) == seen[0] | seen[1]


def test_a_batch_is_a_function_of_its_step():
    source = Source(CROWDED, jax.random.key(0), 8, 0, 4, 4)
    avoid = source.heldout().fingerprints
    batch_at = jax.jit(source.batch_at)
    one, two = (batch_at(jax.random.key(1), 5, avoid).inputs for _ in range(2))
    np.testing.assert_array_equal(one, two)
    assert (np.asarray(batch_at(jax.random.key(1), 6, avoid).inputs) != one).any()
    assert (np.asarray(batch_at(jax.random.key(2), 5, avoid).inputs) != one).any()


def test_fingerprints_tell_order_and_place_apart():
    x = jnp.array([[1, 2, 0], [2, 1, 0], [0, 1, 2], [1, 2, 0]])
    a, b, c, d = np.asarray(fingerprints(x))
    assert a == d and len({a, b, c}) == 3


def test_fingerprints_tell_vectors_apart():
    vectors = jax.random.normal(jax.random.key(0), (64, 3, 4))
    changed = vectors.at[0, 2, 3].add(1e-6)
    prints, others = fingerprints(vectors), fingerprints(changed)
    assert len({*prints.tolist()}) == 64
    np.testing.assert_array_equal(prints != others, [True] + 63 * [False])


def test_a_part_of_a_table_is_known_to_be_seen_and_no_test_entry_of_a_split_table_is():
    key = jax.random.key(3)
    table = Source(Memorize(symbols=4), jax.random.key(0), 5, 5, 1, 1)
    none = jnp.zeros(1, jnp.uint32)
    train = rows(jax.jit(table.batch_at)(key, 0, none).inputs)
    whole = table.heldout().test
    unseen = np.asarray(table.unseen(key, whole))
    assert [tuple(row) not in train for row in np.asarray(whole.inputs)] == unseen.tolist()
    assert unseen.sum() == 11
    pairs = Source(ModularAddition(5), jax.random.key(0), 4, 4, 6, 3)
    assert np.asarray(pairs.unseen(key, pairs.heldout().test)).all()


def test_the_number_of_a_fingerprint_is_below_one():
    """The largest 32-bit words round up to 2^32 in float32, and this fingerprint has one."""
    numbers = np.asarray(unit(jnp.array([2498111178, 0, 1], jnp.uint32)))
    assert 0.9999999 < numbers[0] < 1


@pytest.mark.parametrize(
    "settings", [dict(), dict(train_size=40), dict(split="hash")], ids=["stream", "finite", "hash"]
)
def test_training_draws_from_the_training_part_only(settings):
    sizes = DataSettings(test_size=40, validation_size=40, **settings)
    source = make_source(Largest(), sizes, 200)
    heldout = source.heldout()
    assert heldout.test.inputs.max() == 11 and heldout.validation.inputs.max() == 7
    train = jax.jit(source.batch_at)(jax.random.key(1), 5, heldout.fingerprints)
    assert train.inputs.max() == 3


def test_trivial_predictors_learn_from_the_training_part_only():
    assert trivial.fitting_examples(Largest()).inputs.max() == 3


class AnyLarge(Largest):
    """A task whose parts are tasks of another class."""

    def part(self, stream):
        return Largest(TOPS[stream])


def test_a_part_may_be_a_task_of_another_class():
    source = make_source(AnyLarge(), DataSettings(test_size=40, validation_size=40), 200)
    train = jax.jit(source.batch_at)(jax.random.key(1), 5, source.heldout().fingerprints)
    assert train.inputs.max() == 3


class NoPart(Largest):
    def part(self, stream):
        return None


class DividedTable(ModularAddition):
    """A table with parts of its own, which its source would not use."""

    def part(self, stream):
        return DividedTable(p=3 + stream)


@pytest.mark.parametrize(
    "task, message",
    [
        (NoPart(), "NoPart.part(TRAIN) must return a Task"),
        (DividedTable(p=5), "test_size and validation_size divide the table"),
    ],
)
def test_a_part_that_cannot_be_used_is_a_one_line_error(task, message):
    with pytest.raises(UserError) as error:
        make_source(task, DataSettings(test_size=4, validation_size=4), 4)
    assert message in str(error.value) and "\n" not in str(error.value)
