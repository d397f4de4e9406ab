"""Tokenizers reproduce every text, and the bytes of its tokens add up to its size."""

import numpy as np
import pytest

from jaxformer.core.errors import UserError
from jaxformer.data import tokenizer

TEXTS = ["To be, or not to be:\n\n  that", "naïve café 日本 🙂\x00", "", "a  b\t\n"]
TRAINED = tokenizer.train_bpe(300, ["to be or not to be that is the question\n"] * 50)


@pytest.mark.parametrize("made", [tokenizer.Bytes(), TRAINED], ids=["bytes", "bpe"])
def test_a_text_comes_back_and_its_bytes_are_counted(made):
    table = made.n_bytes()
    assert table.shape == (made.vocab_size,) and table[made.end] == 0
    for text, tokens in zip(TEXTS, made.encode(TEXTS), strict=True):
        assert made.decode(tokens) == text
        assert made.decode([*tokens, made.end]) == text
        assert table[tokens].sum() == len(text.encode())


def test_a_tokenizer_is_kept_as_json():
    for made in (tokenizer.Bytes(), TRAINED):
        again = tokenizer.from_json(made.as_json(), "here")
        assert type(again) is type(made) and again.as_json() == made.as_json()
        for a, b in zip(made.encode(TEXTS), again.encode(TEXTS), strict=True):
            np.testing.assert_array_equal(a, b)


def test_bytes_are_the_same_tokens_in_the_package():
    parts = pytest.importorskip("tokenizers")
    model = parts.Tokenizer.from_str(tokenizer.Bytes().as_json())
    for text, tokens in zip(TEXTS, tokenizer.Bytes().encode(TEXTS), strict=True):
        assert model.encode(text).ids == tokens.tolist()
        assert model.decode(tokens.tolist()) == text
    assert model.token_to_id(tokenizer.END) == 256


def test_training_is_deterministic_and_merges_what_is_frequent():
    again = tokenizer.train_bpe(300, ["to be or not to be that is the question\n"] * 50)
    assert again.as_json() == TRAINED.as_json()
    assert len(TRAINED.encode([" question"])[0]) == 1


def test_documents_end_with_a_special_token_and_not_with_a_tag_of_this_name():
    """Gemma's vocabulary has the HTML tag </s> beside its end token <eos>."""
    pieces = pytest.importorskip("tokenizers")
    model = pieces.Tokenizer(pieces.models.WordLevel({"a": 0}, unk_token="a"))
    model.add_special_tokens(["<eos>"])
    model.add_tokens(["</s>"])
    made = tokenizer.from_json(model.to_str(), "here")
    assert made.end_text == "<eos>" and made.end == model.token_to_id("<eos>")


@pytest.mark.parametrize(
    ("template", "start"),
    [(None, -1), ("<s> $A", 1), ("<s> $A <|endoftext|>", 1), ("$A <|endoftext|>", -1)],
)
def test_the_start_token_is_what_a_tokenizer_puts_before_a_text(template, start):
    pieces = pytest.importorskip("tokenizers")
    for vocab in ({"a": 2}, {"b": 2}):  # with and without the letter that the trial encodes
        model = pieces.Tokenizer(pieces.models.BPE({tokenizer.END: 0, "<s>": 1, **vocab}, []))
        model.add_special_tokens([tokenizer.END, "<s>"])
        if template:
            special = [(tokenizer.END, 0), ("<s>", 1)]
            model.post_processor = pieces.processors.TemplateProcessing(template, None, special)
        assert tokenizer.from_json(model.to_str(), "here").start == start
    assert tokenizer.Bytes().start == -1


@pytest.mark.parametrize(
    "kind, message",
    [
        ("bpe:many", "needs a vocabulary size, as in bpe:1024; got 'bpe:many'"),
        ("bpe:100", "must be at least 257, got 100"),
        ("/no/tokenizer.json", "there is no tokenizer file .* A tokenizer is bytes, bpe:SIZE"),
    ],
)
def test_a_wrong_name_is_a_one_line_error(kind, message):
    with pytest.raises(UserError, match=message):
        tokenizer.make(kind)


def test_a_damaged_file_and_a_hub_out_of_reach_are_one_line_errors(tmp_path, monkeypatch):
    (tmp_path / "t.json").write_text("{}")
    with pytest.raises(UserError, match=r"t.json is not a tokenizer"):
        tokenizer.make(str(tmp_path / "t.json"))
    hub = pytest.importorskip("huggingface_hub")

    def unreachable(*_, **__):
        raise ConnectionError

    monkeypatch.setattr(hub, "hf_hub_download", unreachable)
    monkeypatch.setattr(hub, "get_hf_file_metadata", unreachable)
    with pytest.raises(UserError, match=r"its download failed .ConnectionError"):
        tokenizer.make("someone/model", download=True)


@pytest.mark.parametrize("name", ["bte", "nobody/has-this-model", "no such name"])
def test_nothing_is_asked_of_the_hub_without_download(no_network, name):
    pytest.importorskip("huggingface_hub")
    with pytest.raises(
        UserError, match=r"is no local file or folder, and not in the hub's"
    ) as error:
        tokenizer.make(name)
    assert no_network == []
    assert "A tokenizer is bytes, bpe:SIZE" in str(error.value) and "--download" in str(error.value)
    assert ("Did you mean 'bytes'?" in str(error.value)) == (name == "bte")


def test_without_a_network_the_hub_is_asked_once(no_network):
    pytest.importorskip("huggingface_hub")
    with pytest.raises(UserError, match=r"its download failed .ConnectError.*give its path"):
        tokenizer.make("nobody/has-this-model", download=True)
    assert 1 <= len(no_network) <= 2  # the hub's package may ask for a list of its own first
    assert {*no_network} == {"huggingface.co"}


def test_what_the_cache_of_the_hub_has_needs_no_network(no_network, tmp_path, monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    kept = tmp_path / "kept.json"
    kept.write_text(TRAINED.as_json())

    def cached(name, file):
        assert (name, file) == ("someone/model", "tokenizer.json")
        return str(kept)

    monkeypatch.setattr(hub, "try_to_load_from_cache", cached)
    for download in (False, True):
        assert tokenizer.make("someone/model", download=download).as_json() == TRAINED.as_json()
    assert no_network == []


@pytest.mark.parametrize("token", [10**7, 2**31])
def test_a_tokenizer_with_a_huge_id_is_refused_before_a_table_is_made(token):
    pieces = pytest.importorskip("tokenizers")
    model = pieces.Tokenizer(pieces.models.WordLevel({"a": 0, "</s>": 1, "z": 7}, unk_token="a"))
    written = model.to_str().replace('"z":7', f'"z":{token}')  # `to_str` would count up to it
    with pytest.raises(UserError, match=f"has the token {token:,}; expected ids below 10,000,000"):
        tokenizer.from_json(written, "here")


def test_a_folder_with_a_tokenizer_is_one(tmp_path):
    with pytest.raises(UserError, match=r"the folder .* has no tokenizer.json"):
        tokenizer.make(str(tmp_path))
    (tmp_path / "tokenizer.json").write_text(TRAINED.as_json())
    assert tokenizer.make(str(tmp_path)).as_json() == TRAINED.as_json()


def test_a_piece_of_another_kind_of_tokenizer_has_the_bytes_of_its_text():
    """Only in byte-level BPE does a character such as é stand for one byte."""
    parts = pytest.importorskip("tokenizers")
    vocab = {"<unk>": 0, "</s>": 1, "\u2581": 2, "é": 3, "\u2581é": 4, "<0xC3>": 5}
    model = parts.Tokenizer(parts.models.BPE(vocab, [("\u2581", "é")], unk_token="<unk>"))
    model.pre_tokenizer = parts.pre_tokenizers.Metaspace()
    model.add_special_tokens(["<unk>", "</s>"])
    assert tokenizer.HuggingFace(model).n_bytes().tolist() == [0, 0, 1, 2, 3, 1]
