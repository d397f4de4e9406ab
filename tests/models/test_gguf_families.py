"""GGUF files of further families: weights as llama.cpp stores them have the logits of transformers.

The files are made of the tiny models whose logits tests/reference/families.npz has, with the keys
and the changes of llama.cpp's converter.
"""

import gguf
import jax.numpy as jnp
import numpy as np
import pytest

import jaxformer
from jaxformer.core import paths
from jaxformer.core.errors import UserError
from jaxformer.models.pretrained import tensor_layouts, tiny
from tests.models.families import TOKENS, VOCAB
from tests.models.test_families import TOLERANCE, error_of
from tests.models.tiny_configs import CONFIGS

RMS, LAYER = "attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"


def keys_of(kind, config):
    """{key after the architecture's name: value}, as llama.cpp's converter writes them."""
    heads = config["num_attention_heads"]
    common = {
        "context_length": config.get("max_position_embeddings", 2048),
        "embedding_length": config["hidden_size"],
        "block_count": config["num_hidden_layers"],
        "feed_forward_length": config.get("intermediate_size", 4 * config["hidden_size"]),
        "attention.head_count": heads,
        "attention.head_count_kv": config.get("num_key_value_heads", heads),
    }
    base = {"rope.freq_base": float(config.get("rope_theta", 10_000.0))}
    head_width = config["hidden_size"] // heads
    own = {
        "falcon": {
            LAYER: config.get("layer_norm_epsilon"),
            "attention.head_count_kv": config.get("num_kv_heads", 1),
        },
        "gemma": {RMS: config.get("rms_norm_eps"), "attention.key_length": config.get("head_dim")},
        "olmo2": {RMS: config.get("rms_norm_eps"), **base},
        "phi3": {
            **{RMS: config.get("rms_norm_eps"), "rope.dimension_count": head_width, **base},
            "attention.sliding_window": config.get("sliding_window"),
        },
        "stablelm": {
            LAYER: config.get("layer_norm_eps"),
            "rope.dimension_count": int(config.get("partial_rotary_factor", 0.25) * head_width),
            "use_parallel_residual": bool(config.get("use_parallel_residual")),
        },
        "starcoder2": {LAYER: config.get("norm_epsilon"), **base},
    }
    return common | own[kind]


def as_converted(tensor, name, kind, config):
    """A tensor after the changes of llama.cpp's converter."""
    if kind == "gemma" and name.endswith("norm.weight"):
        return tensor + 1
    if kind == "falcon" and ".attn_qkv." in name:
        heads, kv = config["num_attention_heads"], config.get("num_kv_heads", 1)
        qkv = tensor.reshape(kv, heads // kv + 2, -1, tensor.shape[-1])
        parts = (qkv[:, :-2], qkv[:, -2:-1], qkv[:, -1:])
        return np.concatenate([part.reshape(-1, tensor.shape[-1]) for part in parts])
    return tensor


def write(file, name, without=()):
    """Writes the tiny model of a family in float32; returns its parameters."""
    kind = name.split("_")[0]
    model, params, config = tiny.tiny(CONFIGS[name], VOCAB)
    writer = gguf.GGUFWriter(file, kind)
    for key, value in keys_of(kind, config).items():
        add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32}
        if key not in without:
            add[type(value)](f"{kind}.{key}", value)
    flat = paths.flatten(params)
    number = {name: number for number, name in gguf.MODEL_ARCH_NAMES.items()}[kind]
    table = gguf.get_tensor_name_map(number, model.spec.layers)
    for entry in tensor_layouts.tensor_entries(model.spec, list(flat)):
        tensor = tensor_layouts.to_tensor([flat[p] for p in entry.parameters], entry, model.spec)
        name = table.get_name(entry.name, (".weight", ".bias"))
        tensor = as_converted(np.asarray(tensor), name, kind, config)
        writer.add_tensor(name, np.ascontiguousarray(tensor, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return flat


@pytest.mark.parametrize(
    "kind", ["falcon", "falcon_new", "gemma", "olmo2", "phi3", "stablelm", "starcoder2"]
)
def test_logits_are_those_of_transformers(kind, tmp_path):
    written = write(tmp_path / "model.gguf", kind)
    model, params, config = jaxformer.load(tmp_path / "model.gguf")
    assert config["model_type"] == kind.split("_")[0]
    for path, leaf in paths.flatten(params).items():
        np.testing.assert_allclose(leaf, written[path], atol=1e-6, err_msg=path)
    logits = model.apply({"params": params}, jnp.asarray(TOKENS))
    assert error_of(logits, kind, "logits") < TOLERANCE


@pytest.mark.parametrize(
    "kind, key", [("starcoder2", LAYER), ("olmo2", RMS), ("stablelm", "use_parallel_residual")]
)
def test_a_missing_key_is_a_one_line_error(kind, key, tmp_path):
    write(tmp_path / "model.gguf", kind, without=(key,))
    with pytest.raises(UserError, match=f"lacks the key {kind}.{key}"):
        jaxformer.load(tmp_path / "model.gguf")
