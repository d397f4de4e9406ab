"""Converts a Hugging Face config.json to the `Architecture` that transformers initialises.

`READERS` has one function for each model type. A config that the recursion does not cover raises
UserError with the field that excludes it. Standard deviations are those of transformers'
`_init_weights`. A paper may have drawn its weights differently (Pythia); `Reading.assumptions`
states this.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from jaxformer.core.errors import UserError, unknown
from jaxformer.core.hub_names import ACTIVATIONS
from jaxformer.models.pretrained.gguf_file import is_gguf
from jaxformer.models.pretrained.gguf_model import GGUFModel
from theory.signal.architecture import Architecture
from theory.signal.config_fields import ConfigFields


class Reading(NamedTuple):
    """The content of a config.json."""

    architecture: Architecture
    length: int | None  # longest sequence
    is_text: bool  # inputs are tokens of a vocabulary, which can repeat
    assumptions: tuple[str, ...]  # simplifications for this model type
    model_type: str = ""
    init_std: float = 0.02


def read_config(
    path: Path,
    length: int | None = None,
    *,
    init_std: float | None = None,
    layers: int | None = None,
) -> Reading:
    """Reads a config.json, or the config that a GGUF file describes.

    Args:
      path: the file.
      length: number of tokens that will be read; UserError is raised if the model excludes it.
      init_std: replaces the config's initializer_range (initializer_factor in T5).
      layers: replaces the config's number of layers.
    """
    values = dict(GGUFModel(path).config) if is_gguf(path) else _json_object(path)
    model_type = values.get("model_type")
    if not isinstance(model_type, str) or model_type not in READERS:
        raise unknown("model_type", str(model_type), READERS)
    std_field = "initializer_factor" if model_type == "t5" else "initializer_range"
    if init_std is not None:
        values[std_field] = init_std
    if layers is not None:
        values |= {name: layers for name in LAYER_FIELDS if name in values}
    fields = ConfigFields(values)
    try:
        fields.require("add_cross_attention", False, reason="it adds a second kind of attention")
        reading = READERS[model_type](fields, length)
        std = fields.number(std_field, default=1.0 if model_type == "t5" else 0.02)
        return reading._replace(model_type=model_type, init_std=std)
    except UserError as error:
        raise UserError(f"{str(path)!r}: {error}") from None


def _json_object(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text())
    except OSError as error:
        raise UserError(f"cannot read {str(path)!r}: {error.strerror}.") from None
    except ValueError as error:  # not JSON, or not text
        raise UserError(f"{str(path)!r} is not JSON: {error}.") from None
    if not isinstance(values, dict):
        raise UserError(f"{str(path)!r} must hold a JSON object with a model_type.")
    return values


def _encoder(f: ConfigFields, length: int | None) -> Reading:
    """BERT and similar: tokens, positions and types of equal variance, then a LayerNorm."""
    reason = "the recursion has no positions in the scores"
    f.require("position_embedding_type", "absolute", reason=reason)
    reason = "sinusoidal positions of neighbours are correlated"
    f.require("sinusoidal_pos_embds", False, reason=reason)
    std, width = f.number("initializer_range", default=0.02), f.count("hidden_size", "dim")
    heads = f.count("num_attention_heads", "n_heads")
    is_distilbert = f.values["model_type"] == "distilbert"
    types = 0 if is_distilbert else f.count("type_vocab_size", default=2, least=0)
    embedding = f.count("embedding_size", default=width)
    arch = Architecture(
        **_square(std, width, heads),
        layers=f.count("num_hidden_layers", "n_layers"),
        mlp_width=f.count("intermediate_size", "hidden_dim", default=4 * width),
        activation=f.activation("hidden_act", "activation", default="gelu"),
        eps=f.number("layer_norm_eps", default=1e-12),
        causal=f.flag("is_decoder"),
        std_embed=std,
        std_position=std,
        std_type=std if types else 0.0,
        embed_norm=True,
        embed_gain=1.0 if embedding == width else embedding * std**2,
    )
    assumed = ("all tokens are in one segment (two segments halve rho0)",) if types else ()
    return Reading(arch, f.count("max_position_embeddings", default=512), True, assumed)


def _gpt2(f: ConfigFields, length: int | None) -> Reading:
    reason = "the scale of the scores differs between layers"
    f.require("scale_attn_by_inverse_layer_idx", False, reason=reason)
    std, width = f.number("initializer_range", default=0.02), f.count("n_embd", "hidden_size")
    layers, heads = f.count("n_layer", "num_hidden_layers"), f.count("n_head")
    scaled = std / math.sqrt(2 * layers)
    square: Any = _square(std, width, heads) | {"std_o": scaled, "std_2": scaled}
    if not f.flag("scale_attn_weights", True):
        square["score_scale"] = 1.0
    arch = Architecture(
        **square,
        layers=layers,
        mlp_width=f.count("n_inner", default=4 * width),
        activation=f.activation("activation_function", default="gelu_new"),
        eps=f.number("layer_norm_epsilon", default=1e-5),
        pre_norm=True,
        causal=True,
        std_embed=std,
        std_position=std,
    )
    return Reading(arch, f.count("n_positions", "n_ctx", default=1024), True, ())


def _llama(f: ConfigFields, length: int | None) -> Reading:
    """Llama, Mistral, Qwen2, Phi-3: RMSNorm, SwiGLU, rotary positions, grouped queries."""
    std, width = f.number("initializer_range", default=0.02), f.count("hidden_size")
    heads = f.count("num_attention_heads")
    longest = f.count("max_position_embeddings", default=2048)
    window = f.values.get("sliding_window")
    # Qwen2 configs have the field even when the window is not used.
    if window is not None and f.values.get("use_sliding_window", True) is not False:
        longest = min(longest, f.count("sliding_window"))
        if length is not None and length > longest:
            raise UserError(
                f"sliding_window: {window} is not supported at length {length}: a token would see "
                f"only some of the earlier tokens; --length {longest} is possible."
            )
    square = _square(std, width, heads, f.count("head_dim", default=max(1, width // heads)))
    arch = Architecture(
        **square,
        kv_heads=f.count("num_key_value_heads", default=heads),
        layers=f.count("num_hidden_layers"),
        mlp_width=f.count("intermediate_size"),
        activation=f.activation("hidden_act", default="silu"),
        norm="rms",
        eps=f.number("rms_norm_eps", default=1e-6),
        pre_norm=True,
        causal=True,
        gated=True,
        rotary=f.number("partial_rotary_factor", default=1.0),
        rotary_base=_rotary_fields(f).number("rope_theta", default=10_000.0),
        std_embed=std,
    )
    scaled = (SCALED,) if f.values.get("rope_scaling") else ()
    return Reading(arch, longest, True, (ROTARY, *scaled))


def _rotary_fields(f: ConfigFields) -> ConfigFields:
    """Returns all fields with those of the rotary positions, a section since transformers 5."""
    section = f.values.get("rope_parameters")
    return ConfigFields(f.values | (section if isinstance(section, dict) else {}))


def _gpt_neox(f: ConfigFields, length: int | None) -> Reading:
    std, width = f.number("initializer_range", default=0.02), f.count("hidden_size")
    arch = Architecture(
        **_square(std, width, f.count("num_attention_heads")),
        layers=f.count("num_hidden_layers"),
        mlp_width=f.count("intermediate_size"),
        activation=f.activation("hidden_act", default="gelu"),
        eps=f.number("layer_norm_eps", default=1e-5),
        pre_norm=True,
        causal=True,
        parallel=f.flag("use_parallel_residual", True),
        rotary=_rotary_fields(f).number("partial_rotary_factor", "rotary_pct", default=0.25),
        rotary_base=_rotary_fields(f).number("rotary_emb_base", "rope_theta", default=10_000.0),
        std_embed=std,
    )
    smaller = "weights are those of transformers; the Pythia suite used smaller ones"
    return Reading(arch, f.count("max_position_embeddings", default=2048), True, (ROTARY, smaller))


def _vit(f: ConfigFields, length: int | None) -> Reading:
    std, width = f.number("initializer_range", default=0.02), f.count("hidden_size")
    patch, channels = f.count("patch_size", default=16), f.count("num_channels", default=3)
    side = f.count("image_size", default=224) // patch
    arch = Architecture(
        **_square(std, width, f.count("num_attention_heads")),
        layers=f.count("num_hidden_layers"),
        mlp_width=f.count("intermediate_size"),
        activation=f.activation("hidden_act", default="gelu"),
        eps=f.number("layer_norm_eps", default=1e-12),
        pre_norm=True,
        std_embed=std * (patch**2 * channels) ** 0.5,
        std_position=std,
    )
    noise = "pixels are white noise of variance 1; for images give the cosine of patches as --rho0"
    return Reading(arch, side**2 + 1, False, (noise,))


def _t5(f: ConfigFields, length: int | None) -> Reading:
    """The encoder of T5, which scales each matrix by its fan-in and does not scale the scores."""
    factor, width = f.number("initializer_factor", default=1.0), f.count("d_model")
    heads, head_width = f.count("num_heads"), f.count("d_kv")
    mlp_width = f.count("d_ff")
    name = f.values.get("feed_forward_proj", "relu")
    if not isinstance(name, str):
        raise UserError(f"feed_forward_proj must be the name of an activation, got {name!r}.")
    is_gated = name.startswith("gated-")
    base_name = name.removeprefix("gated-")
    if base_name not in ACTIVATIONS:
        raise unknown("feed_forward_proj", name, [*ACTIVATIONS, "gated-gelu", "gated-silu"])
    # transformers reads "gated-gelu" as "gated-gelu_new".
    activation = "gelu_tanh" if name == "gated-gelu" else ACTIVATIONS[base_name]
    arch = Architecture(
        layers=f.count("num_layers"),
        width=width,
        heads=heads,
        head_width=head_width,
        mlp_width=mlp_width,
        std_q=factor * (width * head_width) ** -0.5,
        std_k=factor * width**-0.5,
        std_v=factor * width**-0.5,
        std_o=factor * (heads * head_width) ** -0.5,
        std_1=factor * width**-0.5,
        std_2=factor * mlp_width**-0.5,
        score_scale=1.0,
        activation=activation,
        gated=is_gated,
        norm="rms",
        eps=f.number("layer_norm_epsilon", default=1e-6),
        pre_norm=True,
        std_embed=factor,
    )
    assumed = ("the encoder alone", "relative positions, of variance 1/d in the scores, left out")
    return Reading(arch, f.count("n_positions", default=512), True, assumed)


def _albert(f: ConfigFields, length: int | None) -> Reading:
    raise UserError(
        "num_hidden_groups: ALBERT's layers share their weights; the recursion needs independent "
        "layers."
    )


def _square(std: float, width: int, heads: int, head_width: int | None = None) -> Any:
    """Returns the fields of an Architecture whose six matrices have one standard deviation."""
    if head_width is None and width % heads:
        raise UserError(f"{heads} heads do not divide the width {width}.")
    names = ("std_q", "std_k", "std_v", "std_o", "std_1", "std_2")
    head_width = width // heads if head_width is None else head_width
    sizes = {"width": width, "heads": heads, "head_width": head_width}
    return sizes | dict.fromkeys(names, std) | {"score_scale": head_width**-0.5}


LAYER_FIELDS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
ROTARY = "rotary positions count only by the share of a common direction that they preserve"
SCALED = "rotary positions are not scaled for long texts"
READERS: dict[str, Callable[[ConfigFields, int | None], Reading]] = {
    "albert": _albert,
    "bert": _encoder,
    "camembert": _encoder,
    "distilbert": _encoder,
    "electra": _encoder,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "llama": _llama,
    "mistral": _llama,
    "phi3": _llama,
    "qwen2": _llama,
    "roberta": _encoder,
    "t5": _t5,
    "vit": _vit,
    "xlm-roberta": _encoder,
}
