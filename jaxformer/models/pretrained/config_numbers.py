"""Reads the content of a config.json as the numbers of a network, by the rows of `families`.

It does not import jax, like everything that it needs (see `family`).
"""

from jaxformer.core.errors import UserError, check_choice, check_range, one_line
from jaxformer.models.pretrained.config_fields import check_fields
from jaxformer.models.pretrained.families import FAMILIES
from jaxformer.models.pretrained.family import REQUIRED, Config, Family, Numbers
from jaxformer.models.pretrained.rotary_fields import ROTARY_FIELDS, read_rotary
from jaxformer.models.pretrained.window_fields import WINDOW_FIELDS

# {activation function in transformers: in jaxformer}
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "silu": "silu",
    "swish": "silu",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}
MAX_LAYERS = 10_000
# {field: its names in configs of other versions of transformers}
ALIASES = {
    "hidden_size": ("n_embd", "n_embed", "d_model"),
    "num_hidden_layers": ("n_layer", "num_layers"),
    "num_attention_heads": ("n_head", "num_heads"),
    "max_position_embeddings": ("n_positions", "n_ctx"),
    "num_kv_heads": ("n_head_kv",),
    "n_embd": ("hidden_size",),
    "n_layer": ("num_hidden_layers",),
    "n_head": ("num_attention_heads",),
    "n_positions": ("max_position_embeddings", "n_ctx"),
    "num_layers": ("num_hidden_layers",),
    "num_heads": ("num_attention_heads",),
}


# Families that readers try and that one causal or two-sided network over tokens does not cover.
OUT_OF_SCOPE = {
    "t5": "cross attention reads the output of an encoder",
    "vit": "patches of an image take the place of tokens",
}


def config_numbers(config: Config) -> Numbers:
    """The numbers of a published model: the arguments of a `PretrainedSpec`.

    Rotary positions are given as a dictionary of the arguments of a `Rotary`.

    Args:
      config: the content of config.json.

    Raises:
      UserError: for a family or field that is not supported, and for a missing field.
    """
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        name, reason = one_line(repr(model_type), 60), OUT_OF_SCOPE.get(str(model_type), "")
        raise UserError(
            f"model_type {name} is not supported{reason and ': '}{reason}. "
            f"Supported are: {', '.join(sorted(FAMILIES))}."
        )
    family = FAMILIES[model_type]
    if config.get("quantization_config") and "quantization_config" not in family.further:
        raise UserError("quantised weights are not supported; use the unquantised model.")
    for name, supported in family.only.items():
        if config.get(name) is not None and config[name] not in supported:
            raise UserError(
                f"{name} must be {' or '.join(map(repr, supported))}, got "
                f"{one_line(repr(config[name]), 60)}."
            )
    check_fields(config, _fields_of(family))
    try:
        return _numbers(config, family)
    except UserError:
        raise
    except KeyError as error:
        raise UserError(f"a {model_type} model lacks the field {error}.") from None
    except (TypeError, ValueError, ArithmeticError, AttributeError) as error:
        reason = one_line(error, 120)
        raise UserError(f"a field has the wrong type or size: {reason}.") from None


def _fields_of(family: Family) -> set[str]:
    """Returns the names of all fields of config.json that are read for a family."""
    fields = {name for name, _ in family.fields.values()} | {*family.only, *family.further}
    fields |= {alias for name in fields for alias in ALIASES.get(name, ())}
    fields |= {*WINDOW_FIELDS} if family.windows else set()
    return fields | {*ROTARY_FIELDS} if family.rotary is not None else fields


def _numbers(config: Config, family: Family) -> Numbers:
    """Returns the arguments of a `PretrainedSpec`; raises KeyError for a missing field."""
    numbers = {"family": config["model_type"]}
    for argument, (field, default) in family.fields.items():
        names = (field, *ALIASES.get(field, ()))
        numbers[argument] = next((config[name] for name in names if name in config), default)
        if numbers[argument] is REQUIRED:
            raise KeyError(field)
    check_choice("activation", numbers["act"], ACTIVATIONS)
    numbers["act"] = ACTIVATIONS[numbers["act"]]
    numbers |= family.constants
    check_range("layers", numbers["layers"], 1, MAX_LAYERS)
    width, heads = numbers["width"], numbers["heads"]
    if numbers.get("head_width") is None:
        if heads < 1 or width % heads:
            raise UserError(f"{heads} heads do not divide the width {width}.")
        numbers["head_width"] = width // heads
    # A field that config.json lacks or that is null has the value None here.
    defaults = {"kv_heads": heads, "mlp_width": 4 * width}
    defaults |= {"clip": 0.0, "score_cap": 0.0, "logit_cap": 0.0}
    for name, value in defaults.items():
        if numbers.get(name) is None:
            numbers[name] = value
    if family.windows is not None:
        numbers["window"], numbers["windowed"] = family.windows(config, numbers["layers"])
    if family.rotary is not None:
        numbers["rotary"] = read_rotary(
            config,
            numbers["head_width"],
            family.rotary,
            family.base,
            family.partial,
            family.rotary_kinds,
        )
    if family.finish is not None:
        family.finish(config, numbers)
    return numbers
