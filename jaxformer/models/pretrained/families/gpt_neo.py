"""GPT-Neo: GPT-2 with windows in some blocks, and scores that nothing scales."""

from jaxformer.core.errors import UserError, check_choice
from jaxformer.models.pretrained.families import gpt2
from jaxformer.models.pretrained.family import REQUIRED, TIED, Config, Family, Windows
from jaxformer.models.pretrained.tensor_names import QKV, block_names, without

NAMES = without(gpt2.NAMES, QKV) | block_names(
    "transformer.h.#",
    query="attn.attention.q_proj",
    key="attn.attention.k_proj",
    value="attn.attention.v_proj",
    out="attn.attention.out_proj",
)


def gpt_neo_windows(config: Config, layers: int) -> Windows:
    """Blocks of the kind "local" have the window.

    The field attention_types is a list of [kinds of consecutive blocks, repetitions].
    """
    types = config.get("attention_types")
    if types is None:
        kinds = (["global", "local"] * layers)[:layers]
    else:
        repeated = [[*pattern] * min(times, layers) for pattern, times in types]
        kinds = [kind for pattern in repeated for kind in pattern]
    if len(kinds) != layers:
        raise UserError(f"attention_types has {len(kinds)} entries for {layers} layers.")
    for kind in kinds:
        check_choice("attention_types", kind, ("local", "global"))
    return config.get("window_size", 256), tuple(kind == "local" for kind in kinds)


FAMILIES = {
    "gpt_neo": Family(
        gpt2.FIELDS
        | TIED
        | {"length": ("max_position_embeddings", REQUIRED), "width": ("hidden_size", REQUIRED)}
        | {"layers": ("num_layers", REQUIRED), "heads": ("num_heads", REQUIRED)}
        | {"mlp_width": ("intermediate_size", None)},
        {"out_bias": True, "mlp_bias": True, "learned_positions": True, "score_scale": 1.0},
        NAMES,
        windows=gpt_neo_windows,
        rotary=None,
        further=("attention_types", "attention_layers", "window_size"),
    )
}
