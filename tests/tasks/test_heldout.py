"""Held-out sets are looked at before training: wrong examples, leaks, and edited tasks."""

import itertools
from contextlib import nullcontext
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxformer
from jaxformer.core.errors import UserError
from jaxformer.core.identity import difference
from jaxformer.core.settings import DataSettings
from jaxformer.models.decoder import decoder
from jaxformer.tasks import Arrays, heldout
from jaxformer.tasks.example_checks import check_answers_are_hidden
from jaxformer.tasks.language import MaskedTokens, NextToken
from jaxformer.tasks.retrieval import Retrieval
from jaxformer.tasks.source import make_source
from jaxformer.tasks.task import Batch, OneAnswer, Scores, most_frequent, token_metrics

N = 3
CALLS = itertools.count()  # never the same twice, as a clock
LARGEST = True  # read by `answer`, as a constant of a user's module would be


def answer(x):
    return x.max() if LARGEST else x.min()


@dataclass(frozen=True)
class Extreme(OneAnswer):
    """The largest of n digits from 1 to 11."""

    n: int = N
    fault: str = ""

    @property
    def vocab_size(self):
        return 12

    @property
    def length(self):
        return self.n + 1

    def example(self, key, index):
        x = jax.random.randint(key, (self.n,), 1, 12, jnp.int32)
        at = jnp.arange(self.n + 1)
        tokens, target, weights = jnp.append(x, 0), answer(x), (at == self.n) * 1.0
        if self.fault == "token":
            tokens = jnp.where(tokens == 11, 12, tokens)
        if self.fault == "negative token":
            tokens = jnp.where(tokens == 11, -5, tokens)
        if self.fault == "target":
            target = jnp.where(target == 11, 12, target)
        if self.fault == "ignored target":
            target = jnp.where(target == 11, -1, target)
        if self.fault == "two scored":
            weights = (at >= self.n - 1) * 1.0
        if self.fault == "none scored":
            weights = weights * 0
        if self.fault == "negative weight":
            weights = -weights
        if self.fault == "nan":
            weights = jnp.where(x[0] == 3, jnp.nan, weights)
        if self.fault == "float target":
            target = target + 0.5
        if self.fault == "long":
            tokens = jnp.append(tokens, x)
        if self.fault == "lengths":
            weights = jnp.append(weights, 0.0)
        if self.fault == "raises":
            raise KeyError("no column 'answer'")
        if self.fault == "clock":
            tokens = (tokens + next(CALLS)) % 12
        if self.fault == "no key":
            tokens = jnp.zeros_like(tokens)
        return Batch(tokens, jnp.full(self.n + 1, target), weights)

    def baselines(self, batch):
        if self.fault == "baseline raises":
            raise RuntimeError("nothing to count")
        if self.fault == "baseline":
            return {"unigram": float("nan")}
        at_end = np.asarray(batch.targets)[:, -1], np.asarray(batch.weights)[:, -1]
        return {"unigram": most_frequent(*at_end)}


def drawn(task, **settings):
    sizes = dict(test_size=200, validation_size=100) | settings
    return heldout.draw(task, make_source(task, DataSettings(**sizes), 8))


@pytest.mark.parametrize(
    "fault, message",
    {
        "token": "tokens must be from 0 to vocab_size - 1 = 11, got 12",
        "negative token": "tokens must be from 0 to vocab_size - 1 = 11, got -5",
        "target": "targets of scored positions must be from 0 to 11, got 12",
        "ignored target": "got -1. To leave a position out, give it the weight 0",
        "two scored": "2 scored positions (weights above 0), and n_scored is 1",
        "none scored": "nothing is scored",
        "negative weight": "weights must be finite and at least 0, got -1",
        "nan": "weights must be finite and at least 0, got nan",
        "float target": "targets must be whole numbers, got float32",
        "long": "an example has 7 tokens, and length is 4",
        "lengths": "must have one shape",
        "raises": "Extreme.example raises KeyError: \"no column 'answer'\" (test_heldout.py, line",
        "clock": "draws other examples each time it is called with the same key",
        "no key": "all 200 examples of the test set are equal",
        "baseline raises": "Extreme.baselines raises RuntimeError: nothing to count (test_heldout",
        "baseline": "unigram must be a finite number, got nan",
    }.items(),
)
def test_a_wrong_example_is_a_one_line_error(fault, message):
    with pytest.raises(UserError) as error:
        drawn(Extreme(fault=fault))
    assert message in str(error.value) and "\n" not in str(error.value)


def test_unscored_targets_may_be_anything():
    class Ignoring(Extreme):
        def example(self, key, index):
            batch = super().example(key, index)
            return batch._replace(targets=jnp.where(batch.weights > 0, batch.targets, -100))

    assert drawn(Ignoring()).baselines["unigram"] > 0.2


def test_a_vocabulary_of_one_is_refused():
    class One(Extreme):
        vocab_size = 1

    with pytest.raises(UserError, match="nothing to learn"):
        drawn(One())


def test_training_on_the_test_set_is_refused():
    """121 examples, of which 1,000 draws leave none: .97 of the test set was trained on."""
    with pytest.raises(UserError, match="that it would train on them"):
        drawn(Extreme(n=2), test_size=1000)


def test_a_crowded_task_warns_and_still_trains_on_other_examples_only(capsys):
    """1,331 examples: so many are held out that 64 redraws failed once in a thousand draws."""
    task = Extreme(n=3)
    source = make_source(task, DataSettings(), 1024)
    sets, warnings = heldout.checked_sets(task, source)
    assert 0.85 < source.rejected_share < 0.95
    assert any("90 % of the examples that Extreme draws are held out" in x for x in warnings)
    assert capsys.readouterr().err.startswith("warning: ")
    batch_at = jax.jit(source.batch_at)
    held = {tuple(row) for x in (sets.test, sets.validation) for row in np.asarray(x.inputs)}
    for step in range(4):
        batch = batch_at(jax.random.key(1), step, sets.fingerprints)
        assert not held & {tuple(row) for row in np.asarray(batch.inputs)}


def test_a_large_task_has_no_doubts(capsys):
    assert drawn(Extreme(n=6), test_size=1000).warnings == ()
    assert capsys.readouterr().err == ""


def test_a_small_task_is_split_by_hash_unless_the_user_chose(capsys):
    settings, data = heldout.default_data(Extreme(n=2), 8)
    assert settings.split == "hash" and "100 % of the examples" in capsys.readouterr().err
    sets = data.heldout()
    parts = [{tuple(row) for row in np.asarray(x.inputs)} for x in (sets.test, sets.validation)]
    train = jax.jit(data.batch_at)(jax.random.key(0), 0, sets.fingerprints)
    assert not parts[0] & parts[1]
    assert not {tuple(row) for row in np.asarray(train.inputs)} & (parts[0] | parts[1])
    assert heldout.default_data(Retrieval(max_pairs=4, vocab=64), 8)[0] == DataSettings()


def test_the_identity_of_a_task_is_what_it_does(monkeypatch):
    before = drawn(Extreme()).identity
    assert not difference(before, drawn(Extreme()).identity)
    monkeypatch.setitem(globals(), "LARGEST", False)
    assert difference(before, drawn(Extreme()).identity) == "the first held-out examples are others"
    monkeypatch.setitem(globals(), "LARGEST", True)
    assert not difference(before, drawn(Extreme()).identity)  # the old task came back


def test_an_edited_score_or_baseline_is_another_task():
    class Scored(Extreme):
        factor = 1.0

        def metrics(self, logits, batch):
            scores = token_metrics(logits, batch)
            value, weight = scores["accuracy"]
            return scores | {"accuracy": Scores(value * self.factor, weight)}

        def baselines(self, batch):
            return {"guess": 0.5 * self.factor}

    class Edited(Scored):
        def metrics(self, logits, batch):
            return token_metrics(logits, batch)

    before = drawn(Scored()).identity
    Scored.factor = 0.5
    assert difference(before, drawn(Scored()).identity) == "baseline guess: 0.5 then, 0.25 now"
    Scored.factor = 1.0
    assert difference(before, drawn(Scored()).identity) == ""
    Edited.factor = 1.0
    assert difference(before, drawn(Edited()).identity) == ""


def test_validation_has_trivial_scores_of_its_own():
    """The validation set avoids the test set, and so has none of the frequent short examples."""
    task = Retrieval(max_pairs=3, vocab=16)
    scores = drawn(task, test_size=1000, validation_size=1000)
    test, validation = (x["in_context_guess"] for x in (scores.baselines, scores[2]))
    assert test == pytest.approx(0.66, abs=0.02) and validation == pytest.approx(0.48, abs=0.02)


def test_answers_that_are_their_inputs_are_a_warning():
    tokens = np.random.default_rng(0).integers(0, 9, (60, 5))
    (line,) = drawn(Arrays(tokens, tokens)).warnings
    assert (
        line == "every answer of Arrays is the input at its own position: a copy is always right."
    )
    assert not drawn(Arrays(tokens)).warnings


@pytest.mark.parametrize(
    ("task", "copies"),
    [
        (NextToken(window=8), True),
        (Arrays(np.random.default_rng(0).integers(0, 9, (60, 5))), True),
        (MaskedTokens(window=8), False),
        (Retrieval(max_pairs=3, vocab=16), False),
    ],
)
def test_a_model_that_sees_the_next_token_is_not_asked_for_it(task, copies):
    """In 200 steps such a model reaches 93 % where bigrams have 27 %."""
    both_ways = decoder(**task.sizes, width=8, layers=1, heads=1, mlp_width=8, causal=False)
    with pytest.raises(UserError, match="would copy its answers") if copies else nullcontext():
        jaxformer.train(task, both_ways, steps=1, batch_size=4, warmup=0, progress=False)
    check_answers_are_hidden(task, drawn(task).sets.test, causal=True)


def test_arrays_with_equal_test_inputs_are_not_asked_for_their_key():
    inputs = np.array([[1, 2]] * 20 + [[3, 4]] * 20 + [[5, 6]] * 20)
    parts = ["train"] * 20 + ["validation"] * 20 + ["test"] * 20
    task = Arrays(inputs, inputs[:, 0], parts=parts)
    with pytest.raises(UserError, match=r"test set are equal\. Their inputs"):
        heldout.checked_sets(task, make_source(task, DataSettings(), 4))
