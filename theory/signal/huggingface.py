"""Converts a Hugging Face config.json to the `Architecture` that it describes.

Decoders are read by the table of the loader (`jaxformer.models.pretrained.families`); `READERS`
has a function for each other model type. A config that the recursion of `theory.signal` does not
cover raises UserError with the field that excludes it. Standard deviations are those of
`_init_weights` in the library transformers. A paper may have drawn its weights differently
(Pythia), and then `Reading.assumptions` says so.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from jaxformer.core.errors import UserError, unknown
from jaxformer.models.pretrained.config_numbers import ACTIVATIONS, config_numbers
from jaxformer.models.pretrained.families import FAMILIES
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
    values = _json_object(path) if path.suffix == ".json" else _values_of_file(path)
    model_type = values.get("model_type")
    if not isinstance(model_type, str) or model_type not in READERS:
        raise unknown("model_type", str(model_type), READERS)
    std_field = STD_FIELDS.get(model_type, "initializer_range")
    if init_std is not None:
        values[std_field] = init_std
    if layers is not None:
        values |= {name: layers for name in LAYER_FIELDS if name in values}
        values = {name: value for name, value in values.items() if name not in PER_LAYER}
    fields = ConfigFields(values)
    try:
        fields.require("add_cross_attention", False, reason="it adds a second kind of attention")
        reading = READERS[model_type](fields, length)
        std = fields.number(std_field, default=reading.init_std)
        return reading._replace(model_type=model_type, init_std=std)
    except UserError as error:
        raise UserError(f"{str(path)!r}: {error}") from None


def _values_of_file(path: Path) -> dict[str, Any]:
    """Returns the config of a GGUF file or of a JSON file with another name."""
    # Reading GGUF imports jax, which takes longer than an answer about a config.json.
    from jaxformer.models.pretrained.gguf_file import is_gguf
    from jaxformer.models.pretrained.gguf_model import GGUFModel

    return dict(GGUFModel(path).config) if is_gguf(path) else _json_object(path)


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
    """Reads BERT and similar: tokens, positions and types of equal variance, then a LayerNorm."""
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
        **_equal_deviations(std, width, heads),
        layers=f.count("num_hidden_layers", "n_layers"),
        mlp_width=f.count("intermediate_size", "hidden_dim", default=4 * width),
        activation=f.activation("hidden_act", "activation", default="gelu"),
        eps=f.number("layer_norm_eps", default=1e-12),
        causal=f.flag("is_decoder"),
        std_embed=std,
        std_position=std,
        std_type=std if types else 0.0,
        embed_norm=True,
        # Embeddings of another width are projected to `width` (ELECTRA).
        embed_gain=1.0 if embedding == width else embedding * std**2,
    )
    assumed = ("all tokens are in one segment (two segments halve rho0)",) if types else ()
    return Reading(arch, f.count("max_position_embeddings", default=512), True, assumed)


def _decoder(f: ConfigFields, length: int | None) -> Reading:
    """Reads a decoder by the table with which `jaxformer.load` reads its family."""
    # The reader requires a vocabulary size, which the recursion does not use.
    settings: Any = DEFAULTS | config_numbers({"vocab_size": 1} | f.values)
    if settings["scale_by_layer"]:
        raise UserError(
            "scale_attn_by_inverse_layer_idx: True is not supported: the scale of the scores "
            "differs between layers."
        )
    if settings["alibi"]:
        raise UserError("alibi: True is not supported: the recursion has no positions in scores.")
    if settings["experts"]:
        raise UserError(
            f"{f.values['model_type']} is not supported: each token uses a few experts of its own, "
            "and the recursion needs one MLP for all tokens."
        )
    longest, window = settings["length"], settings["window"]
    # `windowed` has a boolean for each block. If it is empty, all blocks have the window.
    if window and (not settings["windowed"] or any(settings["windowed"])):
        longest = min(longest, window)
        if length is not None and length > longest:
            raise UserError(
                f"sliding_window: {window} is not supported at length {length}: a token would see "
                f"only some of the earlier tokens; --length {longest} is possible."
            )
    std, width, layers = settings["init_std"], settings["width"], settings["layers"]
    matrices: Any = _equal_deviations(std, width, settings["heads"], settings["head_width"])
    if settings["score_scale"]:
        matrices["score_scale"] = settings["score_scale"]
    if f.values["model_type"] == "gpt2":  # the last matrix of each branch is smaller
        matrices |= dict.fromkeys(("std_o", "std_2"), std / math.sqrt(2 * layers))
    std_embed = std * settings["embed_scale"]
    if settings["embed_width"]:  # a projection with the same standard deviation follows
        std_embed *= std * settings["embed_width"] ** 0.5
    rotary = settings["rotary"] or {"width": 0, "base": 10_000.0}
    arch = Architecture(
        **matrices,
        kv_heads=settings["kv_heads"],
        layers=layers,
        mlp_width=settings["mlp_width"],
        activation=settings["act"],
        norm=settings["norm"],
        eps=settings["eps"],
        # Norms of a branch are at its "input", its "output" or "both", or after the "sum".
        pre_norm=settings["norm_at"] != "sum",
        input_norm=settings["norm_at"] != "output",
        output_norm=settings["norm_at"] in ("output", "both"),
        qk_norm=bool(settings["qk_norm"]),
        causal=True,
        parallel=settings["parallel"],
        gated=settings["gated"],
        rotary=rotary["width"] / settings["head_width"],
        rotary_base=rotary["base"],
        std_embed=std_embed,
        std_position=std if settings["learned_positions"] else 0.0,
    )
    return Reading(arch, longest, True, _assumptions(settings), init_std=std)


def _assumptions(settings: dict[str, Any]) -> tuple[str, ...]:
    """Returns what the recursion leaves out for a decoder."""
    rotary = settings["rotary"]
    present = {
        ROTARY: rotary is not None,
        SCALED: rotary is not None and rotary.get("kind", "plain") != "plain",
        NOPE: not all(settings["rotated"]),
        CAPPED: settings["score_cap"] or settings["clip"],
        PYTHIA: settings["family"] == "gpt_neox",
    }
    return tuple(text for text, is_present in present.items() if is_present)


def _vit(f: ConfigFields, length: int | None) -> Reading:
    std, width = f.number("initializer_range", default=0.02), f.count("hidden_size")
    patch, channels = f.count("patch_size", default=16), f.count("num_channels", default=3)
    side = f.count("image_size", default=224) // patch
    arch = Architecture(
        **_equal_deviations(std, width, f.count("num_attention_heads")),
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
    """Reads the encoder of T5: matrices scale with their fan-in, and scores are not scaled."""
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
    return Reading(arch, f.count("n_positions", default=512), True, assumed, init_std=1.0)


def _albert(f: ConfigFields, length: int | None) -> Reading:
    raise UserError(
        "num_hidden_groups: ALBERT's layers share their weights; the recursion needs independent "
        "layers."
    )


def _equal_deviations(std: float, width: int, heads: int, head_width: int | None = None) -> Any:
    """Returns the fields of an Architecture whose six matrices have one standard deviation."""
    if head_width is None and width % heads:
        raise UserError(f"{heads} heads do not divide the width {width}.")
    names = ("std_q", "std_k", "std_v", "std_o", "std_1", "std_2")
    head_width = width // heads if head_width is None else head_width
    sizes = {"width": width, "heads": heads, "head_width": head_width}
    return sizes | dict.fromkeys(names, std) | {"score_scale": head_width**-0.5}


# Names of the field with the standard deviation, other than initializer_range.
STD_FIELDS = {"t5": "initializer_factor", "opt": "init_std"}
LAYER_FIELDS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
# Fields with one entry per layer, left out if `layers` replaces the number of layers.
PER_LAYER = ("layer_types", "no_rope_layers", "attention_types", "attention_layers")
# Settings that `config_numbers` may leave out, with their defaults in PretrainedSpec.
DEFAULTS = {
    "norm": "layer",
    "norm_at": "input",
    "qk_norm": "",
    "gated": False,
    "parallel": False,
    "scale_by_layer": False,
    "alibi": False,
    "experts": 0,
    "window": 0,
    "windowed": (),
    "score_scale": 0.0,
    "embed_scale": 1.0,
    "embed_width": 0,
    "rotary": None,
    "rotated": (),
    "learned_positions": False,
}
# Assumptions about decoders.
ROTARY = "rotary positions are included only by their effect on a direction that all keys share"
SCALED = "rotary positions are not scaled for long texts"
NOPE = "blocks without rotary positions are treated like the others"
CAPPED = "limits of scores, queries and keys are left out; they are far above the initial values"
PYTHIA = "weights are those of transformers; the Pythia suite used smaller ones"
READERS: dict[str, Callable[[ConfigFields, int | None], Reading]] = {
    **dict.fromkeys(FAMILIES, _decoder),
    "albert": _albert,
    "bert": _encoder,
    "camembert": _encoder,
    "distilbert": _encoder,
    "electra": _encoder,
    "roberta": _encoder,
    "t5": _t5,
    "vit": _vit,
    "xlm-roberta": _encoder,
}
