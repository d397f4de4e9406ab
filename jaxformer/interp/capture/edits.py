"""Replacements of activations, and the heads and positions to which they apply."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError
from jaxformer.models.activation_points import first_token, new_value

# Names of activations by the axes that they have.
BY_HEAD = (  # (B, T, H, D)
    "queries",
    "keys",
    "values",
    "turned_queries",
    "turned_keys",
    "heads",
    "mixed",
)
BY_PAIR = ("scores", "masked_scores", "weights")  # (B, H, T, S)
Where = int | Sequence[int] | jax.Array | None  # indices of heads or positions; None: all


def zero(value: jax.Array) -> jax.Array:
    """Zero ablation: returns zeros."""
    return jnp.zeros_like(value)


def mean(value: jax.Array) -> jax.Array:
    """Mean ablation: returns the mean over the batch at each position."""
    _check_batch("the mean over the batch", value)
    return jnp.broadcast_to(value.mean(0, keepdims=True), value.shape)


@jax.tree_util.register_pytree_node_class
class resample:
    """Resampling ablation: gives each example the value of another, drawn by `key`."""

    def __init__(self, key: jax.Array):
        self.key = key

    def __call__(self, value: jax.Array) -> jax.Array:
        _check_batch("resampling", value)
        order = jax.random.permutation(self.key, len(value))
        return jnp.zeros_like(value).at[order].set(value[jnp.roll(order, 1)])

    def tree_flatten(self):
        return (self.key,), None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)


@jax.tree_util.register_pytree_node_class
class plus:
    """Steering: adds a term, such as a vector (N,), to an activation."""

    def __init__(self, term: Any):
        self.term = term

    def __call__(self, value: jax.Array) -> jax.Array:
        term = jnp.asarray(self.term).astype(value.dtype)
        return value + jnp.expand_dims(term, range(value.ndim - term.ndim))

    def tree_flatten(self):
        return (self.term,), None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)


@jax.tree_util.register_pytree_node_class
class at:
    """Restricts a replacement to some heads and positions; elsewhere the old value stays.

    Its arrays are arguments of a compiled program: a call with other values does not compile it
    again.

    Args:
        new: a replacement as in `intervene`.
        heads: an index or indices, which may be traced; None for all.
        positions: an index or indices, which may be traced; None for all. In `jaxformer.generate`
            they count from the first column of the prompts to the last new token.
    """

    takes_address = True  # `activation_points.new_value` also passes the address to `__call__`

    def __init__(self, new: Any, heads: Where = None, positions: Where = None):
        self.new, self.heads, self.positions = new, heads, positions

    def __call__(self, value: jax.Array, address: str) -> jax.Array:
        replacement = new_value(address, value, self.new)
        if replacement.shape not in ((), value.shape):
            raise UserError(
                f"{address} has the shape {value.shape}, its replacement has {replacement.shape}. "
                "Give an array of the whole shape, or a number."
            )
        chosen = mask(address, value.shape, self.heads, self.positions)
        return jnp.where(chosen, replacement, value)

    def tree_flatten(self):
        # Arrays of indices are children of the tree, other indices are static.
        indices = self.heads, self.positions
        arrays = [index if hasattr(index, "dtype") else None for index in indices]
        are_static = tuple(array is None for array in arrays)
        static = [
            tuple(index) if isinstance(index, Sequence) else index
            for index, array in zip(indices, arrays, strict=True)
            if array is None
        ]
        return (self.new, *arrays), (are_static, tuple(static))

    @classmethod
    def tree_unflatten(cls, static_parts, children):
        are_static, static = static_parts[0], list(static_parts[1])
        new, *arrays = children
        indices = [
            static.pop(0) if is_static else array
            for is_static, array in zip(are_static, arrays, strict=True)
        ]
        return cls(new, *indices)


@jax.tree_util.register_pytree_node_class
class Chosen:
    """`at` with booleans in place of heads and positions, so that other choices have its shapes."""

    def __init__(self, new: Any, chosen: Any):
        self.new, self.chosen = new, chosen

    def __call__(self, value: jax.Array) -> jax.Array:
        return jnp.where(self.chosen, new_value("", value, self.new), value)

    def tree_flatten(self):
        return (self.new, self.chosen), None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)


@jax.tree_util.register_static
@dataclass(frozen=True)
class Known:
    """A function of this module, which is a part of a compiled program."""

    function: Callable[[jax.Array], jax.Array]

    def __call__(self, value: jax.Array) -> jax.Array:
        return self.function(value)


def is_own(new: Any) -> bool:
    """Whether a kept program may contain an edit: arrays, numbers, and functions of this module.

    A function of the caller may read what has changed since the program was compiled. That holds
    for a class of the caller too, even if JAX sees a tree of arrays in it.
    """
    if isinstance(new, at):
        return is_own(new.new)
    if callable(new):
        return new is zero or new is mean or type(new) in (plus, resample)
    return True


def as_argument(new: Any, address: str, shape: tuple[int, ...]) -> Any:
    """Returns a replacement of an activation as the argument of a compiled program.

    Arrays become leaves. A function of the caller becomes a leaf that can be called.
    """
    if isinstance(new, at):
        chosen = mask(address, shape, new.heads, new.positions)
        replacement = as_argument(new.new, address, shape)
        if not callable(replacement) and jnp.shape(replacement) not in ((), shape):
            raise UserError(f"{address} has the shape {shape}, its replacement another one.")
        return Chosen(replacement, chosen)
    if new is zero or new is mean:
        return Known(new)
    if getattr(new, "takes_address", False):
        return lambda value: new(value, address)
    if not is_own(new):
        return lambda value: new(value)  # so that JAX looks for no arrays in it
    if callable(new) or hasattr(new, "dtype") or isinstance(new, int | float):
        return new
    raise UserError(f"the new value of {address} must be an array, got {type(new).__name__}.")


def mask(address: str, shape: tuple[int, ...], heads: Where, positions: Where) -> Any:
    """Returns booleans that broadcast to `shape` and are true at these heads and positions.

    Args:
        address: the address of an activation, which determines its axes of positions and heads.
        shape: the shape of the activation.
        heads: an index or indices of heads; None selects all.
        positions: an index or indices of positions in the prompt; None selects all.
    """
    selected: Any = np.ones((1,) * len(shape), bool)
    for kind, index in (("head", heads), ("position", positions)):
        if index is None:
            continue
        axis = axes(address, len(shape))[kind]
        if axis is None:
            raise UserError(f"{address} of shape {shape} has no axis of {kind}s.")
        # In a run that continues a text, the first token has the position `start`.
        start = first_token() if kind == "position" else None
        numbers = _numbers(index)
        if start is None and numbers is not None:
            _check_index(address, kind, numbers, shape[axis])
            on_axis = np.isin(np.arange(shape[axis]), numbers)
        else:
            start = 0 if start is None else start
            on_axis = jnp.isin(start + jnp.arange(shape[axis]), jnp.asarray(index))
        other_axes = [i for i in range(len(shape)) if i != axis]
        expanded = np.expand_dims if isinstance(on_axis, np.ndarray) else jnp.expand_dims
        selected = selected & expanded(on_axis, other_axes)
    return selected


def axes(address: str, ndim: int) -> dict[str, int | None]:
    """Returns the axes of an activation that count query positions and heads; None without one."""
    name = address.rsplit("/", 1)[-1]
    if name in BY_HEAD and ndim == 4:
        return {"position": 1, "head": 2}
    if name.startswith("output") and ndim == 4:  # a projection to heads of a module of Flax
        return {"position": 1, "head": 2}
    if name in BY_PAIR and ndim == 4:
        return {"position": 2, "head": 1}
    if name == "maps":
        return {"position": 3, "head": 1}
    return {"position": 1 if ndim > 1 else None, "head": None}


def sizes(address: str, shape: tuple[int, ...], by: Sequence[str]) -> list[int]:
    """Returns the lengths of those axes of an activation ("position", "head") that `by` names.

    Args:
        address: the address of the activation.
        shape: its shape.
        by: "position", "head" or both; an axis that the activation lacks is left out.
    """
    axis_of = axes(address, len(shape))
    return [shape[axis] for kind in by if (axis := axis_of[kind]) is not None]


def _check_batch(ablation: str, value: jax.Array) -> None:
    """Raises for a single example, which would keep its own value."""
    if len(value) < 2:
        raise UserError(f"{ablation} needs at least two examples, got {len(value)}.")


def _numbers(index: Any) -> np.ndarray | None:
    """Returns indices as an array; None if they are traced."""
    try:
        return np.ravel(np.asarray(index))
    except jax.errors.TracerArrayConversionError:
        return None


def _check_index(address: str, kind: str, numbers: np.ndarray, size: int) -> None:
    for number in numbers.tolist():
        if not 0 <= number < size:
            raise UserError(f"{address} has the {kind}s 0 to {size - 1}, got {number}.")
