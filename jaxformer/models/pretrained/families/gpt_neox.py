"""GPT-NeoX and Pythia: partial rotary positions, in parallel or serial blocks."""

from jaxformer.models.pretrained.config_fields import refuse_head_dim
from jaxformer.models.pretrained.family import SIZES, UNTIED, Family
from jaxformer.models.pretrained.tensor_names import QKV, block_names

NAMES = {
    "embed": "gpt_neox.embed_in",
    QKV: "gpt_neox.layers.#.attention.query_key_value",
    **block_names(
        "gpt_neox.layers.#",
        attn_norm="input_layernorm",
        mlp_norm="post_attention_layernorm",
        out="attention.dense",
        mlp_in="mlp.dense_h_to_4h",
        mlp_out="mlp.dense_4h_to_h",
    ),
    "final_norm": "gpt_neox.final_layer_norm",
    "unembed": "embed_out",
}
FAMILIES = {
    "gpt_neox": Family(
        SIZES
        | UNTIED
        | {"eps": ("layer_norm_eps", 1e-5), "act": ("hidden_act", "gelu")}
        | {"parallel": ("use_parallel_residual", True), "qkv_bias": ("attention_bias", True)}
        | {"out_bias": ("attention_bias", True)},
        {"mlp_bias": True},
        NAMES,
        finish=refuse_head_dim,
        further=("head_dim",),
        rotary=0.25,
        partial=True,
        joined="groups",
    )
}
