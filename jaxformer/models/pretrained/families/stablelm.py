"""StableLM: Llama with LayerNorm, partial rotary positions and, in some sizes, parallel blocks."""

from collections.abc import Callable
from typing import Any

from jaxformer.models.pretrained.config_fields import per_head_norm, refuse_head_dim
from jaxformer.models.pretrained.families import llama
from jaxformer.models.pretrained.family import (
    GGUF,
    GROUPED,
    SILU,
    SIZES,
    UNTIED,
    Config,
    Family,
    Numbers,
)

NAMES = llama.NAMES | {
    "block_#/attn/query_norm/head_%": "model.layers.#.self_attn.q_layernorm.norms.%",
    "block_#/attn/key_norm/head_%": "model.layers.#.self_attn.k_layernorm.norms.%",
}


def finish_stablelm(config: Config, numbers: Numbers) -> None:
    """Adds the norms of queries and keys; parallel branches share one norm."""
    per_head_norm("each_head")(config, numbers)
    numbers["shared_norm"] = numbers["parallel"]
    refuse_head_dim(config, numbers)


EPSILON = "attention.layer_norm_epsilon"


def gguf_fields(config: dict[str, Any], value: Callable[[str], Any]) -> dict[str, Any]:
    head_width = config["hidden_size"] // config["num_attention_heads"]
    return {
        "layer_norm_eps": value(EPSILON),
        "hidden_act": "silu",
        "use_qkv_bias": config.pop("attention_bias"),
        "use_parallel_residual": value("use_parallel_residual"),
        "partial_rotary_factor": value("rope.dimension_count") / head_width,
    }


FAMILIES = {
    "stablelm": Family(
        SIZES
        | GROUPED
        | UNTIED
        | SILU
        | {"eps": ("layer_norm_eps", 1e-5), "qkv_bias": ("use_qkv_bias", False)}
        | {"parallel": ("use_parallel_residual", False)},
        {"gated": True},
        NAMES,
        finish=finish_stablelm,
        further=("qk_layernorm",),
        rotary=0.25,
        partial=True,
        # llama.cpp writes no base of the rotations and takes 10,000.
        gguf=GGUF(
            "stablelm",
            "StableLmForCausalLM",
            gguf_fields,
            epsilon=EPSILON,
            required=("rope.dimension_count", "use_parallel_residual"),
        ),
    )
}
