"""Falcon 7B to 180B and RW: one key head or groups, one or two norms, rotary positions or ALiBi."""

from collections.abc import Callable
from typing import Any

from jaxformer.core.errors import UserError
from jaxformer.models.pretrained.config_fields import refuse_head_dim
from jaxformer.models.pretrained.family import (
    ALL_BIASES,
    GGUF,
    SIZES,
    TIED,
    Config,
    Family,
    Numbers,
)
from jaxformer.models.pretrained.tensor_names import QKV, block_names

NAMES = {
    "embed": "transformer.word_embeddings",
    QKV: "transformer.h.#.self_attention.query_key_value",
    **block_names(
        "transformer.h.#",
        attn_norm="input_layernorm",
        mlp_norm="post_attention_layernorm",
        out="self_attention.dense",
        mlp_in="mlp.dense_h_to_4h",
        mlp_out="mlp.dense_4h_to_h",
    ),
    "final_norm": "transformer.ln_f",
    "unembed": "lm_head",
}


def finish_falcon(config: Config, numbers: Numbers) -> None:
    """The new architecture groups keys; the old one has one key head, or one for each query."""
    is_new, is_parallel = config.get("new_decoder_architecture"), config.get("parallel_attn", True)
    norms = config.get("num_ln_in_parallel_attn") or (2 if is_new else 1)
    if (is_new and not is_parallel) or (norms == 2 and not is_new):
        raise UserError(
            f"parallel_attn: {is_parallel} with num_ln_in_parallel_attn: {norms} and "
            f"new_decoder_architecture: {bool(is_new)} is not supported."
        )
    if not is_new:
        numbers["kv_heads"] = 1 if config.get("multi_query", True) else numbers["heads"]
    numbers |= {"parallel": is_parallel, "shared_norm": is_parallel and norms == 1}
    refuse_head_dim(config, numbers)
    if config.get("alibi"):
        numbers["rotary"] = None


def gguf_fields(config: dict[str, Any], value: Callable[[str], Any]) -> dict[str, Any]:
    """The fields of Falcon 7B, which has one key head, and of 40B with its groups."""
    kv_heads = config["num_key_value_heads"]
    return {
        "num_key_value_heads": None,
        "num_kv_heads": kv_heads,
        "multi_query": True,
        "new_decoder_architecture": kv_heads > 1,
        "ffn_hidden_size": config["intermediate_size"],
        "intermediate_size": None,
        "layer_norm_epsilon": value("attention.layer_norm_epsilon"),
    }


FAMILIES = {
    "falcon": Family(
        SIZES
        | TIED
        | {"mlp_width": ("ffn_hidden_size", None), "kv_heads": ("num_kv_heads", None)}
        | {"length": ("max_position_embeddings", 2048), "act": ("activation", "gelu")}
        | {"eps": ("layer_norm_epsilon", 1e-5), "alibi": ("alibi", False)}
        | {name: ("bias", False) for name in ALL_BIASES},
        {},
        NAMES,
        finish=finish_falcon,
        further=(
            "new_decoder_architecture",
            "multi_query",
            "parallel_attn",
            "head_dim",
            "num_ln_in_parallel_attn",
        ),
        two_norms=block_names("transformer.h.#", attn_norm="ln_attn", mlp_norm="ln_mlp"),
        joined="groups",
        gguf=GGUF(
            "falcon",
            "FalconForCausalLM",
            gguf_fields,
            is_ungrouped=True,
            has_implied_biases=True,
            epsilon="attention.layer_norm_epsilon",
            required=("attention.head_count_kv", "feed_forward_length"),
        ),
    )
}
