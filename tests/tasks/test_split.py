"""Splits by hash: the sets are disjoint where possible, and have equal distributions."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi2_contingency

from jaxformer.core.errors import UserError
from jaxformer.core.settings import DataSettings
from jaxformer.tasks.arithmetic import ANSWER, DecimalAddition
from jaxformer.tasks.dyck import ASK, CLOSE, Dyck
from jaxformer.tasks.hops import Hops
from jaxformer.tasks.retrieval import Retrieval
from jaxformer.tasks.source import make_source

SIZES = dict(test_size=600, validation_size=600)
TASKS = {"dyck": Dyck(pairs=15), "retrieval": Retrieval(max_pairs=4, vocab=64)}
OTHERS = {"addition": DecimalAddition(digits=4), "hops": Hops(max_hops=2, letters=4, tokens=12)}
LENGTHS = {  # of the batch: what an example is counted by
    "dyck": lambda batch: np.asarray((batch.inputs == ASK).argmax(-1)),
    "retrieval": lambda batch: np.asarray(batch.weights.argmax(-1) // 2),
    "addition": lambda batch: np.asarray((batch.inputs >= ANSWER).sum(-1)),  # of the sum
    "hops": lambda batch: np.asarray(batch.inputs[:, 0]),
}


def sets(task, **settings):
    source = make_source(task, DataSettings(**SIZES, **settings), 1200)
    heldout = source.heldout()
    train = jax.jit(source.batch_at)(jax.random.key(5), jnp.int32(3), heldout.fingerprints)
    return source, {"train": train, "validation": heldout.validation, "test": heldout.test}


@pytest.fixture(scope="module", params=[pytest.param("dyck", marks=pytest.mark.slow), "retrieval"])
def by_hash(request):
    return request.param, *sets(TASKS[request.param], split="hash")


def same_law(counted) -> float:
    """Returns the p-value of equal distributions of length in all sets."""
    table = np.stack([np.bincount(x, minlength=max(map(max, counted)) + 1) for x in counted])
    return chi2_contingency(table[:, table.sum(0) > 0]).pvalue


def test_all_sets_have_one_distribution_of_lengths(by_hash):
    name, _, parts = by_hash
    assert same_law([LENGTHS[name](batch) for batch in parts.values()]) > 0.01


@pytest.mark.parametrize("name", [pytest.param("addition", marks=pytest.mark.slow), "hops"])
def test_sets_of_one_length_have_one_distribution_too(name):
    _, parts = sets(OTHERS[name], split="hash")
    assert same_law([LENGTHS[name](batch) for batch in parts.values()]) > 0.01
    answers = [np.asarray(batch.targets)[:, -3] for batch in parts.values()]
    assert same_law(answers) > 0.01
    rows = [{tuple(row) for row in np.asarray(batch.inputs)} for batch in parts.values()]
    assert all(not one & other for one, other in itertools.combinations(rows, 2))


def test_redrawing_changes_the_distribution():
    _, parts = sets(TASKS["dyck"])
    assert same_law([LENGTHS["dyck"](batch) for batch in parts.values()]) < 1e-9


def test_short_examples_have_one_distribution_of_answers(by_hash):
    name, _, parts = by_hash
    answers, short = [], {"dyck": 6, "retrieval": 1}[name]
    for batch in parts.values():
        target = np.asarray(batch.targets.max(-1))
        answers.append(
            target[LENGTHS[name](batch) <= short] >= {"dyck": CLOSE, "retrieval": 16}[name]
        )
    assert chi2_contingency([[a.sum(), (~a).sum()] for a in answers]).pvalue > 0.01


def test_no_example_is_in_two_sets_unless_there_are_too_few_of_its_kind(by_hash):
    name, source, parts = by_hash
    task, rows = TASKS[name], {}
    for part, batch in parts.items():
        common = np.asarray(jax.jit(jax.vmap(task.is_common))(batch))
        rows[part] = {tuple(row) for row in np.asarray(batch.inputs)[~common]}
        assert 0 < common.mean() < 0.5 and len(rows[part]) > 200
    assert not rows["train"] & rows["test"]
    assert not rows["train"] & rows["validation"] and not rows["test"] & rows["validation"]
    unseen = np.asarray(source.unseen(jax.random.key(5), parts["test"]))
    assert (unseen == ~np.asarray(jax.vmap(task.is_common)(parts["test"]))).all()


def test_a_finite_training_set_holds_no_held_out_example():
    source = make_source(
        TASKS["retrieval"], DataSettings(**SIZES, train_size=400, split="hash"), 400
    )
    batch_at, none = jax.jit(source.batch_at), jnp.zeros(1, jnp.uint32)
    train, again = (batch_at(jax.random.key(5), step, none) for step in (0, 1))
    rows, test = (
        {tuple(row) for row, kept in zip(np.asarray(b.inputs), source.unseen(None, b)) if kept}
        for b in (train, source.heldout().test)
    )
    assert rows and test and not rows & test
    assert {*map(tuple, np.asarray(again.inputs))} == {*map(tuple, np.asarray(train.inputs))}


@pytest.mark.parametrize(
    "settings, message",
    [
        (dict(split="hsah"), "unknown split 'hsah'. Did you mean 'hash'"),
        (dict(split="hash", test_share=0.0), "must be positive"),
        (dict(split="hash", test_share=0.9, validation_share=0.1), "a sum below 1"),
    ],
)
def test_a_split_that_leaves_a_set_empty_is_a_one_line_error(settings, message):
    with pytest.raises(UserError) as error:
        make_source(TASKS["dyck"], DataSettings(**settings), 8)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_task_too_small_for_its_split_is_a_one_line_error(monkeypatch):
    monkeypatch.setattr(Dyck, "is_common", lambda self, example: jnp.zeros((), bool))
    tiny = make_source(
        Dyck(pairs=1),
        DataSettings(test_size=4, validation_size=4, split="hash", test_share=0.01),
        8,
    )
    with pytest.raises(UserError, match="too few different examples"):
        tiny.heldout()
