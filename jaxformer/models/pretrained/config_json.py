"""Reads a published model's config.json as a `PretrainedSpec`; unsupported fields are errors."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from jaxformer.core.errors import UserError, check_choice, one_line, unknown
from jaxformer.core.hub_names import ACTIVATIONS
from jaxformer.models.pretrained.rotary import Rotary
from jaxformer.models.pretrained.spec import PretrainedSpec

Config = Mapping[str, Any]
# {family: {field that changes the function: its only supported value}}
FIXED = {
    "gpt2": {
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
    },
    "gpt_neox": {"attention_bias": True},
    "llama": {},
    "phi3": {},
}


def describe(hf_config: Config, file: str = "config.json") -> PretrainedSpec:
    """Returns the spec of a Hugging Face config.json.

    Args:
      hf_config: the content of the file.
      file: its name in error messages.
    """
    family = hf_config.get("model_type")
    if not isinstance(family, str) or family not in READERS:
        raise unknown(f"model_type in {file}:", one_line(family, 60), READERS)
    if hf_config.get("quantization_config"):
        raise UserError(f"{file}: quantised weights are not supported; use the unquantised model.")
    for name, value in FIXED[family].items():
        if hf_config.get(name, value) != value:
            raise UserError(f"{file}: {name} must be {value!r}, got {hf_config[name]!r}.")
    try:
        return READERS[family](hf_config)
    except UserError as error:
        raise UserError(f"{file}: {error}") from None
    except KeyError as error:
        raise UserError(f"{file} of a {family} model lacks the field {error}.") from None
    except (TypeError, ValueError, ArithmeticError, AttributeError) as error:
        reason = one_line(error, 120)
        raise UserError(f"{file}: a field has the wrong type or size: {reason}.") from None


def _gpt2(hf_config: Config) -> PretrainedSpec:
    width, heads = hf_config["n_embd"], hf_config["n_head"]
    return PretrainedSpec(
        family="gpt2",
        vocab_size=hf_config["vocab_size"],
        length=hf_config["n_positions"],
        width=width,
        layers=hf_config["n_layer"],
        heads=heads,
        kv_heads=heads,
        head_width=_divided(width, heads),
        mlp_width=hf_config.get("n_inner") or 4 * width,
        eps=hf_config["layer_norm_epsilon"],
        act=_act(hf_config.get("activation_function", "gelu_new")),
        tied=hf_config.get("tie_word_embeddings", True),
        learned_positions=True,
        qkv_bias=True,
        out_bias=True,
        mlp_bias=True,
    )


def _gpt_neox(hf_config: Config) -> PretrainedSpec:
    width, heads = hf_config["hidden_size"], hf_config["num_attention_heads"]
    head_width = _divided(width, heads)
    return PretrainedSpec(
        family="gpt_neox",
        vocab_size=hf_config["vocab_size"],
        length=hf_config["max_position_embeddings"],
        width=width,
        layers=hf_config["num_hidden_layers"],
        heads=heads,
        kv_heads=heads,
        head_width=head_width,
        mlp_width=hf_config["intermediate_size"],
        eps=hf_config["layer_norm_eps"],
        act=_act(hf_config.get("hidden_act", "gelu")),
        parallel=hf_config.get("use_parallel_residual", True),
        tied=hf_config.get("tie_word_embeddings", False),
        rotary=_rotary(hf_config, head_width, share=0.25),
        qkv_bias=True,
        out_bias=True,
        mlp_bias=True,
    )


def _llama(hf_config: Config) -> PretrainedSpec:
    width, heads = hf_config["hidden_size"], hf_config["num_attention_heads"]
    head_width = hf_config.get("head_dim") or _divided(width, heads)
    return PretrainedSpec(
        family="llama",
        vocab_size=hf_config["vocab_size"],
        length=hf_config["max_position_embeddings"],
        width=width,
        layers=hf_config["num_hidden_layers"],
        heads=heads,
        kv_heads=hf_config.get("num_key_value_heads") or heads,
        head_width=head_width,
        mlp_width=hf_config["intermediate_size"],
        norm="rms",
        eps=hf_config["rms_norm_eps"],
        act=_act(hf_config.get("hidden_act", "silu")),
        gated=True,
        tied=hf_config.get("tie_word_embeddings", False),
        rotary=_rotary(hf_config, head_width),
        qkv_bias=hf_config.get("attention_bias", False),
        out_bias=hf_config.get("attention_bias", False),
        mlp_bias=hf_config.get("mlp_bias", False),
    )


def _phi3(hf_config: Config) -> PretrainedSpec:
    """Reads Phi-3: a Llama with a window and without biases."""
    llama = _llama(dict(hf_config) | {"attention_bias": False, "mlp_bias": False, "head_dim": None})
    return replace(llama, family="phi3", window=hf_config.get("sliding_window") or 0)


READERS: dict[str, Callable[[Config], PretrainedSpec]] = {
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "llama": _llama,
    "phi3": _phi3,
}


def _rotary(hf_config: Config, head_width: int, share: float = 1.0) -> Rotary:
    """Reads the hub's fields (rope_theta, rope_scaling, rotary_pct, rotary_emb_base) or those of
    transformers 5 (rope_parameters)."""
    new = dict(hf_config.get("rope_scaling") or {}) | dict(hf_config.get("rope_parameters") or {})
    base = new.get(
        "rope_theta", hf_config.get("rope_theta", hf_config.get("rotary_emb_base", 10_000.0))
    )
    old_share = hf_config.get("partial_rotary_factor", hf_config.get("rotary_pct", share))
    plain = Rotary(int(head_width * new.get("partial_rotary_factor", old_share)), float(base))
    kind = str(new.get("rope_type") or new.get("type") or "default")
    kind = {"default": "plain", "su": "longrope"}.get(kind, kind)
    check_choice("rotary scaling", kind, ("plain", "linear", "llama3", "longrope"))
    if kind == "plain":
        return plain
    longest = hf_config["max_position_embeddings"]
    first = new.get("original_max_position_embeddings") or hf_config.get(
        "original_max_position_embeddings", longest
    )
    more: dict[str, Any] = {"kind": kind, "first_length": int(first)}
    if kind == "longrope":
        factor = new.get("factor") or longest / first
        scale = new.get("attention_factor")
        if scale is None:
            scale = math.sqrt(1 + math.log(factor) / math.log(first)) if factor > 1 else 1.0
        more |= {"short": tuple(new["short_factor"]), "long": tuple(new["long_factor"])}
        more |= {"scale": float(scale)}
    else:
        more["factor"] = float(new["factor"])
    if kind == "llama3":
        more |= {"low": new["low_freq_factor"], "high": new["high_freq_factor"]}
    return replace(plain, **more)


def _act(name: str) -> str:
    check_choice("activation", name, ACTIVATIONS)
    return ACTIVATIONS[name]


def _divided(width: int, heads: int) -> int:
    if heads < 1 or width % heads:
        raise UserError(f"{heads} heads do not divide the width {width}.")
    return width // heads
