"""Qwen 2 and 3: Llama with biases, or norms, of queries and keys."""

from collections.abc import Callable
from typing import Any

from jaxformer.models.pretrained.families.llama import FIELDS, GATED_RMS, NAMES
from jaxformer.models.pretrained.family import ATTENTION_BIAS, GGUF, Config, Family, Windows
from jaxformer.models.pretrained.window_fields import optional_windows


def qwen_windows(config: Config, layers: int) -> Windows:
    """Blocks from max_window_layers on have the window."""
    first = config.get("max_window_layers", 28)
    return optional_windows(config, layers, [i >= first for i in range(layers)])


def gguf_fields(config: dict[str, Any], value: Callable[[str], Any]) -> dict[str, Any]:
    head_width = value("attention.key_length")
    head_field = {} if head_width is None else {"head_dim": head_width}
    return head_field | {"hidden_act": "silu", "use_sliding_window": False}


FAMILIES = {
    "qwen2": Family(
        FIELDS,
        GATED_RMS | {"qkv_bias": True},
        NAMES,
        windows=qwen_windows,
        gguf=GGUF("qwen2", "Qwen2ForCausalLM", gguf_fields, has_implied_biases=True),
    ),
    "qwen3": Family(
        FIELDS | ATTENTION_BIAS,
        GATED_RMS | {"qk_norm": "head"},
        NAMES,
        windows=qwen_windows,
        gguf=GGUF("qwen3", "Qwen3ForCausalLM", gguf_fields),
    ),
}
