"""Llama, whose numbers and names most later decoders change in a few places."""

from collections.abc import Callable
from typing import Any

from jaxformer.models.pretrained.family import (
    ATTENTION_BIAS,
    GGUF,
    GROUPED,
    MLP_BIAS,
    SILU,
    SIZES,
    UNTIED,
    Family,
)
from jaxformer.models.pretrained.tensor_names import block_names

FIELDS = SIZES | GROUPED | UNTIED | SILU | {"eps": ("rms_norm_eps", 1e-6)}
GATED_RMS = {"norm": "rms", "gated": True}
NAMES = {
    "embed": "model.embed_tokens",
    **block_names(
        "model.layers.#",
        attn_norm="input_layernorm",
        mlp_norm="post_attention_layernorm",
        query="self_attn.q_proj",
        key="self_attn.k_proj",
        value="self_attn.v_proj",
        out="self_attn.o_proj",
        query_norm="self_attn.q_norm",
        key_norm="self_attn.k_norm",
        gate="mlp.gate_proj",
        mlp_in="mlp.up_proj",
        mlp_out="mlp.down_proj",
    ),
    "final_norm": "model.norm",
    "unembed": "lm_head",
}


def gguf_fields(config: dict[str, Any], value: Callable[[str], Any]) -> dict[str, Any]:
    head_width = value("attention.key_length") or value("rope.dimension_count")
    return {"head_dim": head_width, "hidden_act": "silu"}


FAMILIES = {
    "llama": Family(
        FIELDS | ATTENTION_BIAS | MLP_BIAS,
        GATED_RMS,
        NAMES,
        # The files of the first models have no base of the rotations, 10,000 in the format.
        gguf=GGUF("llama", "LlamaForCausalLM", gguf_fields, is_permuted=True, required=()),
    )
}
