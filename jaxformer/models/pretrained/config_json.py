"""config.json of a published model -> `PretrainedSpec`; what we cannot build is an error."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from jaxformer.core.errors import UserError, check_choice, one_line, unknown
from jaxformer.core.hub_names import ACTIVATIONS
from jaxformer.models.pretrained.rotary import Rotary
from jaxformer.models.pretrained.spec import PretrainedSpec

Config = Mapping[str, Any]
# Fields that would change the function, and the only value that is built.
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


def describe(told: Config, file: str = "config.json") -> PretrainedSpec:
    """The numbers that a config.json of Hugging Face tells."""
    family = told.get("model_type")
    if not isinstance(family, str) or family not in READERS:
        raise unknown(f"model_type in {file}:", one_line(family, 60), READERS)
    if told.get("quantization_config"):
        raise UserError(f"{file}: quantised weights are not built; ask for the model without.")
    for name, value in FIXED[family].items():
        if told.get(name, value) != value:
            raise UserError(f"{file}: {name}: {told[name]!r} is not built; only {value!r} is.")
    try:
        return READERS[family](told)
    except UserError as error:
        raise UserError(f"{file}: {error}") from None
    except KeyError as error:
        raise UserError(f"{file} of a {family} model lacks the field {error}.") from None
    except (TypeError, ValueError, ArithmeticError, AttributeError) as error:
        words = one_line(error, 120)
        raise UserError(f"{file}: a field has the wrong type or size: {words}.") from None


def _gpt2(told: Config) -> PretrainedSpec:
    width, heads = told["n_embd"], told["n_head"]
    return PretrainedSpec(
        family="gpt2",
        vocab_size=told["vocab_size"],
        length=told["n_positions"],
        width=width,
        layers=told["n_layer"],
        heads=heads,
        kv_heads=heads,
        head_width=_divided(width, heads),
        mlp_width=told.get("n_inner") or 4 * width,
        eps=told["layer_norm_epsilon"],
        act=_act(told.get("activation_function", "gelu_new")),
        tied=told.get("tie_word_embeddings", True),
        learned_positions=True,
        qkv_bias=True,
        out_bias=True,
        mlp_bias=True,
    )


def _gpt_neox(told: Config) -> PretrainedSpec:
    width, heads = told["hidden_size"], told["num_attention_heads"]
    head_width = _divided(width, heads)
    return PretrainedSpec(
        family="gpt_neox",
        vocab_size=told["vocab_size"],
        length=told["max_position_embeddings"],
        width=width,
        layers=told["num_hidden_layers"],
        heads=heads,
        kv_heads=heads,
        head_width=head_width,
        mlp_width=told["intermediate_size"],
        eps=told["layer_norm_eps"],
        act=_act(told.get("hidden_act", "gelu")),
        parallel=told.get("use_parallel_residual", True),
        tied=told.get("tie_word_embeddings", False),
        rotary=_rotary(told, head_width, share=0.25),
        qkv_bias=True,
        out_bias=True,
        mlp_bias=True,
    )


def _llama(told: Config) -> PretrainedSpec:
    width, heads = told["hidden_size"], told["num_attention_heads"]
    head_width = told.get("head_dim") or _divided(width, heads)
    return PretrainedSpec(
        family="llama",
        vocab_size=told["vocab_size"],
        length=told["max_position_embeddings"],
        width=width,
        layers=told["num_hidden_layers"],
        heads=heads,
        kv_heads=told.get("num_key_value_heads") or heads,
        head_width=head_width,
        mlp_width=told["intermediate_size"],
        norm="rms",
        eps=told["rms_norm_eps"],
        act=_act(told.get("hidden_act", "silu")),
        gated=True,
        tied=told.get("tie_word_embeddings", False),
        rotary=_rotary(told, head_width),
        qkv_bias=told.get("attention_bias", False),
        out_bias=told.get("attention_bias", False),
        mlp_bias=told.get("mlp_bias", False),
    )


def _phi3(told: Config) -> PretrainedSpec:
    """Like Llama, except for a window and no biases."""
    like = _llama(dict(told) | {"attention_bias": False, "mlp_bias": False, "head_dim": None})
    return replace(like, family="phi3", window=told.get("sliding_window") or 0)


READERS: dict[str, Callable[[Config], PretrainedSpec]] = {
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "llama": _llama,
    "phi3": _phi3,
}


def _rotary(told: Config, head_width: int, share: float = 1.0) -> Rotary:
    """Of the hub's fields (rope_theta, rope_scaling, rotary_pct, rotary_emb_base), or of those that
    transformers 5 writes (rope_parameters)."""
    new = dict(told.get("rope_scaling") or {}) | dict(told.get("rope_parameters") or {})
    base = new.get("rope_theta", told.get("rope_theta", told.get("rotary_emb_base", 10_000.0)))
    old_share = told.get("partial_rotary_factor", told.get("rotary_pct", share))
    plain = Rotary(int(head_width * new.get("partial_rotary_factor", old_share)), float(base))
    kind = str(new.get("rope_type") or new.get("type") or "default")
    kind = {"default": "plain", "su": "longrope"}.get(kind, kind)
    check_choice("rotary scaling", kind, ("plain", "linear", "llama3", "longrope"))
    if kind == "plain":
        return plain
    longest = told["max_position_embeddings"]
    first = new.get("original_max_position_embeddings") or told.get(
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
