"""GGUF files: weights, logits and tokens equal those of transformers; bad files are errors."""

import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import jaxformer
from jaxformer.core.errors import UserError
from jaxformer.models.pretrained import gguf_tokenizer, load_folder, save_folder
from jaxformer.models.pretrained.gguf_file import GGUFFile
from jaxformer.models.pretrained.gguf_model import ARCHITECTURES
from jaxformer.models.pretrained.text import Text
from tests.models import tiny_gguf

THEIRS = np.load(Path(__file__).parents[1] / "reference/gguf.npz")


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    file = tmp_path_factory.mktemp("gguf") / "model.gguf"
    tiny_gguf.write(file, "llama")
    return file


@pytest.mark.parametrize("architecture", tiny_gguf.NORMS)
def test_logits_and_tokens_equal_those_of_transformers(architecture, tmp_path):
    file = tmp_path / "model.gguf"
    tiny_gguf.write(file, architecture)
    model, params, config = jaxformer.load(file)
    theirs = THEIRS[f"{architecture}/logits"]
    logits = jax.jit(model.apply)({"params": params}, THEIRS[f"{architecture}/tokens"])
    np.testing.assert_allclose(logits, theirs, rtol=0, atol=1e-5 * theirs.std())
    attn = params["block_1"]["attn"]
    for name in ("query", "key", "value"):
        np.testing.assert_array_equal(
            attn[name]["kernel"].T, THEIRS[f"{architecture}/{name[0]}_proj"]
        )
    text = Text(file, model.spec.vocab_size)
    if architecture != "llama":  # transformers does not know the rule of SmolLM2
        assert text.encode(str(THEIRS["text"])) == THEIRS[f"{architecture}/text"].tolist()
    assert config["model_type"] == ARCHITECTURES[architecture][0]
    saved = save_folder(tmp_path / "saved", model, params, config, source=file)
    again = load_folder(saved)[1]
    jax.tree.map(np.testing.assert_array_equal, params, again)
    assert Text(saved, model.spec.vocab_size).encode("the in") == text.encode("the in")


def test_a_byte_level_tokenizer_splits_digits_and_spaces(llama):
    """Digits are single tokens, leading spaces one token, as in the tokenizer.json of SmolLM2."""
    text = Text(llama, 300)
    pieces = [text.show(token) for token in text.encode("the  12<|end|>")]
    assert pieces == ["'the'", "'  '", "'1'", "'2'", "'<|end|>'"]
    assert text.decode(text.encode("in thé<|end|>on")) == "in thé"
    assert text.encode_chat([{"role": "user", "content": "on"}]) == text.encode("[on]<|end|>")


def test_llama_3_takes_whole_words_and_adds_a_start_token_unless_the_file_says_no():
    """Files of llama.cpp leave both out, because its rule "llama-bpe" implies them."""
    tokens = ["<s>", "a", "b", "c", "ab", "abc"]  # no merge makes abc
    fields = {"model": "gpt2", "tokens": tokens, "token_type": [3, 1, 1, 1, 1, 1]}
    fields |= {"merges": ["a b"], "bos_token_id": 0}

    def encode(text, **more):
        metadata = {f"tokenizer.ggml.{name}": value for name, value in {**fields, **more}.items()}
        return gguf_tokenizer.build(metadata, "here").encode(text).ids

    assert encode("abc", pre="llama-bpe") == [0, 5]
    assert encode("abcc", pre="llama-bpe") == [0, 4, 3, 3]
    assert encode("abc", pre="llama-bpe", add_bos_token=False) == [5]
    assert encode("abc", pre="default") == [4, 3]


def refused(file, message):
    with pytest.raises(UserError, match=message) as error:
        jaxformer.load(file)
    assert "\n" not in str(error.value)


def test_bad_files_raise_one_line_errors(llama, tmp_path):
    content, bad = llama.read_bytes(), tmp_path / "bad.gguf"

    def check(changed, message):
        bad.write_bytes(changed)
        refused(bad, message)

    for size in (0, 3, 20, 200, len(content) // 2, len(content) - 33):
        check(content[:size], "cannot be read|is not a complete GGUF file")
    check(b"\0" * 100, "its first bytes are not GGUF")
    check(content[:4] + b"\x09" + content[5:], "its version is 9, expected 2 or 3")
    check(content[:8] + b"\xff" * 8 + content[16:], "its header has .* entries and no room")
    check(content.replace(b"llama", b"lambs"), "unknown architecture in .*lambs.*choices are")
    tensor = GGUFFile(llama).tensors["blk.0.attn_q.weight"]
    name = content.index(b"blk.0.attn_q.weight") + len(b"blk.0.attn_q.weight")
    kind = name + 4 + 2 * 8
    check(
        content[:kind] + b"\xc8\0\0\0" + content[kind + 4 :],
        "blk.0.attn_q.weight has the quantisation 200, which the package gguf .* use a newer one",
    )
    offset = kind + 4
    check(content[:offset] + b"\xff" * 7 + b"\0" + content[offset + 8 :], "it is truncated")
    check(content[:offset] + bytes(8) + content[offset + 8 :], "overlap")
    check(content.replace(b"blk.1.ffn_up", b"blk.1.ffn_no"), "lacks blk.1.ffn_up.weight")
    assert tensor.shape == (32, 32)


def test_a_missing_package_is_not_called_an_incomplete_file(llama, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(UserError, match=r"^GGUF files need the package gguf: pip install"):
        GGUFFile(llama)


@pytest.mark.parametrize(
    "architecture, key",
    [
        ("llama", "attention.layer_norm_rms_epsilon"),
        ("qwen2", "rope.freq_base"),
        ("gemma2", "final_logit_softcapping"),
        ("gemma3", "attention.sliding_window"),
    ],
)
def test_a_key_whose_default_is_another_network_is_required(architecture, key, tmp_path):
    """One flipped bit in the name of a key gave a model with the epsilon 1e-6, without a word."""
    file = tmp_path / "model.gguf"
    tiny_gguf.write(file, architecture)
    name = f"{architecture}.{key}".encode()
    content = file.read_bytes()
    assert content.count(name) == 1
    file.write_bytes(content.replace(name, name[:-1] + bytes([name[-1] ^ 1])))
    with pytest.raises(UserError, match=f"lacks the key {architecture}.{key}, and a default"):
        jaxformer.load(file)


def test_the_first_llamas_have_no_base_of_rotations(llama, tmp_path):
    """Their files lack the key, and the format says 10,000."""
    content = llama.read_bytes()
    (tmp_path / "old.gguf").write_bytes(content.replace(b"rope.freq_base", b"rope.freq_basf"))
    model, _, _ = jaxformer.load(tmp_path / "old.gguf")
    assert model.spec.rotary.base == 10_000 and jaxformer.load(llama)[0].spec.rotary.base == 5000


@pytest.mark.parametrize(
    "architecture, metadata",
    [
        ("llama", {"expert_count": 8}),
        ("llama", {"attention__causal": False}),
        ("qwen2", {"attention__clamp_kqv": 8.0}),
        ("qwen3", {"attention__sliding_window": 3}),
        ("gemma3", {"rope__scaling__attn_factor": 1.5}),
    ],
)
def test_a_key_that_makes_another_network_is_refused(architecture, metadata, tmp_path):
    """OLMo 3 loaded as OLMo 2 without its windows: both are called olmo2."""
    file = tmp_path / "model.gguf"
    tiny_gguf.write(file, architecture, **metadata)
    ((name, value),) = metadata.items()
    refused(file, f"has {architecture}.{name.replace('__', '.')} = {value}, which is not supported")


@pytest.mark.parametrize(
    "metadata, kind, factor, pretraining_length",
    [
        (
            {
                "rope__scaling__type": "yarn",
                "rope__scaling__factor": 4.0,
                "rope__scaling__original_context_length": 16,
            },
            "yarn",
            4.0,
            16,
        ),
        ({"rope__scaling__factor": 2.0}, "linear", 2.0, 0),
        ({"rope__scale_linear": 2.0}, "linear", 2.0, 0),
        ({"rope__scaling__type": "none", "rope__scaling__factor": 2.0}, "plain", 1.0, 0),
    ],
)
def test_scaled_rotations_are_those_of_llama_cpp(
    metadata, kind, factor, pretraining_length, tmp_path
):
    """The length of pretraining, and a factor without a kind, were ignored."""
    file = tmp_path / "model.gguf"
    tiny_gguf.write(file, "qwen2", **metadata)
    rotary = jaxformer.load(file)[0].spec.rotary
    assert (rotary.kind, rotary.factor) == (kind, factor)
    assert rotary.pretraining_length == pretraining_length


def test_a_file_with_another_name_is_recognised_by_its_first_bytes(llama, tmp_path):
    other = tmp_path / "weights.bin"
    other.write_bytes(llama.read_bytes())
    assert jaxformer.load(other)[0].spec.layers == 2
    with pytest.raises(UserError, match="only these have revisions"):
        jaxformer.load(other, revision="main")
