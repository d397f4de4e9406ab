"""OLMo 1, whose norms have no parameters, and OLMo 2, with norms of branch outputs."""

from collections.abc import Callable
from typing import Any

from jaxformer.models.pretrained.families import llama
from jaxformer.models.pretrained.family import ATTENTION_BIAS, GGUF, Family
from jaxformer.models.pretrained.tensor_names import block_names, without

OLMO2_NAMES = llama.NAMES | block_names(
    "model.layers.#",
    attn_output_norm="post_attention_layernorm",
    mlp_output_norm="post_feedforward_layernorm",
)


def gguf_fields(config: dict[str, Any], value: Callable[[str], Any]) -> dict[str, Any]:
    return {"hidden_act": "silu"}


FAMILIES = {
    "olmo": Family(
        without(llama.FIELDS, "eps") | ATTENTION_BIAS | {"clip": ("clip_qkv", None)},
        {"gated": True, "norm_params": False, "eps": 1e-5},
        llama.NAMES,
    ),
    "olmo2": Family(
        llama.FIELDS | ATTENTION_BIAS | {"eps": ("rms_norm_eps", 1e-5)},
        llama.GATED_RMS | {"norm_at": "output", "qk_norm": "width"},
        OLMO2_NAMES,
        gguf=GGUF("olmo2", "Olmo2ForCausalLM", gguf_fields),
    ),
}
