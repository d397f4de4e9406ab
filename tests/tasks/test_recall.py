"""Recall and synthetic IOI: statistics of the chain, scored positions, and wrong settings."""

import dataclasses

import jax
import numpy as np
import pytest

from jaxformer.core.errors import UserError
from jaxformer.data.characters import alias_tables
from jaxformer.tasks.ioi import SyntheticIOI
from jaxformer.tasks.recall import Recall


def draw(task, n=400, seed=0):
    keys = jax.random.split(jax.random.key(seed), n)
    batch = jax.jit(jax.vmap(lambda key: task.example(key, 0)))(keys)
    return jax.tree.map(np.asarray, batch)


@pytest.fixture(scope="module")
def noisy():
    task = Recall(n_symbols=8, context=40, alpha=0.3, triggers=" e", exclude_triggers=True)
    return task, draw(task, 2000)


def test_alias_tables_hold_the_distribution():
    p_RxN = np.random.default_rng(0).dirichlet(np.ones(9) * 0.3, 5)
    keep, alias = alias_tables(p_RxN)
    total = keep / 9
    for row in range(5):
        np.add.at(total[row], alias[row], (1 - keep[row]) / 9)
    np.testing.assert_allclose(total, p_RxN, atol=1e-6)


def test_transitions_are_the_bigrams_and_triggers_lead_to_ybar_or_noise(noisy):
    task, batch = noisy
    q, tau = task.trigger_tokens, task.noise_token
    before, after = batch.inputs[:, :-1], batch.inputs[:, 1:]
    _, bigram = task.probabilities()
    for z in range(task.n_symbols):
        if z not in q:
            drawn = np.bincount(after[before == z], minlength=task.vocab_size)
            p = bigram[z]
            error = np.sqrt(p * (1 - p) / drawn.sum()) + 1e-9
            assert (np.abs(drawn / drawn.sum() - p) < 4.5 * error).all()
            assert drawn[tau] == 0
    for trigger in q:
        there = before == trigger
        share = (after[there] == tau).mean()
        assert abs(share - 0.3) < 4 * (0.21 / there.sum()) ** 0.5
        for row in range(200):  # one ybar a sequence and trigger, no trigger itself
            answers = set(after[row][there[row]]) - {tau}
            assert len(answers) <= 1 and not answers & set(q)


def test_repeats_are_scored_and_their_targets_follow(noisy):
    task, batch = noisy
    np.testing.assert_array_equal(batch.inputs[:, 1:], batch.targets[:, :-1])
    for row in range(50):
        seen = {q: 0 for q in task.trigger_tokens}
        for t, z in enumerate(batch.inputs[row]):
            if z in seen:
                seen[z] += 1
            assert batch.weights[row, t] == (z in seen and seen[z] >= 2)


def test_alpha_0_and_1_and_the_last_position():
    task = Recall(n_symbols=6, context=12, alpha=1.0, scored="last", statistics="uniform")
    noise = draw(task, 200)
    q = task.trigger_tokens[0]
    assert (noise.inputs[:, -1] == q).all() and (noise.targets[:, -1] == task.noise_token).all()
    assert (noise.weights.sum(1) == 1).all() and task.n_scored == 1
    clean = draw(dataclasses.replace(task, alpha=0.0), 200)
    assert not (clean.inputs == task.noise_token).any()
    for inputs, targets in zip(clean.inputs, clean.targets, strict=True):
        assert len(set(targets[inputs == q][targets[inputs == q] != q])) <= 1
    assert (clean.targets[:, -2] == q).all()


def test_the_authors_noise_and_drawn_triggers():
    task = Recall(n_symbols=65, context=30, noise="!", drawn_triggers=5)
    assert task.vocab_size == 65 and task.noise_token == 2 and task.n_triggers == 5
    batch = draw(task, 300)
    assert batch.inputs.max() < 65
    scored = batch.inputs[batch.weights > 0]
    assert len(set(scored)) > 5  # other triggers in other sequences
    with pytest.raises(UserError, match="noise is one symbol or none, got 'an'"):
        Recall(n_symbols=65, context=30, noise="an")


@pytest.mark.parametrize("reading", ["rarer", "more"])
def test_synthetic_ioi_has_three_triggers_and_its_share_of_noise(reading):
    task = SyntheticIOI(n_symbols=9, context=12, alpha=0.25, reading=reading)
    batch, q = draw(task, 2000), 8
    noise = batch.targets[:, -1] == task.noise_token
    assert abs(noise.mean() - 0.25) < 4 * (0.1875 / 2000) ** 0.5
    assert (batch.inputs[:, -1] == q).all() and ((batch.inputs == q).sum(1) == 4).all()
    starts = np.array([np.flatnonzero(row == q)[:3] for row in batch.inputs])
    assert (np.diff(starts, axis=1) >= 2).all() and starts.max() == 12 - 3 and starts.min() == 0
    counts = np.array([np.bincount(r[s + 1], minlength=9) for r, s in zip(batch.inputs, starts)])
    expected = np.where(noise, 0, batch.targets[:, -1])
    times = 1 if reading == "rarer" else 2
    assert (counts[np.arange(2000), expected][~noise] == times).all()


def test_wrong_settings_are_one_line_errors(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("aaab")
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    for message, settings in {
        "alpha must be in": {"alpha": 1.5},
        "triggers has '#', which is not among the 8 symbols": {"triggers": "#"},
        "noise has 'Q'": {"noise": "Q"},
        "nothing follows 'b'": {"text": str(text), "n_symbols": 2, "triggers": "a"},
        "cannot read the text": {"text": "/nowhere"},
        "is empty": {"text": str(empty)},
        "n_symbols must be 2 to 65": {"n_symbols": 66},
        "unknown kind of scored positions": {"scored": "lats"},
        "needs a trigger": {"triggers": ""},
        "got 2 triggers and 2": {"triggers": " e", "n_symbols": 2, "exclude_triggers": True},
        "got 2 triggers": {"triggers": " e", "scored": "last"},
    }.items():
        with pytest.raises(UserError, match=message):
            Recall(**{"n_symbols": 8, "context": 8} | settings)
    with pytest.raises(UserError, match="at least 7 tokens, got 6"):
        SyntheticIOI(context=6)
    with pytest.raises(UserError, match="unknown reading"):
        SyntheticIOI(reading="most")
