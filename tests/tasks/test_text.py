"""Text tasks, compared with slow Python: windows, walks of the chain, masks, baselines, errors."""

from itertools import pairwise, product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.core.errors import UserError
from jaxformer.data.characters import characters
from jaxformer.tasks.retrieval import Retrieval
from jaxformer.tasks.source import TEST, TRAIN, VALIDATION, Source
from jaxformer.tasks.text import CausalText, MaskedText, posterior, transitions


def draw(task, n=300):
    keys = jax.random.split(jax.random.key(0), n)
    return jax.device_get(jax.jit(jax.vmap(task.example))(keys, jnp.arange(n)))


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """Returns 1,000 symbols with another alphabet in each part, so that windows show their part."""
    path, rng = tmp_path_factory.mktemp("text") / "text.txt", np.random.default_rng(0)
    parts = [("abcd", 800), ("éfg", 100), ("xyz", 100)]
    path.write_text("".join("".join(rng.choice([*s], n)) for s, n in parts), encoding="utf-8")
    return str(path)


def test_the_packaged_chain_is_tiny_shakespeare():
    chain = characters()
    assert len(chain.symbols) == 65 and chain.symbols[:3] == ("\n", " ", "!")
    assert (chain.pairs_VxV > 0).sum() == 1403
    assert chain.counts_V.sum() == 1_115_394 and chain.pairs_VxV.sum() == 1_115_393
    assert chain.counts_V[chain.symbols.index(" ")] == 169_892
    p_V = chain.counts_V / chain.counts_V.sum()
    unigram = -(p_V * np.log(p_V)).sum()
    p_VxV = transitions(chain)
    bigram = -(chain.pairs_VxV * np.log(np.where(p_VxV > 0, p_VxV, 1))).sum() / 1_115_393
    assert (round(unigram, 3), round(bigram, 3)) == (3.313, 2.453)


def test_a_walk_has_the_frequencies_of_the_chain():
    task, chain = CausalText(window=40), characters()
    batch = draw(task)
    np.testing.assert_array_equal(batch.inputs[:, 1:], batch.targets[:, :-1])
    assert (chain.pairs_VxV[batch.inputs, batch.targets] > 0).all(), "a pair that never occurs"
    symbols = np.concatenate([batch.inputs, batch.targets[:, -1:]], 1)
    expected = chain.counts_V / chain.counts_V.sum()
    for place in (0, 40):  # stationary: the first symbol is as frequent as the last
        result = np.bincount(symbols[:, place], minlength=65) / len(symbols)
        assert abs(result[1] - expected[1]) < 4 * (expected[1] / len(symbols)) ** 0.5
    after_t = batch.targets[batch.inputs == chain.symbols.index("t")]
    p = transitions(chain)[chain.symbols.index("t"), chain.symbols.index("h")]
    share = (after_t == chain.symbols.index("h")).mean()
    assert abs(share - p) < 4 * (p * (1 - p) / len(after_t)) ** 0.5


def test_training_draws_from_the_task_itself_unless_it_says_another_part():
    """So every record of these tasks keeps its bits: `Source` trains on `part(TRAIN)`."""
    for task in (CausalText(window=5), MaskedText(window=5), Retrieval(max_pairs=2, vocab=8)):
        assert task.part(TRAIN) == task


def test_windows_of_a_file_stay_in_their_part(file):
    with open(file, encoding="utf-8") as handle:
        text = handle.read()
    task = CausalText(text=file, window=5)
    symbols = task.characters.symbols
    assert "".join(symbols) == "abcdfgxyzé" and task.vocab_size == 10
    for stream, part in {TRAIN: text[:800], VALIDATION: text[800:900], TEST: text[900:]}.items():
        windows, seen = draw(task.part(stream)), set()
        for inputs, targets, weights in zip(*windows, strict=True):
            word = "".join(symbols[i] for i in [*inputs, targets[-1]])
            assert word in part and (weights == 1).all()
            seen.add(word)
        every = {part[i : i + 6] for i in range(len(part) - 5)}
        assert len(seen) > 60 and seen <= every
        if len(part) == 100:
            assert {part[:6], part[-6:]} <= seen, "both ends of the part are reached"


def test_a_source_draws_each_set_from_its_part(file):
    task = MaskedText(text=file, window=6)
    source = Source(task, jax.random.key(0), 8, 0, 20, 20)
    heldout, train = source.heldout(), source.batch_at(jax.random.key(1), 0, jnp.zeros(1, "uint32"))
    letters = [
        {task.characters.symbols[i] for i in np.unique(b.targets)} for b in (*heldout[:2], train)
    ]
    assert letters == [{*"xyz"}, {*"éfg"}, {*"abcd"}]


@pytest.mark.parametrize("masking", ["plain", "bert"])
def test_masking_by_slow_python(masking):
    task = MaskedText(window=30, masking=masking)
    mask, n = 65, 0
    kinds = dict(mask=0, same=0, other=0)
    batch = draw(task)
    assert task.vocab_size == 66
    for inputs, targets, weights in zip(*batch, strict=True):
        for shown, symbol, weight in zip(inputs, targets, weights, strict=True):
            assert 0 <= symbol < 65
            if weight == 0:
                assert shown == symbol
            else:
                n += 1
                kinds["mask" if shown == mask else "same" if shown == symbol else "other"] += 1
    assert abs(n - 0.15 * 9000) < 4 * (9000 * 0.15 * 0.85) ** 0.5
    shares = (1, 0, 0) if masking == "plain" else (0.8, 0.1 + 0.1 / 65, 0.1 * 64 / 65)
    for found, share in zip(kinds.values(), shares, strict=True):
        assert abs(found - n * share) <= 4 * (n * share * (1 - share)) ** 0.5


def test_the_posterior_is_bayes_by_enumeration(file):
    source = characters(file)
    p_VxV, p_V = transitions(source), source.counts_V / source.counts_V.sum()
    symbols, hidden = np.array([0, 1, 2, 3, 1]), np.array([1, 0, 1, 1, 0], bool)
    weight = np.zeros((5, len(p_V)))
    choices = [range(len(p_V)) if h else [s] for s, h in zip(symbols, hidden, strict=True)]
    for word in product(*choices):
        p = p_V[word[0]] * np.prod([p_VxV[a, b] for a, b in pairwise(word)])
        for t, symbol in enumerate(word):
            weight[t, symbol] += p
    expected = weight / weight.sum(1, keepdims=True)
    np.testing.assert_allclose(posterior(source, symbols[None], hidden[None])[0], expected)


def test_baselines_are_those_of_the_set():
    causal = CausalText(window=40)
    batch, p_VxV = draw(causal), transitions(characters())
    result = causal.baselines(batch)
    nats = [-np.log(p_VxV[a, b]) for a, b in zip(batch.inputs.ravel(), batch.targets.ravel())]
    assert result["bigram_loss"] == pytest.approx(np.mean(nats))
    assert abs(result["bigram_loss"] - 2.453) < 4 * np.std(nats) / len(nats) ** 0.5
    assert result["best_constant"] == pytest.approx((batch.targets == 1).mean())
    masked = MaskedText(window=40)
    both = masked.baselines(draw(masked))
    # A symbol on either side says more than one, and one more than none.
    assert both["bigram_loss"] < result["bigram_loss"] - 0.3 < both["unigram_loss"] - 1
    assert both["bigram_accuracy"] > result["bigram_accuracy"] > both["best_constant"]


def test_a_loss_is_reported_above_that_of_frequencies_example_by_example():
    """A model that knows the frequencies alone is at 0 in every example, hard or easy."""
    masked = MaskedText(window=40)
    batch = draw(masked)
    counts_V = characters().counts_V
    logits_V = jnp.append(jnp.log(counts_V / counts_V.sum()), -1e9)  # the last is the mask
    logits_BxTxV = jnp.broadcast_to(logits_V, (*batch.inputs.shape, len(logits_V)))
    scores = masked.metrics(logits_BxTxV, batch)
    np.testing.assert_allclose(scores["loss_above_unigram"].value, 0.0, atol=1e-5)
    assert scores["loss"].value.std() > 0.1
    uniform = masked.metrics(jnp.zeros_like(logits_BxTxV), batch)
    value, weight = uniform["loss_above_unigram"]
    expected = np.log(len(logits_V)) - masked.baselines(batch)["unigram_loss"]
    assert (value * weight).sum() / weight.sum() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("kind", [CausalText, MaskedText])
def test_baselines_of_a_file_know_its_training_part_alone(tmp_path, kind):
    """The test part has other symbols, to which no baseline gives probability 1."""
    path = tmp_path / "text.txt"
    path.write_text("ab" * 400 + "cd" * 100)
    task = kind(text=str(path), window=8)
    losses = [task.part(part).baselines(draw(task.part(part), 20)) for part in (TRAIN, TEST)]
    for name in ("unigram_loss", "bigram_loss"):
        train, test = (found[name] for found in losses)
        assert train < np.log(2) + 0.02 and 1.5 * np.log(4) < test < np.inf


@pytest.mark.parametrize("x64", [False, True])
def test_draws_do_not_depend_on_x64(x64, file):
    with jax.enable_x64(x64):
        sums = []
        for text in ("", file):
            batch = draw(MaskedText(text=text, window=8, masking="bert"), 5)
            assert batch.inputs.dtype == batch.targets.dtype == np.int32
            sums += [int(batch.inputs.sum()), int(batch.targets.sum())]
    assert sums == SUMS  # the same numbers in both


SUMS = [1589, 1422, 116, 66]


@pytest.mark.parametrize(
    "content, message",
    [
        (None, "cannot read the text .* No such file"),
        (b"", "is empty"),
        (b"abcabc" * 10, "is too short: a tenth of it, 6 symbols, must hold a window of 64"),
        (b"aaaaaaaa", "repeats one symbol"),
        (b"abc\xff", "is not UTF-8: byte 3"),
    ],
)
def test_a_wrong_corpus_is_a_one_line_error(tmp_path, content, message):
    path = tmp_path / "text.txt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=message) as error:
        MaskedText(text=str(path))
    assert "\n" not in str(error.value)


def test_a_long_text_is_prepared_and_not_compiled(tmp_path, monkeypatch):
    monkeypatch.setattr("jaxformer.tasks.text.MAX_TEXT_SYMBOLS", 99)
    (tmp_path / "text.txt").write_text("ab" * 50)
    with pytest.raises(UserError, match=r"has 100 symbols, at most 99 are possible here"):
        CausalText(text=str(tmp_path / "text.txt"), window=4)


def test_wrong_options_are_one_line_errors():
    with pytest.raises(UserError, match="cannot read the text '/': Is a directory"):
        CausalText(text="/")
    for message, fields in {
        "unknown masking 'brt'. Did you mean 'bert'": dict(masking="brt"),
        "rate must be between 0 and 1, got 1": dict(rate=1),
        "window must be at least 2": dict(window=1),
        "stream must be one of": dict(stream=9),
    }.items():
        with pytest.raises(UserError, match=message):
            MaskedText(**fields)
