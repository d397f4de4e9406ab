"""A loaded tokenizer that loses, repeats or cannot encode text is refused before its first use."""

import json

import pytest

from jaxformer.core.errors import UserError
from jaxformer.data import datasets, preparation, round_trip, tokenizer

tokenizers = pytest.importorskip("tokenizers")
TEXT = "".join(f"line {i} of a text, aaaaaaaaaaaaaaaaaaaaaaaaaaaaaab\n" for i in range(60))
TRAINED = tokenizer.train_bpe(300, [TEXT])


def word_level(unknown: str | None = None):
    vocab = {"</s>": 0, "line": 1} | ({unknown: 2} if unknown else {})
    options = {"unk_token": unknown} if unknown else {}
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, **options))
    model.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return model


def with_pattern(pattern: str):
    model = tokenizers.Tokenizer.from_str(TRAINED.as_json())
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
    model.pre_tokenizer = split
    return model


def with_normalizer(pattern: str, content: str):
    model = tokenizers.Tokenizer.from_str(TRAINED.as_json())
    model.normalizer = tokenizers.normalizers.Replace(tokenizers.Regex(pattern), content)
    return model


def prepared(model, tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    (tmp_path / "t.json").write_text(model if isinstance(model, str) else model.to_str())
    corpus = datasets.corpus(f"text:{tmp_path / 'text.txt'}")
    kind = str(tmp_path / "t.json")
    return preparation.prepare(corpus, tmp_path / "out", kind=kind, shares=(0.1, 0.1))


REFUSED = {
    "no word but one": (lambda: word_level("[UNK]"), r"loses text: .* lost piece is '0', .* ''"),
    "no unknown token": (word_level, "fails on the first .* Missing .UNK. token"),
    "an empty text": (lambda: with_normalizer(".", ""), "loses text: .* lost piece is 'line'"),
    "a pattern that backtracks": (lambda: with_pattern(r"(a+)+$"), "fails on the first .*: .*\\."),
    "a text times 60": (lambda: with_normalizer("a", "xyz" * 20), r"makes [\d,]+ tokens of"),
    "all memory": (lambda: with_normalizer("a", "xyz" * 10**6), "fails on the first"),
}


SLOW = {"all memory": pytest.mark.slow}  # it takes ten seconds to fill a gigabyte


@pytest.mark.parametrize("name", [pytest.param(name, marks=SLOW.get(name, ())) for name in REFUSED])
def test_a_tokenizer_that_does_not_give_the_text_back_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.setattr(round_trip, "MAX_TRIAL_BYTES", 2**30)
    make, message = REFUSED[name]
    with pytest.raises(UserError, match=message) as error:
        prepared(make(), tmp_path)
    assert "\n" not in str(error.value) and not (tmp_path / "out").exists()


def test_a_sound_tokenizer_is_accepted_even_if_it_changes_case_and_accents(tmp_path):
    model = tokenizers.Tokenizer.from_str(TRAINED.as_json())
    steps = [tokenizers.normalizers.NFD(), tokenizers.normalizers.StripAccents()]
    steps.append(tokenizers.normalizers.Lowercase())
    model.normalizer = tokenizers.normalizers.Sequence(steps)
    words = ["Être", "ou", "NE", "pas"]
    tokenizer_read = tokenizer.from_json(model.to_str(), "here")
    round_trip.check_round_trip(tokenizer_read, "here", words)
    assert prepared(model, tmp_path).part("train").bytes > 0


def test_a_tokenizer_without_an_end_is_stopped(monkeypatch):
    monkeypatch.setattr(round_trip, "MAX_TRIAL_SECONDS", 0.01)
    with pytest.raises(UserError, match=r"does not end within 0.01 seconds"):
        round_trip.check_round_trip(TRAINED, "some.json", ["word"])


def test_text_that_cannot_be_encoded_later_is_a_one_line_error():
    tokenizer_read = tokenizer.from_json(word_level().to_str(), "here")
    with pytest.raises(UserError, match="cannot encode the text: WordLevel error: Missing"):
        tokenizer_read.encode(["other words"])


def test_the_name_of_a_special_token_in_a_text_is_text():
    tokenizer_read = tokenizer.from_json(json.dumps(json.loads(TRAINED.as_json())), "here")
    for each in (TRAINED, tokenizer_read):
        (tokens,) = each.encode(["say <|endoftext|> now"])
        assert each.end not in tokens and each.decode(tokens) == "say <|endoftext|> now"


def test_the_reason_is_the_error_and_not_the_advice_on_backtraces():
    panic = "thread 'main' panicked at src/lib.rs:3:\ncapacity overflow\n"
    advice = "note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n"
    assert round_trip._reason(panic + advice, -6) == "capacity overflow"
    assert round_trip._reason("", -9) == "signal 9"
