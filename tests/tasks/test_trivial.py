"""Trivial predictors learn from separate examples and are scored on the test set of the run."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.tasks import arithmetic, hops, trivial
from jaxformer.tasks.arithmetic import DecimalAddition, ModularAddition
from jaxformer.tasks.dyck import Dyck
from jaxformer.tasks.hops import Hops
from jaxformer.tasks.memorize import Memorize
from jaxformer.tasks.retrieval import Retrieval
from jaxformer.tasks.task import Batch, Task, by_range, ranges

FIT = Batch(np.array([[0, 1, 0]]), np.array([[5, 7, 5]]), np.array([[1.0, 1, 0]]))
TEST = Batch(np.array([[1, 0, 9]]), np.array([[7, 5, 5]]), np.array([[1.0, 1, 1]]))
TASKS = {
    "addition": DecimalAddition(digits=2),
    "dyck": Dyck(pairs=3),
    "hops": Hops(max_hops=2, letters=3, tokens=8),
    "memorization": Memorize(symbols=4),
    "modular_addition": ModularAddition(p=11),
    "retrieval": Retrieval(max_pairs=3, vocab=16),
}


@pytest.fixture(scope="module", params=TASKS)
def held(request):
    """Returns (task, some examples) of every task of the MixiT papers."""
    task = TASKS[request.param]
    return task, jax.tree.map(lambda x: x[:60], trivial.fitting_examples(task))


def test_a_predictor_answers_by_group_and_a_new_group_gets_the_commonest_answer():
    # The token 0 was met once where it counts, with the answer 5; 9 never, and 5 and 7 are tied.
    assert trivial.best_by(lambda b: (b.inputs,), FIT, TEST) == 1.0
    assert trivial.best_by(lambda b: (b.inputs,), FIT, TEST._replace(targets=1 + TEST.targets)) == 0
    assert trivial.best_constant(FIT, TEST) == pytest.approx(2 / 3)


def weighted_batch(seed, n):
    """Answers that follow the token where it counts 1, and are 0 where it counts .01."""
    rng = np.random.default_rng(seed)
    inputs = rng.integers(0, 10, (n, 4))
    is_hard = inputs >= 8
    targets = np.where(is_hard, (inputs + rng.integers(0, 2, inputs.shape)) % 10, 0)
    weights = np.where(is_hard, 1.0, np.where(inputs == 0, 0.0, 0.01)).astype(np.float32)
    return Batch(inputs, targets, weights)


def scored_triples(batch):
    """Yields (token, answer, weight) of each scored position."""
    for token, answer, weight in zip(*(x.ravel() for x in map(np.asarray, batch)), strict=True):
        if weight > 0:
            yield int(token), int(answer), float(weight)


def counts_by_hand(fit):
    """The weighted counts of answers and of (token, answer), for a mean weight of 1."""
    triples = [*scored_triples(fit)]
    mean = sum(weight for *_, weight in triples) / len(triples)
    answers, pairs = np.zeros(10), np.zeros((10, 10))
    for token, answer, weight in triples:
        answers[answer] += weight / mean
        pairs[token, answer] += weight / mean
    return answers, pairs


def weighted_mean_by_hand(value_of, test):
    triples = [*scored_triples(test)]
    total = sum(weight * value_of(token, answer) for token, answer, weight in triples)
    return total / sum(weight for *_, weight in triples)


def test_positions_count_by_their_weights_in_the_fit_and_in_the_score():
    fit, test = weighted_batch(0, 400), weighted_batch(1, 200)
    answers, pairs = counts_by_hand(fit)
    unigram_V = (answers + 0.5) / (answers + 0.5).sum()
    bigram_VxV = (pairs + unigram_V) / (pairs.sum(1, keepdims=True) + 1)
    best_V = pairs.argmax(1)
    expected = {
        "best_constant": weighted_mean_by_hand(lambda _, a: a == answers.argmax(), test),
        "best_after_token": weighted_mean_by_hand(lambda t, a: a == best_V[t], test),
        "unigram_loss": weighted_mean_by_hand(lambda _, a: -np.log(unigram_V[a]), test),
        "bigram_loss": weighted_mean_by_hand(lambda t, a: -np.log(bigram_VxV[t, a]), test),
    }
    bigram = trivial.Bigram(fit, 10)
    found = {
        "best_constant": trivial.best_constant(fit, test),
        "best_after_token": trivial.best_by(lambda b: (b.inputs,), fit, test),
        "unigram_loss": trivial.unigram_loss(fit, test),
        "bigram_loss": bigram.loss(test),
    }
    assert found == pytest.approx(expected)
    assert bigram.accuracy(test) == pytest.approx(expected["best_after_token"])
    # Without weights the answer 0 would be the best constant, with four positions in five.
    assert answers.argmax() == 9 and expected["best_constant"] < 0.6


def test_only_the_ratio_of_weights_matters():
    fit, test = weighted_batch(0, 400), weighted_batch(1, 200)
    small = fit._replace(weights=fit.weights / 8)
    assert trivial.unigram_loss(small, test) == trivial.unigram_loss(fit, test)
    assert trivial.Bigram(small, 10).loss(test) == trivial.Bigram(fit, 10).loss(test)


def test_weights_of_0_and_1_give_the_bits_of_plain_counts_and_means():
    """Records have such weights."""
    fit, test = (
        b._replace(weights=1.0 * (b.weights > 0)) for b in map(weighted_batch, (0, 1), (400, 200))
    )
    answers, scored = test.targets[test.weights > 0], fit.targets[fit.weights > 0]
    counts_V = 0.5 + np.bincount(scored, minlength=10)
    loss = 0 - np.log(counts_V[answers] / counts_V.sum()).mean()
    assert trivial.unigram_loss(fit, test) == loss
    assert trivial.best_constant(fit, test) == (answers == counts_V.argmax()).mean()


@dataclass(frozen=True)
class Toss(Task):
    """Whether two coins show the same side; heads fall three times in four."""

    vocab_size = 2
    length = 2
    n_scored = 1

    def example(self, key, index):
        coins = jax.random.bernoulli(key, 0.75, (2,)).astype(jnp.int32)
        return Batch(coins, (coins[0] == coins[1]) * jnp.array([0, 1]), jnp.array([0.0, 1.0]))


def test_a_task_without_baselines_is_compared_with_answer_frequencies():
    targets = np.array([[0, i < 5] for i in range(8)], int)
    scores = Toss().baselines(Batch(targets, targets, np.tile([0.0, 1.0], (8, 1))))
    assert scores["best_constant"] == 5 / 8
    expected = -(5 * np.log(5 / 8) + 3 * np.log(3 / 8)) / 8  # same sides: .75**2 + .25**2 = 5 / 8
    assert scores["unigram_loss"] == pytest.approx(expected, abs=1e-3)


def test_who_knows_the_frequencies_has_their_entropy():
    counts = np.array([1, 3])
    fit = Batch(np.zeros((1, 4)), np.repeat([0, 1], counts)[None], np.ones((1, 4)))
    many = jax.tree.map(lambda x: np.tile(x, (1000, 1)), fit)
    p = counts / 4
    assert trivial.unigram_loss(many, fit) == pytest.approx(-(p * np.log(p)).sum(), abs=1e-3)


@pytest.mark.parametrize(
    "task, name, by, elsewhere",
    [
        (Hops(1, 4, 40), "by_hops_position_and_letter", hops._hops_position_and_letter, 0.690),
        pytest.param(
            *(Hops(), "by_hops_position_and_letter", hops._hops_position_and_letter, 0.493),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            *(DecimalAddition(4), "by_position_and_token", arithmetic._position_and_token, 0.418),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_small_test_set_flatters_who_is_fitted_on_it(task, name, by, elsewhere):
    """`elsewhere` is the score on 100,000 sequences outside the fit."""
    fit = trivial.fitting_examples(task)
    test, other = (jax.tree.map(lambda x, s=s: x[s], fit) for s in (slice(500), slice(500, None)))
    assert task.baselines(test)[name] == pytest.approx(elsewhere, abs=0.02)
    assert trivial.best_by(by, other, test) == pytest.approx(elsewhere, abs=0.02)
    assert trivial.best_by(by, test, test) > trivial.best_by(by, other, test) + 0.015


HEADS = 0.75


class Biased(Toss):
    """A coin whose side the user's module chooses."""

    def example(self, key, index):
        side = jax.random.bernoulli(key, HEADS, (2,)).astype(jnp.int32)
        return Batch(side, side, jnp.array([0.0, 1.0]))


def test_a_task_of_the_user_that_reads_a_changed_global_is_drawn_anew(monkeypatch):
    heads = trivial.fitting_examples(Biased()).targets.mean()
    monkeypatch.setitem(globals(), "HEADS", 0.25)
    again = trivial.fitting_examples(Biased()).targets.mean()
    assert heads == pytest.approx(0.75, abs=0.01) and again == pytest.approx(0.25, abs=0.01)


def test_the_two_sets_of_a_run_share_the_fitting_examples(monkeypatch):
    task = Biased()
    with trivial.drawn_once():
        first = trivial.fitting_examples(task)
        assert trivial.fitting_examples(task) is first
    assert trivial.fitting_examples(task) is not first


def test_the_draws_are_the_same_in_every_run():
    task = Hops(max_hops=1, letters=2, tokens=4)
    again = trivial._drawn_examples(task)
    assert all((a == b).all() for a, b in zip(trivial.fitting_examples(task), again, strict=True))
    assert len(np.unique(again.inputs, axis=0)) == 2 * 2


def test_a_task_declares_what_it_reports(held):
    task, test = held
    logits = np.zeros((*np.shape(test.targets), task.vocab_size), np.float32)
    scores = task.metrics(jax.numpy.asarray(logits), jax.tree.map(jax.numpy.asarray, test))
    result = task.baselines(test)
    means = {"loss": 1.0, "accuracy": 0.5}
    assert set(task.declared.scores) == {*scores, *task.summary(means, 10)}
    assert set(task.declared.baselines) == {*result} and set(task.grouped) <= {*scores}
    assert all(0 <= v <= 1 for n, v in result.items() if not n.endswith("_loss"))
    assert 0 < result["unigram_loss"] < 1.2 * np.log(task.vocab_size)


def test_each_example_is_in_one_group(held):
    task, test = held
    groups = task.groups(test)
    if groups:
        assert (np.sum([np.asarray(of) for of in groups.values()], axis=0) == 1).all()
    else:
        assert task.size


def test_the_groups_are_what_they_say():
    def row(*tokens):
        return Batch(np.array([tokens]), None, None)

    def names(task, *tokens):
        return [name for name, of in task.groups(row(*tokens)).items() if of[0]]

    # 56 + 47 = 103 with two carries, 12 + 19 = 31 with one; least significant digit first.
    assert names(DecimalAddition(2), 6, 5, 10, 7, 4, 11, 23, 20, 21) == ["carries=2"]
    assert names(DecimalAddition(2, "paper"), 1, 2, 10, 1, 9, 11, 23, 21, 30) == ["carries=1"]
    assert names(Dyck(6), *[1] * 9, 3, 0, 0, 0) == ["length=9-12"]
    assert names(Dyck(6), 1, 3, *[0] * 11) == ["length=1-2"]
    assert names(Hops(2, 3, 8), 5, 0, 1, 2, 0, 1, 2, 0) == ["hops=2"]
    assert names(Retrieval(3, 16), 8, 1, 9, 2, 12, 0, 0) == ["pairs=2"]


def test_groups_stay_few():
    assert ranges(8) == [(i, i) for i in range(1, 9)]
    assert ranges(30) == [(i, i + 2) for i in range(1, 30, 3)]
    assert list(by_range("k", np.arange(3), ranges(24))) == [
        f"k={i}-{i + 1}" for i in range(1, 24, 2)
    ]
    assert ranges(16, 0)[-1] == (16, 16) and len(ranges(16, 0)) == 9
