"""The protocol of a model: everything that training, captures, patching and cuts need of it.

    model.init(key, inputs) -> {"params": tree}
    model.apply({"params": tree}, inputs) -> logits (B, T, V)
    model.apply({"params": tree}, inputs, positions (B, K)) -> logits at these positions, (B, K, V)

Inputs are tokens (B, T). Tasks with `vocab_size` 0 have vectors (B, T, n) as inputs, and the output
is one number for each example, (B,). `model.spec` is a frozen dataclass of hyperparameters. It has
at least the fields

    vocab_size    V
    length        the longest sequence
    causal        whether a token depends on itself and earlier tokens only

`jaxformer.wrap` gives a Flax module of your own this form.
"""

import inspect
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core import paths
from jaxformer.core.config_fields import is_x64_on
from jaxformer.core.errors import UserError, check_range, check_types, one_line, unknown

Params = dict[str, Any]  # parameters by name, nested as the modules are
SPEC_FIELDS = ("vocab_size", "length", "causal")
# Larger sizes must be typos: they raise before anything is traced or allocated.
MAX_SIZES = {
    "vocab_size": 10**7,
    "length": 10**6,
    "width": 10**6,
    "layers": 10_000,
    "heads": 10**5,
    "mlp_width": 10**7,
    "mlp_multiplier": 10**4,
}
MAX_SCALE = 1e18  # its square is finite in float32


class Model(Protocol):
    """The methods and the attribute that the module's docstring describes."""

    spec: Any

    def init(self, rngs: Any, /, *inputs: Any) -> Any: ...

    def apply(self, variables: Any, /, *inputs: Any, mutable: Any = False) -> Any: ...


def check_sizes(spec: Any, *names: str, least: int = 1) -> None:
    """Raises unless these fields of a spec are between `least` and their value in MAX_SIZES."""
    for name in names:
        check_range(name, getattr(spec, name), least, MAX_SIZES[name])


def heads_error(heads: int, width: int) -> UserError:
    """Says which number of heads, close to the wrong one, divides the width."""
    divisors = [n for n in range(1, width + 1) if width % n == 0]
    close = min(divisors, key=lambda n: abs(n - heads), default=1)
    return UserError(f"{heads} heads do not divide the width {width}; {close} would.")


def make_spec(spec_type: type, numbers: Mapping[str, Any]) -> Any:
    """Returns the spec with these fields; raises UserError if one is unknown or missing."""
    known = {field.name: field for field in fields(spec_type)}
    for name in numbers:
        if name not in known:
            raise unknown(f"field of {spec_type.__name__}", name, known)
    optional = [
        name
        for name, field in known.items()
        if field.default is not MISSING or field.default_factory is not MISSING
    ]
    if missing := [name for name in known if name not in (*numbers, *optional)]:
        raise UserError(f"{spec_type.__name__} needs {', '.join(missing)}.")
    check_types(spec_type, numbers)
    for name in ("dtype", "param_dtype"):
        if name in numbers:
            _check_dtype(name, numbers[name])
    return spec_type(**numbers)


def _check_dtype(name: str, value: Any) -> None:
    """Raises unless parameters and activations can be numbers of this type."""
    try:
        dtype = jnp.dtype(value)
        is_possible = jnp.issubdtype(dtype, jnp.floating) and dtype.itemsize >= 2
    except TypeError:
        is_possible = False
    got = one_line(repr(value), 60)
    if not is_possible:
        raise UserError(f"{name} must be float32, bfloat16, float16 or float64, got {got}.")
    # Python's float is the default: float32, or float64 under x64.
    if value is not float and dtype == np.float64 and not is_x64_on():
        raise UserError(f"{name}={got} needs float64 to be on: with jax.enable_x64(True).")


def check_model(model: Any) -> None:
    """Raises, before anything is traced, unless the model follows the protocol."""
    check_not_equinox(model)
    name, spec = type(model).__name__, getattr(model, "spec", None)
    if missing := [field for field in SPEC_FIELDS if not hasattr(spec, field)]:
        raise UserError(
            f"{name}.spec must have the fields {', '.join(SPEC_FIELDS)}; got "
            f"{type(spec).__name__} without {', '.join(missing)}. "
            "jaxformer.wrap(module, vocab_size=.., length=..) adds them to a Flax module."
        )
    try:
        inspect.signature(model.__call__).bind("tokens", "positions")
    except TypeError:
        raise UserError(
            f"{name} must be called as (tokens, positions=None), to compute logits only where they "
            f"are scored; got {inspect.signature(model.__call__)}."
        ) from None


def check_not_equinox(module: Any) -> None:
    """Raises for an Equinox module, which is its own parameters and has no `init` and `apply`."""
    packages = {kind.__module__.partition(".")[0] for kind in type(module).__mro__}
    if "equinox" in packages:
        raise UserError(
            f"{type(module).__name__} is an Equinox module, and jaxformer takes those of Flax: "
            "write it with flax.linen or flax.nnx and give it to jaxformer.wrap, or give an object "
            "with spec, init and apply, whose apply combines the parameters with the module "
            "(jaxformer/models/model.py)."
        )


def check_logits(logits: jax.Array, targets: tuple[int, ...], vocab_size: int) -> None:
    """Raises while tracing unless there is one row of logits for each target.

    Without this check, logits (B, T, V) would broadcast against targets (B, 1) to a wrong loss.

    Args:
      logits: the output of the model.
      targets: the shape (B, K) of the targets.
      vocab_size: the expected number of logits of a row.
    """
    expected = (*targets, vocab_size) if vocab_size else targets[:1]
    if logits.shape == expected:
        return
    reason = "see the protocol in jaxformer/models/model.py."
    if len(logits.shape) == len(expected) == 3:
        reason = "does it ignore its argument `positions`?"
        if logits.shape[:2] == targets:
            reason = f"was it built for a vocabulary of {logits.shape[2]}?"
    axes = "examples, scored positions, vocabulary" if vocab_size else "examples"
    raise UserError(f"the model must give {expected} ({axes}), got {logits.shape}: {reason}")


def not_finite(params: Any) -> list[str]:
    """The addresses of parameters with a nan or an infinite number."""
    return [path for path, leaf in paths.flatten(params).items() if not _is_finite(leaf)]


def _is_finite(leaf: Any) -> bool:
    if isinstance(leaf, jax.Array):
        device = next(iter(leaf.devices()))
        if device.platform != "cpu" or not leaf.is_fully_addressable:
            return bool(jax.jit(lambda x: jnp.isfinite(x).all())(leaf))
    # A program for each shape would take longer than to read arrays of the host.
    return bool(np.isfinite(np.asarray(leaf)).all())


def current_arrays(model: Any, arrays: dict[str, Any]) -> dict[str, Any]:
    """Returns the arrays {path: array} of a checkpoint in the shapes that the model has now.

    A model whose shapes have changed has a method `convert_checkpoint(arrays)`.
    """
    convert = getattr(model, "convert_checkpoint", None)
    return arrays if convert is None else convert(arrays)


def take_positions(x_BxTx: jax.Array, positions_BxK: jax.Array | None) -> jax.Array:
    """Returns x at the positions, (B, K, ..), or all of x, (B, T, ..), without positions."""
    if positions_BxK is None:
        return x_BxTx
    index = jnp.expand_dims(positions_BxK, tuple(range(2, x_BxTx.ndim)))
    return jnp.take_along_axis(x_BxTx, index, axis=1)
