"""OPT: positions from row 2; OPT-350M has norms after the sums and a narrower embedding."""

from jaxformer.models.pretrained.family import (
    ALL_BIASES,
    REQUIRED,
    SIZES,
    TIED,
    Config,
    Family,
    Numbers,
)
from jaxformer.models.pretrained.tensor_names import block_names

NAMES = {
    "embed": "model.decoder.embed_tokens",
    "positions": "model.decoder.embed_positions",
    "embed_project": "model.decoder.project_in",
    **block_names(
        "model.decoder.layers.#",
        attn_norm="self_attn_layer_norm",
        mlp_norm="final_layer_norm",
        query="self_attn.q_proj",
        key="self_attn.k_proj",
        value="self_attn.v_proj",
        out="self_attn.out_proj",
        mlp_in="fc1",
        mlp_out="fc2",
    ),
    "final_norm": "model.decoder.final_layer_norm",
    "unembed_project": "model.decoder.project_out",
    "unembed": "lm_head",
}


def finish_opt(config: Config, numbers: Numbers) -> None:
    if config.get("do_layer_norm_before") is False:
        numbers |= {"norm_at": "sum", "final_norm": False}
    elif config.get("_remove_final_layer_norm"):
        numbers["final_norm"] = False
    embed_width = config.get("word_embed_proj_dim") or numbers["width"]
    numbers["embed_width"] = 0 if embed_width == numbers["width"] else embed_width


FAMILIES = {
    "opt": Family(
        SIZES
        | TIED
        | {"mlp_width": ("ffn_dim", REQUIRED), "act": ("activation_function", "relu")}
        | {"init_std": ("init_std", 0.02), "norm_params": ("layer_norm_elementwise_affine", True)}
        | {name: ("enable_bias", True) for name in ALL_BIASES},
        {"learned_positions": True, "position_offset": 2, "eps": 1e-5},
        NAMES,
        rotary=None,
        finish=finish_opt,
        further=("do_layer_norm_before", "_remove_final_layer_norm", "word_embed_proj_dim"),
    )
}
