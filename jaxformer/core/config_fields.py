"""The fields of a config's section: checks against a dataclass, parsing, and conversion to JSON."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

import jax
import jax.numpy as jnp

from jaxformer.core.errors import UserError, check_choice, did_you_mean

DTYPES = ("bfloat16", "float16", "float32", "float64")


def split_name(
    section: Mapping[str, Any], kind: str, choices: Mapping[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Returns the name of a section and its other fields; raises UserError for an unknown name.

    Args:
        section: a section of a config, such as {"name": "retrieval", "vocab": 32}.
        kind: the kind of thing that the section names, for messages.
        choices: the accepted names.
    """
    options = dict(section)
    name = options.pop("name")
    check_choice(kind, name, choices)
    return name, options


def construct(where: str, function: Callable, spec: type, options: Mapping[str, Any]) -> Any:
    """Calls a constructor after a check of its arguments against the fields of a dataclass.

    Args:
        where: the section, for messages.
        function: the constructor; often the dataclass itself.
        spec: the dataclass.
        options: the arguments by name.
    """
    known = [field.name for field in fields(spec)]
    for name in options:
        if name not in known:
            hint = did_you_mean(name, known)
            raise UserError(f"{where} has no field {name!r}.{hint} It has: {', '.join(known)}.")
    # A required field has neither a default nor a factory of defaults.
    required = [f.name for f in fields(spec) if f.default is f.default_factory is MISSING]
    if missing := [name for name in required if name not in options]:
        raise UserError(f"{where} lacks {', '.join(missing)}.")
    return function(**options)


def parse_number(value: Any) -> Any:
    """Converts a string to a number if it is one: flags give numbers and names as strings."""
    if not isinstance(value, str):
        return value
    try:
        return float(value)
    except ValueError:
        return value


def is_x64_on() -> bool:
    """Tests whether JAX computes in float64."""
    return jax.dtypes.canonicalize_dtype(float).itemsize == 8


def dtype_of(name: str) -> Any:
    """Returns the dtype of a name; raises UserError for float64 while JAX computes in float32."""
    check_choice("dtype", name, DTYPES)
    if name == "float64" and not is_x64_on():
        raise UserError(
            "float64 needs JAX_ENABLE_X64=1; recipes that train run in float32 or bfloat16 only."
        )
    return jnp.dtype(name)


def json_fields(value: Any) -> dict[str, Any]:
    """Returns the fields of a dataclass as JSON values, {} for an object of another kind.

    A scalar type such as jnp.float32 becomes its name, and a random key its bits. A value
    that JSON cannot represent becomes the name of its class.
    """
    names = [field.name for field in fields(value)] if is_dataclass(value) else []
    return {name: _as_json(getattr(value, name)) for name in names}


def _as_json(value: Any) -> Any:
    if isinstance(value, str | int | float | bool | None):
        return value
    if isinstance(value, tuple | list):
        return [_as_json(entry) for entry in value]
    if isinstance(value, jax.Array) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        return jax.random.key_data(value).tolist()
    # Scalar types of JAX have no shape; arrays do.
    is_scalar_type = hasattr(value, "itemsize") and not hasattr(value, "shape")
    if isinstance(value, type) or is_scalar_type:
        return jax.dtypes.canonicalize_dtype(value).name
    return type(value).__name__
