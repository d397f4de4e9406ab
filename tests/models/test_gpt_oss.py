"""gpt-oss: sinks, experts in one tensor, and weights in MXFP4 (its logits: test_experts.py)."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import jaxformer
from jaxformer import adapters, capture
from jaxformer.core import paths
from jaxformer.core.errors import UserError
from jaxformer.core.partition import Partition
from jaxformer.models.attention import attention_weights
from jaxformer.models.pretrained import load_folder, mxfp4, save_adapter, save_folder, tiny
from tests.models.families import TOKENS, VOCAB
from tests.models.tiny_configs import CONFIGS

EXPERTS = "model.layers.0.mlp.experts"
# Blocks of 32 numbers divide these widths.
CONFIG = CONFIGS["gpt_oss"] | {
    "num_hidden_layers": 1,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_local_experts": 2,
    "num_experts_per_tok": 1,
    "vocab_size": VOCAB,
}


@pytest.fixture(scope="module")
def small():
    return tiny.tiny(CONFIG, VOCAB)


def test_a_sink_takes_a_share_of_the_softmax():
    """A sink equal to log(sum_s exp(score_s)) takes one half, and that of -inf nothing."""
    scores = jnp.log(jnp.array([[[[1.0, 3.0]], [[1.0, 3.0]]]]))  # (B, H, T, S) = (1, 2, 1, 2)
    weights = attention_weights(scores, sinks_H=jnp.array([jnp.log(4.0), -jnp.inf]))
    np.testing.assert_allclose(weights[0, :, 0], [[0.125, 0.375], [0.25, 0.75]], rtol=1e-6)


def test_an_expert_in_a_stacked_tensor_is_captured_cut_and_patched(small):
    model, params, _ = small
    clean, corrupted = jnp.asarray(TOKENS[:1]), jnp.asarray(TOKENS[1:])
    assert params["block_0"]["mlp"]["expert_1"]["in"]["kernel"].shape == (32, 64)
    names = [r"block_0/mlp/(router_weights|output|expert_\d/output)", "block_0/attn/weights"]
    logits, kept = capture.run(model, params, clean, names=names)
    assert (kept["block_0/attn/weights"].sum(-1) < 0.999).all()
    uses = kept["block_0/mlp/router_weights"] > 0
    assert (uses.sum(-1) == 1).all() and uses.any(1).all()
    cut = {"block_0/mlp/expert_1/output": capture.zero}
    moved = np.abs(capture.intervene(model, params, clean, cut) - logits).max(-1) > 1e-6
    np.testing.assert_array_equal(moved, uses[..., 1])

    def margin(logits):
        return logits[0, -1, 3] - logits[0, -1, 4]

    effects = capture.patch(
        model, params, clean, corrupted, r"block_0/mlp/expert_\d/output", margin
    )
    assert [*effects] == [f"block_0/mlp/expert_{e}/output" for e in range(2)]


def test_tensors_of_all_experts_have_the_layout_of_transformers(small, tmp_path):
    """(experts, inputs, outputs), in which outputs of gate and in alternate."""
    model, params, config = small
    tensors = load_file(save_folder(tmp_path / "x", model, params, config) / "model.safetensors")
    expert = params["block_0"]["mlp"]["expert_1"]
    joined = tensors[f"{EXPERTS}.gate_up_proj"][1]
    np.testing.assert_array_equal(joined[:, ::2], expert["gate"]["kernel"])
    np.testing.assert_array_equal(joined[:, 1::2], expert["in"]["kernel"])
    bias = tensors[f"{EXPERTS}.gate_up_proj_bias"][1]
    np.testing.assert_array_equal(bias[1::2], expert["in"]["bias"])
    np.testing.assert_array_equal(tensors[f"{EXPERTS}.down_proj"][1], expert["out"]["kernel"])
    sinks = tensors["model.layers.0.self_attn.sinks"]
    np.testing.assert_array_equal(sinks, params["block_0"]["attn"]["sinks"])
    tensors[f"{EXPERTS}.down_proj"] = tensors[f"{EXPERTS}.down_proj"][:1]
    save_file(tensors, tmp_path / "x/model.safetensors")
    message = r"down_proj has the shape \(1, 64, 32\); config.json requires \(2, 64, 32\)"
    with pytest.raises(UserError, match=message):
        jaxformer.load(tmp_path / "x")


def test_mxfp4_is_a_value_of_four_bits_times_a_power_of_two():
    """0x21: 1 is 0.5 and comes first, 2 is 1. 0xf9: 9 is -0.5, 15 is -6. The scale 129 is 2^2."""
    blocks = np.zeros((1, 2, 1, 16), np.uint8)
    blocks[0, 0, 0, :2] = 0x21, 0xF9
    blocks[0, 1, 0, 15] = 0x70
    scales = np.array([[[129], [126]]], np.uint8)
    tensor = mxfp4.dequantised(blocks, scales)
    assert tensor.shape == (1, 32, 2) and tensor.dtype == np.float32
    assert tensor[0, :4, 0].tolist() == [2.0, 4.0, -2.0, -24.0] and not tensor[0, 4:, 0].any()
    assert tensor[0, 31, 1] == 3.0 and not tensor[0, :31, 1].any()
    with pytest.raises(ValueError, match="do not fit"):
        mxfp4.dequantised(blocks, scales[:, :1])


@pytest.fixture(scope="module")
def quantised(small, tmp_path_factory):
    """A folder as OpenAI's: kernels of experts in MXFP4, all else in bfloat16."""
    model, params, config = small
    half = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.bfloat16), params)
    folder = save_folder(tmp_path_factory.mktemp("mxfp4") / "x", model, half, config)
    tensors, draw = load_file(folder / "model.safetensors"), np.random.RandomState(0)
    for name in ("gate_up_proj", "down_proj"):
        experts, inputs, outputs = tensors.pop(f"{EXPERTS}.{name}").shape
        shape = (experts, outputs, inputs // 32)
        tensors[f"{EXPERTS}.{name}_blocks"] = draw.randint(0, 256, (*shape, 16)).astype(np.uint8)
        tensors[f"{EXPERTS}.{name}_scales"] = draw.randint(122, 126, shape).astype(np.uint8)
    save_file(tensors, folder / "model.safetensors")
    written = json.loads((folder / "config.json").read_text())
    written["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["x"]}
    (folder / "config.json").write_text(json.dumps(written))
    return folder


def test_a_folder_in_mxfp4_loads_exactly_and_is_saved_without_quantisation(quantised, tmp_path):
    model, params, config = load_folder(quantised)
    stored = load_file(quantised / "model.safetensors")
    parts = [stored[part] for part in mxfp4.parts(f"{EXPERTS}.gate_up_proj")]
    kernel = params["block_0"]["mlp"]["expert_1"]["in"]["kernel"]
    np.testing.assert_array_equal(kernel, mxfp4.dequantised(*parts)[1, :, 1::2])
    exact = jaxformer.load(quantised, dtype="stored")[1]
    assert exact["block_0"]["mlp"]["expert_1"]["in"]["kernel"].dtype == jnp.bfloat16
    again = paths.flatten(jaxformer.load(save_folder(tmp_path / "x", model, params, config))[1])
    in_half = paths.flatten(exact)
    for path, leaf in paths.flatten(params).items():
        np.testing.assert_array_equal(again[path], leaf, err_msg=path)
        np.testing.assert_array_equal(np.float32(in_half[path]), leaf, err_msg=path)
    assert np.isfinite(model.apply({"params": params}, jnp.asarray(TOKENS))).all()


@pytest.mark.parametrize(
    "change, message",
    [
        ({"down_proj_scales": None}, "lacks model.layers.0.mlp.experts.down_proj"),
        (
            {"down_proj_scales": np.zeros((2, 32, 1), np.uint8)},
            "blocks .* and scales .* do not fit",
        ),
        ({"down_proj_scales": np.zeros((2, 32, 2), np.int8)}, "is int8; expected one of uint8"),
    ],
)
def test_broken_mxfp4_is_a_one_line_error(quantised, tmp_path, change, message):
    tensors = load_file(quantised / "model.safetensors")
    for name, tensor in change.items():
        tensors[f"{EXPERTS}.{name}"] = tensor
        if tensor is None:
            del tensors[f"{EXPERTS}.{name}"]
    (tmp_path / "config.json").write_bytes((quantised / "config.json").read_bytes())
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(UserError, match=message) as error:
        jaxformer.load(tmp_path)
    assert "\n" not in str(error.value)


def test_adapters_of_stacked_experts_are_merged_but_not_written_for_peft(small, tmp_path):
    model, params, _ = small
    rules = (("block_0/mlp/expert_1/in/kernel", "lora(2)"), (".*", "frozen"))
    added = adapters.add(params, Partition(rules).adapters(params), jax.random.key(0))
    assert paths.flatten(adapters.merge(added)).keys() == paths.flatten(params).keys()
    with pytest.raises(UserError, match="peft reads no adapter of block_0/mlp/expert_1/in/kernel"):
        save_adapter(tmp_path / "adapter", model, added)
