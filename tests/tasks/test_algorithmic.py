"""Addition, k-hop and Dyck, compared with slow Python; baselines, compared with known scores."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.core.errors import UserError
from jaxformer.tasks.arithmetic import ANSWER, DecimalAddition, ModularAddition
from jaxformer.tasks.dyck import ASK, CLOSE, OPEN, Dyck
from jaxformer.tasks.hops import Hops
from jaxformer.tasks.source import Source
from jaxformer.tasks.task import Batch


def draw(task, n, seed=0):
    make = jax.jit(lambda key: jax.vmap(task.example)(jax.random.split(key, n), jnp.arange(n)))
    return jax.device_get(make(jax.random.key(seed)))


@pytest.mark.parametrize("format", ["authors", "paper"])
def test_decimal_sums_are_right(format):
    batch = draw(DecimalAddition(digits=4, format=format, scored="strict"), 200)
    carries = 0
    for inputs, targets, weights in zip(*batch, strict=True):
        sequence = [int(t) for t in (*inputs, targets[-1])]
        stop = sequence.index(30)
        text = "".join("0123456789+="[t] if t < 12 else str(t - ANSWER) for t in sequence[:stop])
        a, b, total = text.replace("=", "+").split("+")
        if format == "authors":
            a, b, total = a[::-1], b[::-1], total[::-1]
        assert len(a) == len(b) == 4 and a[0] != "0" and b[0] != "0" and total[0] != "0"
        assert int(a) + int(b) == int(total)
        assert set(sequence[stop + 1 :]) <= {12}
        assert weights.sum() == len(total) + 1  # every digit and the stop
        carries += len(total) == 5
    assert 80 < carries < 160


def test_the_authors_do_not_score_the_first_answer_digit():
    task = DecimalAddition()
    batch = draw(task, 4000)
    assert (batch.weights.sum(1) == 11).all() and task.n_scored == 11
    first = np.flatnonzero(batch.inputs[0] == 11)[0]
    assert (batch.weights[:, : first + 1] == 0).all()
    chance = task.baselines(batch)
    assert abs(chance["by_position"] - 0.1928) < 0.008
    assert abs(chance["by_position_and_token"] - 0.2462) < 0.008


def test_modular_addition_splits_its_pairs():
    task = ModularAddition(p=11)
    source = Source(task, jax.random.key(0), 30, 0, 20, 11)
    heldout = source.heldout()
    none = jnp.zeros(1, jnp.uint32)
    train = np.concatenate(
        [source.batch_at(jax.random.key(1), step, none).inputs for step in range(3)]
    )
    parts = [train, heldout.test.inputs, heldout.validation.inputs]
    pairs = [tuple(row) for part in parts for row in np.asarray(part)]
    assert len(pairs) == 121 == len(set(pairs))
    answers = np.asarray(heldout.test.targets)[:, 1]
    np.testing.assert_array_equal(np.asarray(heldout.test.inputs).sum(1) % 11, answers)


def slow_hops(k, s):
    answers = []
    for i in range(len(s)):
        j = i
        for _ in range(k):
            earlier = [x for x in range(j) if s[x] == s[j]] if j is not None else []
            j = max(earlier) + 1 if earlier else None
        answers.append("~" if j is None else s[j])
    return answers


def test_hops_follow_the_definition():
    task = Hops(max_hops=3, letters=3, tokens=16)
    batch = draw(task, 60)
    hops = set()
    for inputs, targets, _ in zip(*batch, strict=True):
        k, s = int(inputs[0]) - 3, [int(x) for x in inputs[1:]]
        assert all(x != y for x, y in pairwise(s)) and set(s) <= {0, 1, 2}
        expected = [task.missing if a == "~" else a for a in slow_hops(k, s)]
        assert list(targets) == [task.blank_token, *expected]
        hops.add(k)
    assert hops == {0, 1, 2, 3}


@pytest.mark.slow  # 3,000 examples of the largest size
def test_hops_chance_levels_of_the_papers_setting():
    task = Hops()
    chance = task.baselines(draw(task, 3000))
    assert task.vocab_size == 23
    assert abs(chance["by_hops_and_position"] - 0.422) < 0.01
    assert abs(chance["by_hops_position_and_letter"] - 0.493) < 0.012
    assert abs(chance["fraction_missing"] - 0.2521) < 0.005


def test_hops_metrics_split_by_hop_and_leave_out_missing_answers():
    task = Hops(max_hops=1, letters=3, tokens=8)
    batch = Batch(*map(jnp.asarray, draw(task, 30)))
    always_missing = jax.nn.one_hot(jnp.full((30, 8), task.missing), task.vocab_size)
    scores = task.metrics(always_missing, batch)
    assert scores["accuracy_existing"].value.sum() == 0 < scores["accuracy"].value.sum()
    of_zero = np.asarray(task.groups(batch)["hops=0"])
    assert (of_zero == (np.asarray(batch.inputs[:, 0]) == 3)).all() and 0 < of_zero.mean() < 1


def slowly_balanced(text):
    depth = 0
    for token in text:
        depth += 1 if token == OPEN else -1
        if depth < 0:
            return False
    return depth == 0


def test_dyck_labels_and_chance_levels():
    """P(balanced) = .530, counting scores .918, counting and ends .978 at K = 20."""
    task = Dyck(pairs=20)
    batch = draw(task, 2000)
    lengths = set()
    for inputs, targets, weights in zip(*batch, strict=True):
        n = int(np.flatnonzero(inputs == ASK)[0])
        assert set(inputs[:n]) <= {OPEN, CLOSE} and (inputs[n + 1 :] == 0).all()
        assert targets[n] == (CLOSE if slowly_balanced(inputs[:n]) else OPEN)
        assert np.flatnonzero(weights).tolist() == [n]
        lengths.add(n)
    assert lengths == set(range(1, 41))
    chance = task.baselines(batch)
    error = 4 * 0.5 / 2000**0.5
    assert abs(chance["majority"] - 0.52985) < error
    assert abs(chance["equal_counts"] - 0.91835) < 0.6 * error
    assert abs(chance["equal_counts_and_ends"] - 0.978) < 0.3 * error


def test_dyck_hard_strings_have_equal_counts_but_are_not_balanced():
    task = Dyck(pairs=3)
    batch = draw(task, 300)
    says_balanced = jax.nn.one_hot(jnp.full(batch.inputs.shape, CLOSE), 4)
    scores = task.metrics(says_balanced, Batch(*map(jnp.asarray, batch)))
    hard = np.asarray(scores["accuracy_hard"].weight) > 0
    assert 0 < hard.sum() < 150 and (np.asarray(scores["accuracy_hard"].value)[hard] == 0).all()
    for inputs in batch.inputs[hard]:
        text = inputs[: list(inputs).index(ASK)]
        assert (text == OPEN).sum() == (text == CLOSE).sum() and not slowly_balanced(text)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: DecimalAddition(digits=0), "digits of decimal addition must be at least 1"),
        (lambda: DecimalAddition(format="auhtors"), "Did you mean 'authors'"),
        (lambda: DecimalAddition(scored="all"), "authors, strict"),
        (lambda: ModularAddition(p=1), "2 <= p <= 40,000, got 1"),
        (lambda: Hops(letters=1), "letters of k-hop must be at least 2"),
        (lambda: Dyck(pairs=0), "pairs of dyck must be at least 1"),
    ],
)
def test_wrong_options_are_one_line_errors(make, message):
    with pytest.raises(UserError, match=message):
        make()
