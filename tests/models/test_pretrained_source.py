"""Input from outside: config.json of published models, and errors of the hub."""

import json

import numpy as np
import pytest
import safetensors.numpy

import jaxformer
from jaxformer.core.errors import UserError
from jaxformer.models.pretrained import describe, save_folder, tiny
from jaxformer.models.pretrained.text import Text
from tests.models.tiny_configs import CONFIGS

TEXTS = ("Madrid is located in Spain",)
BAD = (None, True, -1, 0, 2.5, 1e30, 10**30, float("nan"), "x", "9", [], [1], {}, {"a": 1})


@pytest.mark.parametrize("kind", CONFIGS)
def test_wrong_values_of_any_field_raise_one_line_errors(kind):
    """Whatever a config.json contains, the loader returns a model or a one-line error."""
    config = CONFIGS[kind] | {"vocab_size": 24}
    scaling = config.get("rope_scaling") or {}
    cases = [{name: bad} for name in (*config, "rope_scaling") for bad in BAD]
    for name in (*scaling, "rope_type", "factor", "rope_theta"):
        cases += [{"rope_scaling": scaling | {name: bad}} for bad in BAD]
    refusals = 0
    for case in cases:
        try:
            spec = describe(config | case)
        except UserError as error:
            assert "\n" not in str(error) and "config.json" in str(error), case
            refusals += 1
            continue
        sizes = (spec.vocab_size, spec.length, spec.width, spec.layers, spec.heads, spec.kv_heads)
        for size in (*sizes, spec.head_width, spec.mlp_width):
            assert type(size) is int and 0 < size < 10**8, case
    assert len(cases) / 4 < refusals < len(cases)


@pytest.mark.parametrize(
    "kind, message",
    [
        ("GatedRepoError", "org/name is gated: request access on huggingface.co and set HF_TOKEN"),
        ("RepositoryNotFoundError", "'org/name' is neither a folder nor a model on the hub"),
        ("RevisionNotFoundError", "org/name has no revision 'step1' on the hub"),
        ("", "org/name at revision 'step1' has no safetensors on the hub, and pickles are refused"),
    ],
)
def test_errors_of_the_hub_raise_one_line_errors(monkeypatch, tmp_path, kind, message):
    from huggingface_hub import errors

    def answer(*_, **__):
        if kind:  # not called: they ask for the answer of a server
            raise getattr(errors, kind).__new__(getattr(errors, kind))
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", answer)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message) as error:
        jaxformer.load("org/name", revision="step1")
    assert "\n" not in str(error.value)


def test_a_name_on_the_hub_loads_its_folder(monkeypatch, tmp_path):
    """The name also gives the tokenizer, and the files that are saved with a cut model."""
    model, params, config = jaxformer.load(tiny.save("gpt2", tmp_path / "shelf/org/name", TEXTS))
    monkeypatch.setenv("JAXFORMER_MODELS", str(tmp_path / "shelf"))
    text_tokenizer = Text("org/name", model.spec.vocab_size)
    assert text_tokenizer.pieces(" Spain") == Text(tmp_path / "shelf/org/name", 400).pieces(
        " Spain"
    )
    save_folder(tmp_path / "cut", model, params, config, source="org/name")
    assert (tmp_path / "cut/tokenizer.json").is_file()
    with pytest.raises(UserError, match="cannot be written in UTF-8"):
        text_tokenizer.encode("half of a pair: \ud83d")


def test_pieces_are_the_tokens_inside_a_text(tmp_path):
    """The tokenizer puts a space before each text, as those of Llama 2 and Phi-3 do."""
    from tokenizers import Tokenizer, models, normalizers

    merges = ["▁ ,", "S p", "Sp a", "Spa i", "Spai n", "▁ ▁", "▁ Spain"]
    pieces = ["▁", ",", *"Spain", *(merge.replace(" ", "") for merge in merges)]
    vocab = {piece: i for i, piece in enumerate(dict.fromkeys(pieces))}
    made = Tokenizer(models.BPE(vocab, [tuple(merge.split()) for merge in merges]))
    made.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    made.save(str(tmp_path / "tokenizer.json"))
    text_tokenizer = Text(tmp_path, len(vocab))
    assert text_tokenizer.encode(" Spain") == [vocab["▁▁"], vocab["Spain"]]
    assert text_tokenizer.pieces(" Spain") == [vocab["▁Spain"]]
    assert text_tokenizer.pieces("Spain") == [vocab["Spain"]]
    assert text_tokenizer.encode("Spain") == [vocab["▁Spain"]]


def test_odd_sources_are_one_line_errors(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    (tmp_path / "model/config.json").mkdir(parents=True)
    (tmp_path / "model/model.safetensors").touch()
    for source, message in (
        (tmp_path / "model", r"cannot read .*config\.json: Is a directory"),
        ("a" * 5000, "is neither a folder nor the name of a model"),
        (f"{'a' * 5000}/b", "there is no folder 'a"),
    ):
        with pytest.raises(UserError, match=message) as error:
            jaxformer.load(source)
        assert len(str(error.value)) < 400


def test_whole_numbers_of_any_size_are_numbers(tmp_path):
    """JAX refuses whole numbers above 2^31, which JSON may have for any number."""
    folder = tmp_path / "model"
    tiny.save("gpt2", folder, TEXTS, seed=0)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"layer_norm_epsilon": 10**12}))
    model, params, _ = jaxformer.load(folder)
    assert model.apply({"params": params}, np.zeros((1, 3), int)).shape == (
        1,
        3,
        model.spec.vocab_size,
    )


def test_names_of_tensors_cannot_write_to_the_terminal(tmp_path):
    tiny.save("gpt2", tmp_path / "model", TEXTS, seed=0)
    file = tmp_path / "model/model.safetensors"
    tensors = safetensors.numpy.load_file(file) | {"h.0\n\x1b[31mred": np.zeros(1, np.float32)}
    safetensors.numpy.save_file(tensors, file)
    with pytest.raises(UserError, match=r"does not have: h\.0 \?\[31mred\."):
        jaxformer.load(tmp_path / "model")


def test_a_revision_of_a_folder_is_refused(tmp_path):
    with pytest.raises(UserError, match="is no name on the hub: only these have revisions"):
        jaxformer.load(tmp_path, revision="step1")


def test_the_hub_without_a_network(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)
    for name, message in (
        ("runs/nope", "^there is no folder 'runs/nope', and the hub cannot be reached \\(\\w+\\)"),
        ("a b", "'a b' is neither a folder nor the name of a model"),
    ):
        with pytest.raises(UserError, match=message) as error:
            jaxformer.load(name)
        assert "\n" not in str(error.value) and len(str(error.value)) < 120  # no text of the hub
