"""Each task compared with slow Python, and its baselines with the papers' formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.core.errors import UserError
from jaxformer.data.images import glyphs
from jaxformer.tasks.memorize import Memorize
from jaxformer.tasks.oneshot import OneShot
from jaxformer.tasks.retrieval import Retrieval
from jaxformer.tasks.source import Source
from jaxformer.tasks.task import Batch, scored_positions, token_metrics


def draw(task, n=400):
    keys = jax.random.split(jax.random.key(0), n)
    return jax.device_get(jax.jit(jax.vmap(task.example))(keys, jnp.arange(n)))


@pytest.mark.parametrize("format", ["authors", "paper"])
def test_retrieval_answers_are_the_values_of_the_keys(format):
    task = Retrieval(max_pairs=4, vocab=24, format=format)
    batch, half = draw(task), 12
    lengths = set()
    for inputs, targets, weights in zip(*batch, strict=True):
        (at,) = np.flatnonzero(weights)
        m = at // 2
        keys, values, query = inputs[0:at:2], inputs[1:at:2], inputs[at]
        assert len(set(keys)) == m and (keys >= half).all()
        assert ((values >= 1) & (values < half)).all()
        key = query - (task.max_pairs if format == "authors" else 0)
        assert targets[at] == values[list(keys).index(key)]
        assert (inputs[at + 1 :] == 0).all()
        if format == "authors":
            assert (keys < half + 4).all() and half + 4 <= query < half + 8
        lengths.add(m)
    assert lengths == {1, 2, 3, 4}
    assert inputs.shape == (9,) and task.length == 11


def test_retrieval_baseline_is_harmonic():
    """E[1/m] = H_M / M, plus chance hits among the other values."""
    M, values = 6, 127
    task = Retrieval(max_pairs=M, vocab=256)
    batch = draw(task, 4000)
    harmonic = sum(1 / m for m in range(1, M + 1)) / M
    expected = harmonic + (1 - harmonic) / values
    guess = task.baselines(batch)["in_context_guess"]
    assert abs(guess - expected) < 4 * 0.31 / 4000**0.5
    assert task.baselines(batch)["uniform_value"] == 1 / 127


def test_retrieval_reports_copying():
    task = Retrieval(max_pairs=3, vocab=16)
    batch = draw(task, 50)
    first_value = np.eye(16)[batch.inputs[:, 1]][:, None] * np.ones((1, 7, 1))
    scores = task.metrics(jnp.asarray(first_value), Batch(*map(jnp.asarray, batch)))
    assert (scores["in_context"].value == 1).all()
    assert 0.3 < scores["accuracy"].value.mean() < 0.95


def test_memorize_is_one_table():
    task = Memorize(symbols=8)
    batch = draw(task, 64)
    pairs = {tuple(x) for x in batch.inputs}
    assert pairs == {(a, b + 8) for a in range(8) for b in range(8)}
    again = draw(task, 64)
    np.testing.assert_array_equal(batch.targets, again.targets)
    other = draw(Memorize(symbols=8, table_seed=1), 64)
    assert (batch.targets != other.targets).any()
    assert len(np.unique(batch.targets[:, 1])) > 6
    assert (batch.weights == [0, 1]).all()


def test_memorize_bits_per_parameter_of_table_4():
    task = Memorize(symbols=512)
    means = {"accuracy": 1.0, "loss": 0.0}
    for trainable, bits in [(790400, 2.98494), (724352, 3.25711), (394880, 5.97471)]:
        summary = task.summary(means, trainable)
        np.testing.assert_allclose(summary["bits_per_parameter"], bits, rtol=1e-5)
        np.testing.assert_allclose(summary["bits_per_parameter_by_loss"], bits, rtol=1e-5)
    chance = task.summary({"accuracy": 1 / 512, "loss": np.log(512)}, 790400)
    assert chance["bits_per_parameter_by_loss"] < 1e-9 < chance["bits_per_parameter"]


def test_token_metrics_weigh_tokens_and_sequences():
    logits = jnp.array([[[0.0, 2.0], [0.0, 2.0]], [[2.0, 0.0], [0.0, 2.0]]])
    batch = Batch(jnp.zeros((2, 2), int), jnp.ones((2, 2), int), jnp.array([[1.0, 1], [1, 0]]))
    scores = token_metrics(logits, batch)
    np.testing.assert_allclose(scores["accuracy"].value, [1, 0])
    np.testing.assert_allclose(scores["accuracy"].weight, [2, 1])
    np.testing.assert_allclose(scores["exact_match"].value, [1, 0])
    np.testing.assert_allclose(scores["loss"].value, np.log1p(np.exp([-2.0, 2.0])), rtol=1e-6)


def test_scored_positions_gathers_what_counts():
    weights = jnp.array([[0.0, 1, 0, 1], [0, 0, 0, 1]])
    batch = Batch(jnp.arange(8).reshape(2, 4), jnp.arange(8).reshape(2, 4), weights)
    positions, gathered = scored_positions(batch, 2)
    assert {*np.asarray(positions[0])} == {1, 3}
    np.testing.assert_array_equal((gathered.targets * gathered.weights).sum(1), [4, 7])
    assert scored_positions(batch, 4)[0] is None


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Retrieval(max_pairs=9, vocab=32), "1 <= max_pairs <= vocab / 4"),
        (lambda: Retrieval(format="papr"), "Did you mean 'paper'"),
        (lambda: Memorize(symbols=1), "symbols of memorize must be at least 2"),
        (lambda: Retrieval(max_pairs="a"), "Retrieval.max_pairs must be a whole number, got 'a'"),
        (lambda: Retrieval(max_pairs=3.5), "Retrieval.max_pairs must be a whole number, got 3.5"),
    ],
)
def test_wrong_options_are_one_line_errors(make, message):
    with pytest.raises(UserError, match=message):
        make()


@pytest.mark.parametrize("task", [Retrieval(max_pairs=2, vocab=8), OneShot(glyphs(0, 3, 2, 16))])
def test_a_blank_input_is_like_a_batch(task):
    """A model initialised with it can be applied to batches."""
    drawn = jax.eval_shape(lambda: task.example(jax.random.key(0), 0)).inputs
    assert task.blank().shape[2:] == drawn.shape[1:] and task.blank().dtype == drawn.dtype
    assert len(task.blank()) == 1


@pytest.mark.parametrize("x64", [False, True])
def test_draws_do_not_depend_on_x64(x64):
    with jax.enable_x64(x64):
        source = Source(Retrieval(max_pairs=3, vocab=16), jax.random.key(3), 4, 0, 5, 5)
        test = jax.device_get(source.heldout().test)
    assert test.inputs.dtype == np.int32 and test.targets.dtype == np.int32
    assert test.inputs.sum() == 205  # the same numbers in both
