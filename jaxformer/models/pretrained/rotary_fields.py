"""Rotary positions in a config.json."""

import math
from types import MappingProxyType
from typing import Any

from jaxformer.core.errors import UserError, check_choice
from jaxformer.models.pretrained.family import Config, Names

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


def read_rotary(
    config: Config,
    head_width: int,
    share: float,
    base: float,
    is_partial: bool = False,
    kinds: Names = MappingProxyType({}),
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
      kinds: {name of a scaling in this family: its usual name}.
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
    kind = kinds.get(kind, kind)
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
