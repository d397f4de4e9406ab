"""Exported folders have Llama's names and shapes and the logits of transformers."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxformer.core.errors import UserError
from jaxformer.data.tokenizer import Bytes, train_bpe
from jaxformer.models import export as exporting
from jaxformer.models.decoder import decoder
from tests.models.llama import CASES, POSITIONS, SIZES, TOKENS, made

REFERENCE = Path(__file__).parents[1] / "reference" / "llama_logits.json"
safetensors = pytest.importorskip("safetensors.numpy")


@pytest.mark.parametrize("case", CASES)
def test_logits_are_those_of_transformers(case):
    reference = json.loads(REFERENCE.read_text())[case]
    model, params = made(case)
    logits = jax.jit(model.apply)({"params": params}, np.array(TOKENS))
    logits = np.asarray(logits)[:, POSITIONS, ::16]
    np.testing.assert_allclose(logits, reference["logits"], atol=1e-4)
    assert np.std(reference["logits"]) > 1
    assert reference["tokens"] == Bytes().encode(["To be, naïve"])[0].tolist()


def test_the_branch_factor_is_in_the_last_matrix_of_each_branch():
    """Two layers of four base layers have the factor .5 (4/2)^1 = 1, of three .5 (3/2)."""
    params = made("plain")[1]
    for base, factor in ((4, 1.0), (3, 0.75)):
        model = decoder(**SIZES, depth_alpha=1.0, base_layers=base, branch_scale=0.5)
        llama = exporting.as_llama(model, params)[1]
        for branch in ("attn", "mlp"):
            out = params["block_1"][branch]["out"]["kernel"]
            np.testing.assert_array_equal(llama["block_1"][branch]["out"]["kernel"], factor * out)


@pytest.mark.parametrize("case", CASES)
def test_the_llama_is_the_same_function_as_the_decoder(case):
    model, params = made(case)
    llama, llama_params, _ = exporting.as_llama(model, params)
    logits = jax.jit(model.apply)({"params": params}, np.array(TOKENS))
    converted = llama.apply({"params": llama_params}, np.array(TOKENS))
    np.testing.assert_allclose(converted, logits, atol=1e-4)


@pytest.mark.parametrize("case", CASES)
def test_a_folder_has_the_weights_under_llamas_names(case, tmp_path):
    model, params = made(case)
    folder = exporting.export(model, params, tmp_path / "out", Bytes())
    assert {f.name for f in folder.iterdir()} == {
        *("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
    }
    weights = safetensors.load_file(folder / "model.safetensors")
    assert sum(x.size for x in weights.values()) == sum(x.size for x in jax.tree.leaves(params))
    assert all(x.dtype == np.float32 for x in weights.values())
    up = params["block_1"]["mlp"]["in"]["kernel"]
    np.testing.assert_array_equal(weights["model.layers.1.mlp.up_proj.weight"], up.T)
    out, factor = params["block_0"]["attn"]["out"]["kernel"], model.spec.branch_scale
    np.testing.assert_array_equal(weights["model.layers.0.self_attn.o_proj.weight"], factor * out.T)
    config = json.loads((folder / "config.json").read_text())
    assert config["attention_bias"] == config["mlp_bias"] == (case == "authors")
    assert ("model.layers.0.mlp.gate_proj.bias" in weights) == (case == "authors")
    assert [*tmp_path.iterdir()] == [folder]


@pytest.mark.parametrize(
    "fields, message",
    [
        (dict(mixer="mixit"), "is not a Llama: it mixes tokens by fixed matrices"),
        (dict(causal=False), "is not a Llama: it attends to later tokens"),
        (dict(residual_scale=0.5), "is not a Llama: it scales its residual stream"),
        (dict(base_width=16.0), "is not a Llama: it scales its linear maps"),
        (dict(base_mlp_width=4.0), "is not a Llama: it scales its linear maps"),
        (dict(act="relu", use_norm=False), "has no norms, and has another activation"),
    ],
)
def test_a_model_that_is_not_a_llama_raises_a_one_line_error(fields, message, tmp_path):
    with pytest.raises(UserError, match=message):
        exporting.export(decoder(**SIZES, **fields), {}, tmp_path / "out")


def test_existing_folders_and_other_tokenizers_are_refused(tmp_path):
    model, params = made("plain")
    with pytest.raises(UserError, match="exists already"):
        exporting.export(model, params, tmp_path)
    with pytest.raises(UserError, match="the tokenizer has 258 tokens and the model 257"):
        exporting.export(model, params, tmp_path / "out", train_bpe(258, ["a b a b a b"]))


def test_other_files_of_the_partial_folder_are_refused_and_leftovers_removed(tmp_path):
    model, params = made("plain")
    partial = tmp_path / "llama.partial"
    (partial / "notes").mkdir(parents=True)
    with pytest.raises(UserError, match=r"llama.partial contains 'notes', which this"):
        exporting.export(model, params, tmp_path / "llama")
    assert [f.name for f in partial.iterdir()] == ["notes"]
    (partial / "notes").rmdir()
    leftovers = ".model.safetensors.0123abcd", "model-00001-of-00002.safetensors"
    for name in ("config.json", *leftovers):
        (partial / name).write_text("half")
    folder = exporting.export(model, params, tmp_path / "llama")
    assert {f.name for f in folder.iterdir()} == {"config.json", "model.safetensors"}
    assert [*tmp_path.iterdir()] == [folder]
