"""Folders of safetensors: saving, loading, and a one-line error for each defect."""

import json
import re
import struct
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import jaxformer
from jaxformer.core import paths, sharding
from jaxformer.core.errors import UserError
from jaxformer.io.atomic_files import TEMPORARY_NAME
from jaxformer.models.pretrained import load_folder, save_folder, saving, tiny
from tests.models.tiny_configs import CONFIGS

KINDS = ["gpt2", *(pytest.param(kind, marks=pytest.mark.slow) for kind in CONFIGS if kind in
         ("gpt_neox", "llama", "phi3"))]  # fmt: skip


@pytest.fixture(scope="module", params=KINDS)
def made(request, tmp_path_factory):
    where = tmp_path_factory.mktemp("models") / request.param
    return tiny.save(CONFIGS[request.param], where, vocab=24)


@pytest.fixture
def copy(made, tmp_path):
    for file in made.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def test_a_saved_folder_is_loaded(made, tmp_path, monkeypatch):
    """Saves in one file or in many, and again after loading: every bit is equal."""
    model, params, config = jaxformer.load(made)
    before = tiny.tiny(CONFIGS[made.name], 24)[1]
    monkeypatch.setattr(saving, "SHARD_BYTES", 4000)
    save_folder(tmp_path, model, params, config, source=made)
    assert len(list(tmp_path.glob("model-*"))) > 2
    assert len({file.stat().st_mode for file in tmp_path.iterdir()}) == 1  # all are for all to read
    again_model, again, _ = load_folder(tmp_path)
    assert again_model.spec == model.spec
    for path, leaf in paths.flatten(before).items():
        np.testing.assert_array_equal(paths.flatten(params)[path], leaf)
        np.testing.assert_array_equal(paths.flatten(again)[path], leaf)


def test_parameters_are_loaded_in_the_dtype_and_place_that_are_asked_for(made):
    device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    seen = []

    def place(path, shape):
        seen.append((path, shape))
        return device

    model, params, _ = load_folder(made, "bfloat16", place)
    flat = paths.flatten(params)
    assert dict(seen) == {path: leaf.shape for path, leaf in flat.items()}
    assert {leaf.dtype for leaf in flat.values()} == {jnp.dtype("bfloat16")}
    assert model.spec.dtype == jnp.dtype("bfloat16")
    tokens = jnp.arange(6)[None]
    exact = jaxformer.load(made)
    half = jax.jit(model.apply)({"params": params}, tokens).astype(float)
    full = jax.jit(exact[0].apply)({"params": exact[1]}, tokens)
    assert 1e-4 < np.abs(half - full).max() < 0.2 * full.std()  # rounded, but the same function


def test_devices_make_a_mesh_of_the_default_rules(made):
    _, params, _ = jaxformer.load(made, devices={"data": 1, "fsdp": 1})
    kernel = params["block_0"]["attn"]["query"]["kernel"]
    assert kernel.sharding.mesh.axis_names == sharding.AXES
    assert kernel.sharding.spec == jax.P("fsdp", "tensor")
    with pytest.raises(UserError, match="unknown axis of devices 'tensors'"):
        jaxformer.load(made, devices={"tensors": 2})
    with pytest.raises(UserError, match="give place or devices, not both"):
        jaxformer.load(made, devices={"data": 1}, place=jax.devices()[0])


def test_stored_is_the_dtype_of_the_files(made, tmp_path):
    model, params, config = load_folder(made, "bfloat16")
    save_folder(tmp_path, model, params, config)
    assert load_folder(tmp_path)[0].spec.param_dtype == jnp.dtype("float32")
    again = load_folder(tmp_path, "stored")
    assert again[0].spec.param_dtype == jnp.dtype("bfloat16")
    for a, b in zip(jax.tree.leaves(params), jax.tree.leaves(again[1]), strict=True):
        np.testing.assert_array_equal(a, b)


def test_files_without_the_prefix_and_with_old_constants(copy):
    """The hub's gpt2 and older Pythia checkpoints have this format."""
    tensors = load_file(copy / "model.safetensors")
    short = {name.removeprefix("transformer."): x for name, x in tensors.items()}
    save_file(short | {"h.0.attn.bias": np.ones((1, 2))}, copy / "model.safetensors")
    if "gpt2" in json.loads((copy / "config.json").read_text())["model_type"]:
        load_folder(copy)
        # The dtype that is stored is that of weights, not of a constant that comes first.
        half = {name: x.astype(jnp.bfloat16) for name, x in short.items()}
        half["h.0.attn.bias"] = np.ones((1, 2), np.uint8)
        save_file(half, copy / "model.safetensors")
        assert load_folder(copy, "stored")[0].spec.dtype == jnp.dtype("bfloat16")


def header(content, size=None):
    text = json.dumps(content).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text


def two_tensors(first, second):
    """Returns a file of two tensors of 4 floats with these byte offsets, and 32 bytes of data."""
    entries = {"a": first, "b": second}
    return header(
        {n: {"dtype": "F32", "shape": [4], "data_offsets": o} for n, o in entries.items()}
    ) + bytes(32)


HOSTILE = {
    "empty": b"",
    "overlapping offsets": two_tensors([0, 16], [8, 24]),
    "negative offsets": two_tensors([-16, 0], [0, 32]),
    "reversed offsets": two_tensors([16, 0], [16, 32]),
    "a gap": two_tensors([0, 16], [20, 36]),
    "a header longer than the file": header({}, 2**62),
    "offsets outside": header({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 99]}}),
    "no JSON": struct.pack("<Q", 4) + b"\xff\xff\xff\xff",
}


def test_damaged_files_raise_one_line_errors(copy):
    for content in HOSTILE.values():
        (copy / "model.safetensors").write_bytes(content)
        refused(copy, r"model.safetensors is not a complete safetensors file: ")


def test_a_file_without_tensors(copy):
    (copy / "model.safetensors").write_bytes(header({}))
    refused(copy, r"lacks .*(wte|embed).*, .* and \d+ more\.")


def test_truncated_files_raise_one_line_errors(copy):
    whole = (copy / "model.safetensors").read_bytes()
    (copy / "model.safetensors").write_bytes(whole[:-8])
    refused(copy, r"model.safetensors is not a complete safetensors file: ")


def refused(where, message):
    with pytest.raises(UserError, match=message) as error:
        jaxformer.load(where)
    assert "\n" not in str(error.value)


def changed(where, **fields):
    config = json.loads((where / "config.json").read_text())
    (where / "config.json").write_text(json.dumps(config | fields))


def test_missing_extra_and_wrong_tensors(copy):
    tensors = load_file(copy / "model.safetensors")
    first = sorted(tensors)[0]
    save_file({k: v for k, v in tensors.items() if k != first}, copy / "model.safetensors")
    refused(copy, rf"lacks {first}\.$")
    save_file(tensors | {"strange.weight": np.ones(2)}, copy / "model.safetensors")
    refused(copy, r"does not have: strange.weight\.")
    fused = next(
        name for name in tensors if re.search("qkv|c_attn.w|q_proj|query_key_value.w", name)
    )
    save_file(tensors | {fused: np.ones((3, 5), np.float32)}, copy / "model.safetensors")
    refused(copy, rf"{fused} has the shape \(3, 5\); config.json requires \(\d+, \d+\)")
    (copy / "model.safetensors").unlink()
    refused(copy, "neither model.safetensors nor|has no config.json|no whole")


def test_an_integer_tensor_is_refused(copy):
    tensors = load_file(copy / "model.safetensors")
    first = sorted(tensors)[0]
    tensors[first] = tensors[first].astype(np.int32)
    save_file(tensors, copy / "model.safetensors")
    refused(copy, f"{first} is int32; expected one of float16")


@pytest.mark.parametrize("dtype", ["banana", "int32", "float8_e4m3fn", "S5"])
def test_an_unsupported_dtype_raises_a_one_line_error(copy, dtype):
    with pytest.raises(UserError, match="dtype must be one of float16, bfloat16"):
        load_folder(copy, dtype)
    with pytest.raises(UserError, match="float64 needs JAX_ENABLE_X64"):
        load_folder(copy, "float64")


def test_pickles_are_refused(copy):
    (copy / "model.safetensors").rename(copy / "pytorch_model.bin")
    refused(copy, "pytorch_model.bin is a pickle, which can run any code")


def test_an_index_lists_files_of_its_folder(copy):
    index = copy / "model.safetensors.index.json"
    for name, message in {
        "../model.safetensors": "not a file of this folder",
        "other.safetensors": "lacks other.safetensors",
        "model.safetensors": "lacks strange.weight",
    }.items():
        index.write_text(json.dumps({"weight_map": {"strange.weight": name}}))
        refused(copy, message)
    tensors = load_file(copy / "model.safetensors")
    save_file(tensors | {"strange.weight": np.ones(2)}, copy / "model.safetensors")
    named = dict.fromkeys(tensors, "model.safetensors")  # and what it does not name is there too
    index.write_text(json.dumps({"weight_map": named}))
    refused(copy, r"does not have: strange.weight\.")
    index.write_text("[1]")
    refused(copy, "must contain an object, got list")


def test_a_config_that_is_not_an_object_raises_a_one_line_error(copy):
    changed(copy, vocab_size="many")
    refused(copy, "config.json: vocab_size must be a whole number, got 'many'")
    changed(copy, vocab_size=24, model_type="gpt3")
    refused(copy, "config.json: model_type 'gpt3' is not supported. Supported are: bert, falcon, ")


@pytest.mark.parametrize(
    "kind, fields, message",
    [
        ("gpt2", {"activation_function": "gelo"}, "Did you mean 'gelu'"),
        ("gpt2", {"add_cross_attention": True}, "must be False, got True"),
        ("gpt2", {"n_head": 3}, "3 heads do not divide the width 16"),
        ("llama", {"rope_scaling": {"rope_type": "spiral"}}, "rotary scaling 'spiral'"),
        ("llama", {"quantization_config": {"bits": 4}}, "quantised weights are not supported"),
        ("llama", {"num_key_value_heads": 3}, "multiple of the key heads"),
        ("phi3_long", {"rope_scaling": {"type": "longrope", "short_factor": [1.0],
                       "long_factor": [1.0]}}, "longrope needs 2 short"),
    ],
)  # fmt: skip
def test_an_unsupported_field_raises_a_one_line_error(tmp_path, kind, fields, message):
    changed(tiny.save(CONFIGS[kind], tmp_path, vocab=24), **fields)
    refused(tmp_path, message)


def test_a_missing_field_raises_a_one_line_error(tmp_path):
    tiny.save("gpt2", tmp_path, vocab=24)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["n_layer"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    refused(tmp_path, "config.json: a gpt2 model lacks the field 'n_layer'")
    with pytest.raises(UserError, match="published model: it takes no member"):
        jaxformer.load(tmp_path, 1)


def test_too_many_tokens_for_learned_positions(tmp_path):
    model, params, _ = tiny.tiny("gpt2", 24)
    with pytest.raises(UserError, match="has 64 positions, got 65 tokens"):
        model.apply({"params": params}, jnp.zeros((1, 65), int))


def test_a_killed_save_leaves_a_file_that_is_known_as_temporary(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr(saving.os, "replace", lambda file, _: written.append(file.name))
    save_folder(tmp_path, *tiny.tiny("gpt2", 24))
    assert TEMPORARY_NAME.fullmatch(written[0])[1] == "model.safetensors"


def test_saving_without_safetensors_is_a_one_line_error_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(UserError, match=r"needs the package safetensors: pip install 'jaxformer"):
        save_folder(tmp_path / "new", *tiny.tiny("gpt2", 24))
    assert not (tmp_path / "new").exists()


def test_saving_is_atomic_and_replaces_a_model(tmp_path, monkeypatch):
    model, params, config = tiny.tiny("gpt2", 24)
    monkeypatch.setattr(saving, "SHARD_BYTES", 4000)
    save_folder(tmp_path, model, params, config)
    monkeypatch.undo()
    other = tiny.tiny("gpt2", 24, seed=1)[1]
    save_folder(tmp_path, model, other, config)  # the index of the first would win
    assert [file.name for file in tmp_path.glob("*model*")] == ["model.safetensors"]
    table = load_folder(tmp_path)[1]["embed"]["embedding"]
    np.testing.assert_array_equal(table, other["embed"]["embedding"])
    monkeypatch.setattr(saving, "SHARD_BYTES", 4000)
    save_folder(tmp_path, model, params, config)
    assert not (tmp_path / "model.safetensors").exists()
    table = load_folder(tmp_path)[1]["embed"]["embedding"]
    np.testing.assert_array_equal(table, params["embed"]["embedding"])
    for wrong, message in (
        (
            {k: v for k, v in params.items() if k != "block_1"},
            "lack block_1/attn/key/bias, .* more",
        ),
        (params | {"odd": {"kernel": np.ones(2)}}, "a gpt2 model does not have odd/kernel"),
        (
            params | {"embed": {"embedding": np.ones((3, 16))}},
            r"must have the shape \(24, 16\), got \(3, 16",
        ),
    ):
        with pytest.raises(UserError, match=message):
            save_folder(tmp_path / "new", model, wrong, config)
    assert not (tmp_path / "new").exists()
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/main.tex").write_text("years of work")
    with pytest.raises(UserError, match="thesis has other files"):
        save_folder(tmp_path / "thesis", model, params, config)
