"""Prepared text as a task: windows, documents, masks and baselines, compared with slow Python."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.core.errors import UserError
from jaxformer.core.settings import DataSettings
from jaxformer.data import datasets, ngrams, preparation, tokenizer
from jaxformer.data.chain import packaged
from jaxformer.tasks.disk import Order
from jaxformer.tasks.language import MaskedTokens, NextToken
from jaxformer.tasks.source import make_source
from jaxformer.tasks.task import TEST, TRAIN, VALIDATION
from jaxformer.training.metrics import mean_of_batches

START = "<s>"
LINES = [f"{i} {'la ' * (i % 7)}" for i in range(600)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Returns a prepared text of 600 lines of different lengths, each a document."""
    place = tmp_path_factory.mktemp("text")
    (place / "t.txt").write_text("\n".join(LINES))
    corpus = datasets.corpus(f"text:{place / 't.txt'}", documents="line")
    preparation.prepare(corpus, place / "out", kind="bytes", shares=(0.1, 0.1))
    return str(place / "out")


@pytest.fixture(scope="module")
def folder_with_start(folder, tmp_path_factory):
    """Returns the same text, prepared with a tokenizer of bytes that has a start token."""
    pieces = pytest.importorskip("tokenizers")
    place = tmp_path_factory.mktemp("start")
    model = pieces.Tokenizer.from_str(tokenizer.Bytes().as_json())
    model.add_special_tokens([START, "[MASK]"])
    model.post_processor = pieces.processors.TemplateProcessing(f"{START} $A", None, [(START, 257)])
    model.save(str(place / "tokenizer.json"))
    corpus = datasets.corpus(f"text:{folder}/../t.txt", documents="line")
    kind = str(place / "tokenizer.json")
    preparation.prepare(corpus, place / "out", kind=kind, shares=(0.1, 0.1))
    return str(place / "out")


def part_of(task, part):
    here = task.prepared.part(("train", "validation", "test")[part])
    return task.prepared.tokens(here.start, here.stop)


def batch_of(task, part, index, shift=0):
    rows = task.rows(part, np.asarray(index), np.full(len(index), shift))
    return jax.device_get(task.batch(jnp.asarray(rows), jax.random.split(jax.random.key(0), 1)))


@pytest.mark.parametrize("part", [TRAIN, VALIDATION, TEST])
def test_windows_are_those_of_the_part(folder, part):
    task = NextToken(tokens=folder, window=16)
    text = part_of(task, part)
    for shift in (0, 5, 16 * 1000 + 7):
        batch = batch_of(task, part, range(task.count(part)), shift)
        for i, (inputs, targets) in enumerate(zip(batch.inputs, batch.targets, strict=True)):
            start = shift % 16 + 16 * i
            np.testing.assert_array_equal(inputs, text[start : start + 16])
            np.testing.assert_array_equal(targets, text[start + 1 : start + 17])
    assert (batch.weights == 1).all() and task.count(part) == len(text) // 16 - 1


def test_windows_begin_with_the_start_token_and_score_the_whole_text(folder_with_start):
    task = NextToken(tokens=folder_with_start, window=16)
    text = part_of(task, TEST)
    batch = batch_of(task, TEST, range(task.count(TEST)))
    assert not (text == 257).any() and (batch.inputs[:, 0] == 257).all()
    np.testing.assert_array_equal(batch.inputs[:, 1:], batch.targets[:, :-1])
    np.testing.assert_array_equal(batch.targets.ravel(), text[: batch.targets.size])
    assert (batch.weights == 1).all()


def test_documents_are_scored_from_their_first_token_on_after_a_start_token(folder_with_start):
    task = NextToken(tokens=folder_with_start, window=10, documents=True)
    batch = batch_of(task, TRAIN, range(100))
    for line, inputs, targets, weights in zip(LINES, *batch, strict=False):
        scored = line.encode()[:10]
        assert inputs[0] == 257 and weights.sum() == len(scored)
        assert bytes(targets[: len(scored)].tolist()) == scored


def test_documents_are_cut_padded_and_masked_as_the_authors_do(folder):
    task = NextToken(tokens=folder, window=10, documents=True)
    assert task.count(TRAIN) + task.count(VALIDATION) + task.count(TEST) == 600
    batch = batch_of(task, TRAIN, range(100))
    for line, inputs, targets, weights in zip(LINES, *batch, strict=False):
        document_bytes = line.encode()[:11]
        for t in range(10):
            assert inputs[t] == (document_bytes[t] if t < len(document_bytes) else 256)
            assert weights[t] == (t + 1 < len(document_bytes))
            assert not weights[t] or targets[t] == document_bytes[t + 1]


def test_every_row_is_visited_once_an_epoch_in_a_new_order():
    for size in (1, 2, 7, 64, 1000):
        order = Order(jax.random.key(size))
        index, shift = order.visit(np.arange(3 * size), size)
        epochs = index.reshape(3, size)
        assert (np.sort(epochs, 1) == np.arange(size)).all()
        assert len(np.unique(shift)) == 3 and (shift.reshape(3, size) == shift[::size, None]).all()
        if size == 1000:
            assert (epochs[0] != epochs[1]).mean() > 0.99 and (
                np.diff(epochs[0]) == 1
            ).mean() < 0.01
    again = Order(jax.random.key(1000)).visit(np.arange(2500, 2510), 1000)[0]
    np.testing.assert_array_equal(again, index[2500:2510])
    other = Order(jax.random.key(1)).visit(np.arange(1000), 1000)[0]
    assert (other != index[:1000]).mean() > 0.99


def test_held_out_sets_are_of_their_parts(folder):
    task = NextToken(tokens=folder, window=16)
    sizes = DataSettings(test_size=5, validation_size=10**6)
    heldout = make_source(task, sizes, 4).heldout()
    assert heldout.test.inputs.shape == (5, 16)
    assert heldout.validation.inputs.shape == (task.count(VALIDATION), 16)
    text = part_of(task, TEST)
    for row in np.asarray(heldout.test.inputs):
        assert any((text[i : i + 16] == row).all() for i in range(0, len(text) - 16, 16))


def test_bits_a_byte_are_those_of_all_bytes(folder):
    task = NextToken(tokens=folder, window=10, documents=True)
    batch = jax.tree.map(jnp.asarray, batch_of(task, TRAIN, range(50)))
    logits = jax.random.normal(jax.random.key(0), (50, 10, task.vocab_size))
    scores = task.metrics(logits, batch)
    bits, n_bytes = 0.0, 0
    logp = np.asarray(jax.nn.log_softmax(logits)) / np.log(2)
    for b, t in zip(*np.nonzero(np.asarray(batch.weights)), strict=True):
        target = int(batch.targets[b, t])
        bits, n_bytes = bits - logp[b, t, target], n_bytes + (target < 256)
    value, weight = (np.asarray(x) for x in scores["bits_per_byte"])
    assert weight.sum() == n_bytes
    assert (value * weight).sum() / weight.sum() == pytest.approx(bits / n_bytes, rel=1e-5)


def test_the_papers_log_perplexity_depends_on_the_batch_and_the_loss_does_not():
    value, weight = np.array([1.0, 3, 5, 7]), np.array([4.0, 0, 1, 1])
    assert mean_of_batches(value, weight, 2).mean == pytest.approx((1 + 6) / 2)
    assert mean_of_batches(value, weight, 4).mean == pytest.approx(16 / 6)
    assert mean_of_batches(value, weight, 1).mean == pytest.approx((1 + 5 + 7) / 3)
    assert mean_of_batches(value, weight, 3).mean == pytest.approx((9 / 5 + 7) / 2)
    assert NextToken(batch_of=8).means_of_batches == {"log_perplexity": ("loss", 8)}
    assert NextToken().means_of_batches == {}


def slow_trigram(tokens, V, d2, d3, a, b, c):
    """Computes the formulas of the module count by count."""

    def after(context, n):
        places = [i for i in range(n, len(tokens)) if tuple(tokens[i - n : i]) == context]
        return [tokens[i] for i in places]

    p1 = (list(tokens).count(c) + 0.5) / (len(tokens) + V / 2)
    seen = after((b,), 1)
    p2 = p1
    if seen:
        p2 = (max(seen.count(c) - d2, 0) + d2 * len(set(seen)) * p1) / len(seen)
    seen = after((a, b), 2)
    if a < 0 or not seen:
        return p1, p2, p2
    return p1, p2, (max(seen.count(c) - d3, 0) + d3 * len(set(seen)) * p2) / len(seen)


def test_ngrams_are_those_of_slow_python_and_sum_to_one():
    rng, V = np.random.default_rng(0), 6
    tokens = rng.integers(0, V - 1, 200) * rng.integers(0, 2, 200)
    fitted = ngrams.fit(tokens, V)
    d2, d3 = fitted.discounts
    for a, b in [(-1, 0), (0, 0), (1, 3), (5, 5), (4, 2)]:
        c = np.arange(V)
        p = fitted.probabilities(np.full(V, a), np.full(V, b), c)
        slow = np.array([slow_trigram(tokens, V, d2, d3, a, b, int(i)) for i in c])
        np.testing.assert_allclose(np.stack([*p.values()], 1), slow, rtol=1e-12)
        np.testing.assert_allclose(slow.sum(0), 1)
    assert fitted.best_after()[5] == np.bincount(tokens).argmax()


def test_a_longer_context_predicts_better_on_the_chain():
    task = NextToken(window=40)
    result = task.baselines(make_source(task, DataSettings(test_size=100), 4).heldout().test)
    assert result["unigram_loss"] == pytest.approx(3.32, abs=0.1)
    assert 2.4 < result["bigram_loss"] < 2.6 < result["unigram_loss"]
    # The chain has no more to tell: a third symbol only costs what it is estimated with.
    assert result["bigram_loss"] - 0.01 < result["trigram_loss"] < result["bigram_loss"] + 0.15
    assert result["bigram_bits_per_byte"] == pytest.approx(
        result["bigram_loss"] / np.log(2), rel=0.02
    )
    assert result["bigram_accuracy"] > result["best_constant"] + 0.05


@pytest.mark.parametrize("masking", ["plain", "bert"])
def test_masks_by_slow_python(masking):
    task = MaskedTokens(window=30, masking=masking, rate=0.2)
    n, mask = 300, packaged().vocab_size
    rows = task.rows(TRAIN, np.arange(n), np.zeros(n, int))
    batch = task.batch(jnp.asarray(rows), jax.random.split(jax.random.key(1), n))
    inputs, targets, weights = map(np.asarray, batch)
    np.testing.assert_array_equal(targets, rows)
    assert task.vocab_size == mask + 1 and (inputs == targets)[weights == 0].all()
    shown, own = inputs[weights > 0], targets[weights > 0]
    kinds = [(shown == mask).sum(), (shown == own).sum(), len(shown)]
    kinds[2] -= sum(kinds[:2])
    assert abs(len(shown) - 0.2 * 9000) < 4 * (9000 * 0.2 * 0.8) ** 0.5
    shares = (1, 0, 0) if masking == "plain" else (0.8, 0.1 + 0.1 / mask, 0.1 * (1 - 1 / mask))
    for found, share in zip(kinds, shares, strict=True):
        assert abs(found - len(shown) * share) <= 4 * (len(shown) * share * (1 - share)) ** 0.5


@pytest.mark.parametrize("masking", ["plain", "bert"])
def test_windows_of_an_encoder_lie_between_its_tokens_and_have_its_mask(folder_with_start, masking):
    task = MaskedTokens(tokens=folder_with_start, window=16, masking=masking, rate=0.3)
    text, index = part_of(task, TRAIN), range(task.count(TRAIN))
    rows = task.rows(TRAIN, np.asarray(index), np.zeros(len(index), int))
    keys = jax.random.split(jax.random.key(0), len(index))
    inputs, targets, weights = map(np.asarray, task.batch(jnp.asarray(rows), keys))
    assert task.vocab_size == 259, "the mask is a token of the tokenizer"
    for tokens in (inputs, targets):
        assert (tokens[:, 0] == 257).all() and (tokens[:, -1] == task.prepared.end).all()
    assert not weights[:, [0, -1]].any()
    np.testing.assert_array_equal(targets[:, 1:-1].ravel(), text[: 14 * len(index)])
    shown = inputs[weights > 0]
    share = 1 if masking == "plain" else 0.8
    assert abs((shown == 258).mean() - share) <= 4 * (0.16 / len(shown)) ** 0.5
    assert (shown < 259).all() and (inputs == targets)[weights == 0].all()
    with pytest.raises(UserError, match=r"task.window must be at least 4, got 3"):
        MaskedTokens(tokens=folder_with_start, window=3)
    with pytest.raises(UserError, match=r"task.vocab must be at least 259, got 258"):
        MaskedTokens(tokens=folder_with_start, window=16, vocab=258)


@pytest.mark.parametrize(
    "fields, message",
    [
        (
            dict(tokens="/nowhere", window=8),
            "there is no prepared text in /nowhere: jaxformer prepare text:FILE --out /nowhere",
        ),
        (dict(window=25_000), "the validation part of the chain has 20200 tokens, and .* 25001"),
        (dict(window=1), "task.window must be at least 2, got 1"),
        (
            dict(fingerprint="123", window=8),
            "has the fingerprint the chain, expected 123",
        ),
    ],
)
def test_wrong_text_is_a_one_line_error(fields, message):

    with pytest.raises(UserError, match=message):
        NextToken(**fields)
