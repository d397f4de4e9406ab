"""An exported folder is what Llama reads: names, shapes, and the logits of transformers."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest

from jaxformer.core.errors import UserError
from jaxformer.data.tokenizer import Bytes, train_bpe
from jaxformer.models import export as exporting
from jaxformer.models.decoder import decoder
from tests.models.llama import CASES, SHOWN, SIZES, TOKENS, made

REFERENCE = Path(__file__).parents[1] / "reference" / "llama_logits.json"
safetensors = pytest.importorskip("safetensors.numpy")


@pytest.mark.parametrize("case", CASES)
def test_logits_are_those_of_transformers(case):
    held = json.loads(REFERENCE.read_text())[case]
    model, params = made(case)
    logits = jax.jit(model.apply)({"params": params}, np.array(TOKENS))
    found = np.asarray(logits)[:, SHOWN, ::16]
    np.testing.assert_allclose(found, held["logits"], atol=1e-4)
    assert np.std(held["logits"]) > 1
    assert held["tokens"] == Bytes().encode(["To be, naïve"])[0].tolist()


def test_branches_that_shrink_with_depth_are_in_the_last_matrix_of_each(tmp_path):
    """Two of four base layers: the factor is .5 (4/2)^1 = 1, and that of three .5 (3/2)."""
    params = made("plain")[1]
    for base, factor in ((4, 1.0), (3, 0.75)):
        model = decoder(**SIZES, depth_alpha=1.0, base_layers=base, branch_scale=0.5)
        held = exporting.llama_weights(model, params)
        for room, name in (("attn", "self_attn.o_proj"), ("mlp", "mlp.down_proj")):
            out = params["block_1"][room]["out"]["kernel"].T
            np.testing.assert_array_equal(held[f"model.layers.1.{name}.weight"], factor * out)


@pytest.mark.parametrize("case", CASES)
def test_a_folder_holds_the_weights_by_llamas_names(case, tmp_path):
    model, params = made(case)
    folder = exporting.export(model, params, tmp_path / "out", Bytes())
    assert {f.name for f in folder.iterdir()} == {
        *("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
    }
    held = safetensors.load_file(folder / "model.safetensors")
    assert sum(x.size for x in held.values()) == sum(x.size for x in jax.tree.leaves(params))
    assert all(x.dtype == np.float32 for x in held.values())
    up = params["block_1"]["mlp"]["in"]["kernel"]
    np.testing.assert_array_equal(held["model.layers.1.mlp.up_proj.weight"], up.T)
    out, factor = params["block_0"]["attn"]["out"]["kernel"], model.spec.branch_scale
    np.testing.assert_array_equal(held["model.layers.0.self_attn.o_proj.weight"], factor * out.T)
    config = json.loads((folder / "config.json").read_text())
    assert config["attention_bias"] == config["mlp_bias"] == (case == "authors")
    assert ("model.layers.0.mlp.gate_proj.bias" in held) == (case == "authors")
    assert [*tmp_path.iterdir()] == [folder]


@pytest.mark.parametrize(
    "fields, words",
    [
        (dict(mixer="mixit"), "is no Llama: it mixes tokens by fixed matrices"),
        (dict(causal=False), "is no Llama: it sees tokens on both sides"),
        (dict(residual_scale=0.5), "is no Llama: it scales its residual stream"),
        (dict(base_width=16.0), "is no Llama: it scales its linear maps"),
        (dict(base_mlp_width=4.0), "is no Llama: it scales its linear maps"),
        (dict(act="relu", use_norm=False), "has no norms, and has another activation"),
    ],
)
def test_what_is_no_llama_is_one_line(fields, words, tmp_path):
    with pytest.raises(UserError, match=words):
        exporting.export(decoder(**SIZES, **fields), {}, tmp_path / "out")


def test_a_folder_that_is_there_and_a_foreign_tokenizer_are_refused(tmp_path):
    model, params = made("plain")
    with pytest.raises(UserError, match="is there already"):
        exporting.export(model, params, tmp_path)
    with pytest.raises(UserError, match="the tokenizer has 258 tokens and the model 257"):
        exporting.export(model, params, tmp_path / "out", train_bpe(258, ["a b a b a b"]))
