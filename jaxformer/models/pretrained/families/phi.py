"""Phi-1 to 2, parallel blocks with one norm, and Phi-3, a Llama with joined tensors."""

from collections.abc import Callable
from typing import Any

from jaxformer.models.pretrained.config_fields import per_head_norm
from jaxformer.models.pretrained.families import llama
from jaxformer.models.pretrained.family import ALL_BIASES, GGUF, GROUPED, SIZES, UNTIED, Family
from jaxformer.models.pretrained.tensor_names import GATE_IN, QKV, block_names, without
from jaxformer.models.pretrained.window_fields import uniform_window

PHI_NAMES = (
    llama.NAMES
    | block_names(
        "model.layers.#",
        out="self_attn.dense",
        query_norm="self_attn.q_layernorm",
        key_norm="self_attn.k_layernorm",
        mlp_in="mlp.fc1",
        mlp_out="mlp.fc2",
    )
    | {"final_norm": "model.final_layernorm"}
)
PHI3_NAMES = without(llama.NAMES, *QKV.split("+"), *GATE_IN.split("+")) | {
    QKV: "model.layers.#.self_attn.qkv_proj",
    GATE_IN: "model.layers.#.mlp.gate_up_proj",
}


def gguf_fields(config: dict[str, Any], value: Callable[[str], Any]) -> dict[str, Any]:
    """The fields of Phi-3; factors of long texts are tensors that the reader refuses."""
    head_width = config["hidden_size"] // config["num_attention_heads"]
    return {
        "hidden_act": "silu",
        "sliding_window": value("attention.sliding_window") or None,
        "partial_rotary_factor": value("rope.dimension_count") / head_width,
    }


FAMILIES = {
    "phi": Family(
        SIZES
        | GROUPED
        | UNTIED
        | {"eps": ("layer_norm_eps", 1e-5), "act": ("hidden_act", "gelu_new")},
        ALL_BIASES | {"unembed_bias": True, "parallel": True, "shared_norm": True},
        PHI_NAMES,
        rotary=0.5,
        partial=True,
        finish=per_head_norm("head"),
        further=("qk_layernorm",),
    ),
    "phi3": Family(
        llama.FIELDS | {"eps": ("rms_norm_eps", 1e-5)},
        llama.GATED_RMS,
        PHI3_NAMES,
        windows=uniform_window(None),
        partial=True,
        rotary_kinds={"yarn": "longrope"},  # as its first release names it
        joined="rows",
        gguf=GGUF("phi3", "Phi3ForCausalLM", gguf_fields),
    ),
}
