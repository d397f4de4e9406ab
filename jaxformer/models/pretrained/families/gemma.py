"""Gemma 1 to 3 (text): scaled embeddings, norms of 1 + w; from Gemma 2 on windows and caps."""

from collections.abc import Callable
from typing import Any

from jaxformer.models.pretrained.families import llama
from jaxformer.models.pretrained.families.olmo import OLMO2_NAMES
from jaxformer.models.pretrained.family import (
    ATTENTION_BIAS,
    GGUF,
    TIED,
    Config,
    Family,
    Numbers,
    Windows,
)
from jaxformer.models.pretrained.rotary_fields import ROTARY_FIELDS, read_rotary
from jaxformer.models.pretrained.tensor_names import block_names
from jaxformer.models.pretrained.window_fields import windowed_blocks

CONSTANTS = llama.GATED_RMS | {"gain_offset": 1.0}
NORMS_OF_BOTH_ENDS = OLMO2_NAMES | block_names(
    "model.layers.#", mlp_norm="pre_feedforward_layernorm"
)
CAUSAL = {"use_bidirectional_attention": (False,)}
# Published configs of Gemma 2 have this field too. The model reads hidden_activation, so that only
# a value that says the same is read.
SECOND_ACT = {"hidden_act": ("gelu_pytorch_tanh",)}


def finish_gemma(config: Config, numbers: Numbers) -> None:
    """The embedding is scaled by sqrt(width); from Gemma 2 on, a field scales the scores."""
    numbers["embed_scale"] = numbers["width"] ** 0.5
    if config["model_type"] == "gemma":
        # Early configs name the exact gelu, but the models use the tanh approximation.
        numbers["act"] = "gelu_tanh" if numbers["act"] == "gelu" else numbers["act"]
    else:
        numbers["score_scale"] = config.get("query_pre_attn_scalar", 256) ** -0.5


def finish_gemma3(config: Config, numbers: Numbers) -> None:
    """Blocks with a window have rotary positions with another base."""
    finish_gemma(config, numbers)
    # Configs of transformers 5 have one section of rope_parameters for each kind of block.
    nested = config.get("rope_parameters") or {}
    local = nested.get("sliding_attention") or {}
    local = {"rope_theta": config.get("rope_local_base_freq", 10_000.0)} | local
    full_config = dict(config) | {"rope_parameters": nested.get("full_attention")}
    numbers["rotary"] = read_rotary(full_config, numbers["head_width"], 1.0, 1_000_000.0)
    local_config = full_config | {"rope_scaling": None, "rope_parameters": local}
    numbers["local_rotary"] = read_rotary(local_config, numbers["head_width"], 1.0, 10_000.0)


def gemma2_windows(config: Config, layers: int) -> Windows:
    """Every other block has the window, beginning with the first."""
    return _windows(config, layers, 2)


def gemma3_windows(config: Config, layers: int) -> Windows:
    """Five of six blocks have the window."""
    return _windows(config, layers, config.get("sliding_window_pattern") or 6)


def _windows(config: Config, layers: int, period: int) -> Windows:
    windowed = windowed_blocks(config, layers, [(i + 1) % period != 0 for i in range(layers)])
    return config.get("sliding_window", 4096) or 0, windowed


def _gguf_fields(
    config: dict[str, Any], value: Callable[[str], Any], period: int, layers_of_27b: int
) -> dict[str, Any]:
    """The fields of Gemma 2 and 3, where every `period`-th layer sees all tokens."""
    layers, head_width = config["num_hidden_layers"], value("attention.key_length")
    # The file lacks the scale of the scores, 1/sqrt(scale_width). In models with 27 billion
    # parameters this width is not the head's.
    is_27b = layers == layers_of_27b
    scale_width = config["hidden_size"] // config["num_attention_heads"] if is_27b else head_width
    return {
        "head_dim": head_width,
        "query_pre_attn_scalar": scale_width,
        "sliding_window": value("attention.sliding_window"),
        "layer_types": [
            "sliding_attention" if (i + 1) % period else "full_attention" for i in range(layers)
        ],
        "hidden_activation": "gelu_pytorch_tanh",
        "attn_logit_softcapping": value("attn_logit_softcapping"),
        "final_logit_softcapping": value("final_logit_softcapping"),
    }


def _gemma_fields(config: dict[str, Any], value: Callable[[str], Any]) -> dict[str, Any]:
    return {
        "head_dim": value("attention.key_length"),
        "hidden_act": "gelu_pytorch_tanh",
        "tie_word_embeddings": True,
    }


def _gemma2_fields(config: dict[str, Any], value: Callable[[str], Any]) -> dict[str, Any]:
    return _gguf_fields(config, value, period=2, layers_of_27b=46)


def _gemma3_fields(config: dict[str, Any], value: Callable[[str], Any]) -> dict[str, Any]:
    fields = _gguf_fields(config, value, period=6, layers_of_27b=62)
    return fields | {"rope_local_base_freq": 10_000.0}


FIELDS = llama.FIELDS | TIED | ATTENTION_BIAS
FAMILIES = {
    "gemma": Family(
        FIELDS | {"act": ("hidden_act", "gelu_pytorch_tanh")},
        CONSTANTS,
        llama.NAMES,
        CAUSAL | {"hidden_activation": ("gelu_pytorch_tanh",)},
        finish=finish_gemma,
        # llama.cpp writes no base of the rotations and takes 10,000.
        gguf=GGUF("gemma", "GemmaForCausalLM", _gemma_fields, is_norm_shifted=True, required=()),
    ),
    "gemma2": Family(
        FIELDS
        | {"act": ("hidden_activation", "gelu_pytorch_tanh")}
        | {"score_cap": ("attn_logit_softcapping", 50.0)}
        | {"logit_cap": ("final_logit_softcapping", 30.0)},
        CONSTANTS | {"norm_at": "both"},
        NORMS_OF_BOTH_ENDS,
        CAUSAL | SECOND_ACT,
        windows=gemma2_windows,
        finish=finish_gemma,
        further=("query_pre_attn_scalar",),
        gguf=GGUF(
            "gemma2",
            "Gemma2ForCausalLM",
            _gemma2_fields,
            is_norm_shifted=True,
            required=(
                "attention.sliding_window",
                "attn_logit_softcapping",
                "final_logit_softcapping",
            ),
        ),
    ),
    "gemma3_text": Family(
        FIELDS
        | {"act": ("hidden_activation", "gelu_pytorch_tanh")}
        | {"logit_cap": ("final_logit_softcapping", None)},
        CONSTANTS | {"norm_at": "both", "qk_norm": "head"},
        NORMS_OF_BOTH_ENDS,
        CAUSAL | SECOND_ACT,
        windows=gemma3_windows,
        rotary=None,
        finish=finish_gemma3,
        further=("query_pre_attn_scalar", "rope_local_base_freq", *ROTARY_FIELDS),
        gguf=GGUF(
            "gemma3",
            "Gemma3ForCausalLM",
            _gemma3_fields,
            is_norm_shifted=True,
            required=("rope.freq_base", "attention.sliding_window"),
        ),
    ),
}
