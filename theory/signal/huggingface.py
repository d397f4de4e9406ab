"""A Hugging Face config.json as an `Architecture`: what transformers draws for each model type.

A function a model type, in one dictionary. What the recursion cannot judge is refused with the
field that rules it out. Deviations are those of transformers' own `_init_weights`; weights that a
paper drew differently (Pythia) are those of its config all the same, and the answer says so.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from jaxformer.core.errors import UserError, unknown
from jaxformer.core.hub_names import ACTIVATIONS
from theory.signal.architecture import Architecture
from theory.signal.config_fields import Fields


class Reading(NamedTuple):
    """What a config.json says."""

    architecture: Architecture
    length: int | None  # the longest sequence, if the config has one
    repeats: bool  # inputs are words, which can be repeated
    assumptions: tuple[str, ...]  # what is taken for granted of this model type
    model_type: str = ""
    init_std: float = 0.02


def read(
    path: Path,
    length: int | None = None,
    *,
    init_std: float | None = None,
    layers: int | None = None,
) -> Reading:
    """The architecture of a config.json; `length` is the one asked for, if one is.

    `init_std` and `layers` replace what the config says of them.
    """
    try:
        held = json.loads(path.read_text())
    except OSError as error:
        raise UserError(f"cannot read {str(path)!r}: {error.strerror}.") from None
    except ValueError as error:  # not JSON, or not text
        raise UserError(f"{str(path)!r} is not JSON: {error}.") from None
    if not isinstance(held, dict):
        raise UserError(f"{str(path)!r} must hold a JSON object with a model_type.")
    kind = held.get("model_type")
    if not isinstance(kind, str) or kind not in READERS:
        raise unknown("model_type", str(kind), READERS)
    deviation = "initializer_factor" if kind == "t5" else "initializer_range"
    if init_std is not None:
        held[deviation] = init_std
    if layers is not None:
        held |= {name: layers for name in LAYERS if name in held}
    fields = Fields(held)
    try:
        fields.rule_out("add_cross_attention", False, why="it adds a second kind of attention")
        reading = READERS[kind](fields, length)
        std = fields.number(deviation, default=1.0 if kind == "t5" else 0.02)
        return reading._replace(model_type=kind, init_std=std)
    except UserError as error:
        raise UserError(f"{str(path)!r}: {error}") from None


def _encoder(f: Fields, length: int | None) -> Reading:
    """BERT and its like: words, positions and types of equal variance, then a LayerNorm."""
    why = "positions that enter the scores are not in the recursion"
    f.rule_out("position_embedding_type", "absolute", why=why)
    f.rule_out("sinusoidal_pos_embds", False, why="sines are alike for neighbours, unlike words")
    std, width = f.number("initializer_range", default=0.02), f.count("hidden_size", "dim")
    heads = f.count("num_attention_heads", "n_heads")
    distil = f.held["model_type"] == "distilbert"
    types = 0 if distil else _types(f)
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
    said = ("all tokens are of one segment (two segments halve rho0)",) if types else ()
    return Reading(arch, f.count("max_position_embeddings", default=512), True, said)


def _types(f: Fields) -> int:
    value = f.held.get("type_vocab_size", 2)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise UserError(f"type_vocab_size must be a whole number of at least 0, got {value!r}.")
    return value


def _gpt2(f: Fields, length: int | None) -> Reading:
    why = "each layer then has scores of its own size"
    f.rule_out("scale_attn_by_inverse_layer_idx", False, why=why)
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


def _llama(f: Fields, length: int | None) -> Reading:
    """Llama, Mistral, Qwen2, Phi-3: RMSNorm, SwiGLU, rotary positions, grouped queries."""
    std, width = f.number("initializer_range", default=0.02), f.count("hidden_size")
    heads = f.count("num_attention_heads")
    longest = f.count("max_position_embeddings", default=2048)
    window = f.held.get("sliding_window")
    # Qwen2 writes the number also where it does not use it.
    if window is not None and f.held.get("use_sliding_window", True) is not False:
        longest = min(longest, f.count("sliding_window"))
        if length is not None and length > longest:
            raise UserError(
                f"sliding_window: {window} is not judged at length {length}: a token then sees "
                f"only some of those before it; --length {longest} is possible."
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
        rotary_base=_turn(f).number("rope_theta", default=10_000.0),
        std_embed=std,
    )
    scaled = (SCALED,) if f.held.get("rope_scaling") else ()
    return Reading(arch, longest, True, (ROTARY, *scaled))


def _turn(f: Fields) -> Fields:
    """The fields of the rotation: transformers 5 writes them in a section of their own."""
    section = f.held.get("rope_parameters")
    return Fields(f.held | (section if isinstance(section, dict) else {}))


def _gpt_neox(f: Fields, length: int | None) -> Reading:
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
        rotary=_turn(f).number("partial_rotary_factor", "rotary_pct", default=0.25),
        rotary_base=_turn(f).number("rotary_emb_base", "rope_theta", default=10_000.0),
        std_embed=std,
    )
    drawn = "weights as transformers draws them; the Pythia suite itself drew its own smaller ones"
    return Reading(arch, f.count("max_position_embeddings", default=2048), True, (ROTARY, drawn))


def _vit(f: Fields, length: int | None) -> Reading:
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
    white = "pixels are white noise of variance 1; of images give the cosine of patches as --rho0"
    return Reading(arch, side**2 + 1, False, (white,))


def _t5(f: Fields, length: int | None) -> Reading:
    """The encoder. T5 draws each matrix by its own fan-in and does not scale its scores."""
    factor, width = f.number("initializer_factor", default=1.0), f.count("d_model")
    heads, head_width = f.count("num_heads"), f.count("d_kv")
    mlp_width = f.count("d_ff")
    name = f.held.get("feed_forward_proj", "relu")
    if not isinstance(name, str):
        raise UserError(f"feed_forward_proj must be the name of an activation, got {name!r}.")
    gated = name.startswith("gated-")
    plain = name.removeprefix("gated-")
    if plain not in ACTIVATIONS:
        raise unknown("feed_forward_proj", name, [*ACTIVATIONS, "gated-gelu", "gated-silu"])
    # transformers reads "gated-gelu" as gated-gelu_new.
    activation = "gelu_tanh" if name == "gated-gelu" else ACTIVATIONS[plain]
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
        gated=gated,
        norm="rms",
        eps=f.number("layer_norm_epsilon", default=1e-6),
        pre_norm=True,
        std_embed=factor,
    )
    said = ("the encoder alone", "relative positions, of variance 1/d in the scores, left out")
    return Reading(arch, f.count("n_positions", default=512), True, said)


def _albert(f: Fields, length: int | None) -> Reading:
    raise UserError(
        "num_hidden_groups: ALBERT's layers share their weights; the recursion holds for layers "
        "that are drawn one by one."
    )


def _square(std: float, width: int, heads: int, head_width: int | None = None) -> Any:
    """Matrices of one deviation, heads that fill the width."""
    if head_width is None and width % heads:
        raise UserError(f"{heads} heads do not divide the width {width}.")
    names = ("std_q", "std_k", "std_v", "std_o", "std_1", "std_2")
    head_width = width // heads if head_width is None else head_width
    sizes = {"width": width, "heads": heads, "head_width": head_width}
    return sizes | dict.fromkeys(names, std) | {"score_scale": head_width**-0.5}


LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
ROTARY = "rotary positions: only how much of a shared direction they turn away is counted"
SCALED = "rotary positions turn as without their scaling for long texts"
READERS: dict[str, Callable[[Fields, int | None], Reading]] = {
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
