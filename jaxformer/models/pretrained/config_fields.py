"""Reads rotary positions and attention windows from a config.json, and refuses unknown fields.

This module does not import jax.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from jaxformer.core.errors import UserError, check_choice, one_line

Config = Mapping[str, Any]
Numbers = dict[str, Any]  # the arguments of a PretrainedSpec
# The length of the window (0: no window), and whether each block attends to the window. An empty
# tuple means that the length applies to all blocks.
Windows = tuple[int, tuple[bool, ...]]
WINDOW_FIELDS = (
    "sliding_window",
    "use_sliding_window",
    "max_window_layers",
    "layer_types",
    "sliding_window_pattern",
    "_sliding_window_pattern",
)
ROTARY_FIELDS = (
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "rotary_emb_base",
    "rotary_pct",
    "partial_rotary_factor",
    "original_max_position_embeddings",
)
ROTARY_NAMES = {"default": "plain", "su": "longrope"}  # {kind in transformers: kind of `Rotary`}
ROTARY_KINDS = ("plain", "linear", "dynamic", "llama3", "longrope", "yarn")
# Patterns of fields that do not change the function of a network in inference.
HARMLESS = re.compile(
    "|".join(
        (
            r"_(?!remove_final_layer_norm).*",
            r".*(dropout|pdrop|layerdrop)(_prob)?",
            r".*_token(_id|_ids|_index)?",
            r"model_type|architectures|auto_map|(torch_)?dtype|transformers(_js)?_version|use_cache",
            r"(name_or|model)_(path|name)|language|finetuning_task|problem_type|task_specific_params",
            r"id2label|label2id|num_labels|summary_.*|classifier_.*|tokenizer_class|prefix|is_decoder",
            r"initializer_.*|init_.*|gradient_checkpointing|attn_implementation|cache_implementation",
            r"output_(attentions|hidden_states|scores)|return_dict(_in_generate)?|torchscript",
            r"use_bfloat16|pretraining_tp|chunk_size_feed_forward|reorder_and_upcast_attn|is_llama_config",
            # Settings of generation, which older versions of transformers wrote to config.json.
            r"(min|max)(_new)?_(tokens|length)|num_beam(s|_groups)|num_return_sequences|temperature|top_[kp]",
            r"typical_p|do_sample|early_stopping|(length|repetition|diversity|exponential_decay_length)_.*",
            r"(encoder_)?no_repeat_ngram_size|remove_invalid_values|(begin_)?suppress_tokens",
        )
    )
)
# The pattern of the names of factors, which have no effect if they are 1.
NEUTRAL_AT_ONE = re.compile(r".*(multiplier|scale|scaling|scalar|factor)")
EMPTY = (None, False, "", [], {}, ())  # values of a field that turn nothing on


def check_fields(config: Config, known: Iterable[str]) -> None:
    """Raises for a field that is unknown and may change the function of the network."""
    known = set(known)
    for field, value in config.items():
        # The comparison of types keeps 0, which equals False, from counting as empty.
        is_empty = any(type(value) is type(empty) and value == empty for empty in EMPTY)
        is_neutral = value == 1 and NEUTRAL_AT_ONE.fullmatch(field)
        if field in known or is_empty or is_neutral or HARMLESS.fullmatch(field):
            continue
        raise UserError(
            f"{field}: {one_line(repr(value), 60)} is not supported for {config['model_type']}."
        )


def read_rotary(
    config: Config, head_width: int, share: float, base: float, is_partial: bool = False
) -> dict[str, Any]:
    """Reads the rotary positions. Returns the arguments of a `Rotary`.

    It reads the fields of older configs (rope_theta, rope_scaling, rotary_pct, rotary_emb_base)
    and the section rope_parameters of transformers 5.

    Args:
      config: the content of config.json.
      head_width: the width of a head.
      share: the rotated share of a head, if no field has it.
      base: the base of the rates of rotation, if no field has it.
      is_partial: whether the family may rotate a part of a head.
    """
    section = dict(config.get("rope_scaling") or {}) | dict(config.get("rope_parameters") or {})
    if any(isinstance(value, dict) for value in section.values()):
        raise UserError(
            f"rope_parameters for each kind of layer are not supported for {config['model_type']}."
        )
    theta = config.get("rope_theta", config.get("rotary_emb_base", base))
    theta = section.get("rope_theta", theta)
    share = config.get("partial_rotary_factor", config.get("rotary_pct", share))
    share = section.get("partial_rotary_factor", share)
    if not is_partial and share != 1:
        raise UserError(
            f"partial_rotary_factor: {share} is not supported for {config['model_type']}."
        )
    numbers: dict[str, Any] = {"width": int(head_width * share), "base": float(theta)}
    kind = str(section.get("rope_type") or section.get("type") or "default")
    kind = ROTARY_NAMES.get(kind, kind)
    if config["model_type"] == "phi3" and kind == "yarn":
        kind = "longrope"  # the first release of Phi-3 names it yarn
    check_choice("rotary scaling", kind, ROTARY_KINDS)
    return numbers if kind == "plain" else numbers | _scaling(kind, section, config)


def _scaling(kind: str, section: Config, config: Config) -> dict[str, Any]:
    """Returns the arguments of a scaled `Rotary` besides its width and base."""
    max_length = config["max_position_embeddings"]
    pretraining_length = (
        config.get("original_max_position_embeddings")
        or section.get("original_max_position_embeddings")
        or max_length
    )
    if kind == "linear":
        return {"kind": kind, "factor": float(section["factor"])}
    if kind == "dynamic":
        return {
            "kind": kind,
            "factor": float(section["factor"]),
            "pretraining_length": int(max_length),
        }
    numbers: dict[str, Any] = {"kind": kind, "pretraining_length": int(pretraining_length)}
    if kind == "llama3":
        numbers |= {"low": section["low_freq_factor"], "high": section["high_freq_factor"]}
        return numbers | {"factor": float(section["factor"])}
    factor = section.get("factor") or max_length / pretraining_length
    scale = section.get("attention_factor")
    if kind == "longrope":
        if scale is None and factor > 1:
            scale = math.sqrt(1 + math.log(factor) / math.log(pretraining_length))
        scale = 1.0 if scale is None else scale
        numbers |= {"short": tuple(section["short_factor"]), "long": tuple(section["long_factor"])}
        return numbers | {"scale": float(scale)}
    if scale is None:
        scale = _yarn_scale(factor, section.get("mscale"), section.get("mscale_all_dim"))
    numbers |= {"factor": float(factor), "scale": float(scale)}
    numbers |= {"low": section.get("beta_slow") or 1, "high": section.get("beta_fast") or 32}
    return numbers | {"is_truncated": section.get("truncate", True)}


def _yarn_scale(factor: float, scale: float | None, scale_all: float | None) -> float:
    """Returns the factor by which YaRN multiplies cos and sin.

    Args:
        factor: the ratio of the model's length to its pretraining length.
        scale: the field mscale, or None.
        scale_all: the field mscale_all_dim, or None.
    """

    def scale_for(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1 if factor > 1 else 1.0

    if scale and scale_all:
        return scale_for(scale) / scale_for(scale_all)
    return scale_for(1.0)


def uniform_window(default: int | None) -> Callable[[Config, int], Windows]:
    """Returns a reader of families in which all blocks have the same window, or none has one.

    Args:
        default: the window if the field sliding_window is missing; None: no window.
    """

    def read(config: Config, layers: int) -> Windows:
        window = config.get("sliding_window", default) or 0
        windowed = _layer_types(config, layers, [window > 0] * layers)
        if windowed != (window > 0,) * layers:
            raise UserError(f"layer_types are not supported for {config['model_type']}.")
        return window, ()

    return read


def qwen_windows(config: Config, layers: int) -> Windows:
    """Reads Qwen2 and Qwen3: blocks from max_window_layers on have the window."""
    first = config.get("max_window_layers", 28)
    return _optional_windows(config, layers, [i >= first for i in range(layers)])


def smollm3_windows(config: Config, layers: int) -> Windows:
    """Reads SmolLM3: blocks without rotary positions have the window."""
    interval = config.get("no_rope_layer_interval", 4)
    # In spite of its name, no_rope_layers is 1 for blocks with rotary positions.
    rotated = config.get("no_rope_layers") or [(i + 1) % interval for i in range(layers)]
    return _optional_windows(config, layers, [not is_rotated for is_rotated in rotated[:layers]])


def _optional_windows(config: Config, layers: int, default: list[bool]) -> Windows:
    window = config.get("sliding_window") if config.get("use_sliding_window") else None
    if not window:
        _layer_types(config, layers, ())  # raises if the field layer_types is invalid
        return 0, ()
    return window, _layer_types(config, layers, default)


def alternating_windows(config: Config, layers: int) -> Windows:
    """Reads Gemma 2: every other block has the window, beginning with the first."""
    return _gemma_windows(config, layers, 2)


def gemma3_windows(config: Config, layers: int) -> Windows:
    """Reads Gemma 3: five of six blocks have the window."""
    return _gemma_windows(config, layers, config.get("sliding_window_pattern") or 6)


def _gemma_windows(config: Config, layers: int, period: int) -> Windows:
    windowed = _layer_types(config, layers, [(i + 1) % period != 0 for i in range(layers)])
    return config.get("sliding_window", 4096) or 0, windowed


def _layer_types(config: Config, layers: int, default: Iterable[bool]) -> tuple[bool, ...]:
    """Returns whether each block has a window, from the field layer_types."""
    kinds = config.get("layer_types")
    if kinds is None:
        return tuple(default)
    if len(kinds) != layers:
        raise UserError(f"layer_types has {len(kinds)} entries for {layers} layers.")
    for kind in kinds:
        check_choice("layer_types", kind, ("sliding_attention", "full_attention"))
    return tuple(kind == "sliding_attention" for kind in kinds)


def gpt_neo_windows(config: Config, layers: int) -> Windows:
    """Reads GPT-Neo: blocks of the kind "local" have the window.

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
