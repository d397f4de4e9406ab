"""GPT-2: learned positions, and query, key and value in one tensor."""

from jaxformer.models.pretrained.family import (
    ALL_BIASES,
    REQUIRED,
    TIED,
    Config,
    Family,
    Numbers,
)
from jaxformer.models.pretrained.tensor_names import QKV, block_names

FIELDS = {  # GPT-J has the same
    "vocab_size": ("vocab_size", REQUIRED),
    "length": ("n_positions", REQUIRED),
    "width": ("n_embd", REQUIRED),
    "layers": ("n_layer", REQUIRED),
    "heads": ("n_head", REQUIRED),
    "mlp_width": ("n_inner", None),
    "eps": ("layer_norm_epsilon", 1e-5),
    "act": ("activation_function", "gelu_new"),
    "init_std": ("initializer_range", 0.02),
}
NAMES = {
    "embed": "transformer.wte",
    "positions": "transformer.wpe",
    QKV: "transformer.h.#.attn.c_attn",
    **block_names(
        "transformer.h.#",
        attn_norm="ln_1",
        mlp_norm="ln_2",
        out="attn.c_proj",
        mlp_in="mlp.c_fc",
        mlp_out="mlp.c_proj",
    ),
    "final_norm": "transformer.ln_f",
    "unembed": "lm_head",
}


def finish_gpt2(config: Config, numbers: Numbers) -> None:
    """Scores are not scaled if scale_attn_weights is false."""
    if config.get("scale_attn_weights") is False:
        numbers["score_scale"] = 1.0


FAMILIES = {
    "gpt2": Family(
        FIELDS | TIED | {"scale_by_layer": ("scale_attn_by_inverse_layer_idx", False)},
        ALL_BIASES | {"learned_positions": True},
        NAMES,
        {"add_cross_attention": (False,)},
        rotary=None,
        finish=finish_gpt2,
        further=("scale_attn_weights", "reorder_and_upcast_attn"),
        kernels="same",
        joined="columns",
    )
}
