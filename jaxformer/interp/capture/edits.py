"""What may take an activation's place, and at which heads and positions."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError
from jaxformer.models.activation_points import given

BY_HEAD = ("queries", "keys", "values", "turned_queries", "turned_keys", "heads", "mixed")
BY_PAIR = ("scores", "masked_scores", "weights")  # (B, H, T, S)
Where = int | Sequence[int] | jax.Array | None


def zero(value: jax.Array) -> jax.Array:
    """Zero ablation."""
    return jnp.zeros_like(value)


def mean(value: jax.Array) -> jax.Array:
    """Mean ablation: the mean over the batch, position by position."""
    _check_batch("the mean over the batch", value)
    return jnp.broadcast_to(value.mean(0, keepdims=True), value.shape)


def resample(key: jax.Array) -> Callable[[jax.Array], jax.Array]:
    """Resampling ablation: every example gets the value of another one, none keeps its own."""

    def of_another(value: jax.Array) -> jax.Array:
        _check_batch("resampling", value)
        order = jax.random.permutation(key, len(value))
        return jnp.zeros_like(value).at[order].set(value[jnp.roll(order, 1)])

    return of_another


def at(new: Any, heads: Where = None, positions: Where = None) -> Callable:
    """`new` at these heads and positions only; elsewhere the value stays. Indices may be traced."""

    def confined(value: jax.Array, address: str) -> jax.Array:
        chosen = given(address, value, new)
        if chosen.shape not in ((), value.shape):
            raise UserError(
                f"{address} has the shape {value.shape}; what should take the place of some of it "
                f"has {chosen.shape}. Give the whole shape, or one number."
            )
        return jnp.where(mask(address, value.shape, heads, positions), chosen, value)

    confined.takes_address = True  # type: ignore[attr-defined]
    return confined


def mask(address: str, shape: tuple[int, ...], heads: Where, positions: Where) -> jax.Array:
    """Booleans that broadcast to `shape`: true at these heads and positions."""
    chosen = jnp.ones((1,) * len(shape), bool)
    for what, index in (("head", heads), ("position", positions)):
        if index is None:
            continue
        axis = axes(address, len(shape))[what]
        if axis is None:
            raise UserError(f"{address} of shape {shape} has no axis of {what}s.")
        _check(address, what, index, shape[axis])
        ours = jnp.isin(jnp.arange(shape[axis]), jnp.asarray(index))
        chosen = chosen & jnp.expand_dims(ours, [i for i in range(len(shape)) if i != axis])
    return chosen


def axes(address: str, ndim: int) -> dict[str, int | None]:
    """Which axis of an activation counts positions (of a query), and which heads."""
    name = address.rsplit("/", 1)[-1]
    if name in BY_HEAD and ndim == 4:
        return {"position": 1, "head": 2}
    if name in BY_PAIR and ndim == 4:
        return {"position": 2, "head": 1}
    if name == "maps":
        return {"position": 3, "head": 1}
    return {"position": 1 if ndim > 1 else None, "head": None}


def sizes(address: str, shape: tuple[int, ...], by: Sequence[str]) -> list[int]:
    """How many positions and heads an activation has, of those kinds that `by` names."""
    found = axes(address, len(shape))
    return [shape[axis] for kind in by if (axis := found[kind]) is not None]


def count(address: str, shape: tuple[int, ...], by: Sequence[str]) -> int:
    return math.prod(sizes(address, shape, by))


def _check_batch(what: str, value: jax.Array) -> None:
    """One example alone would keep its own value: an ablation that does nothing."""
    if len(value) < 2:
        raise UserError(f"{what} needs at least two examples, got {len(value)}.")


def _check(address: str, what: str, index: Any, size: int) -> None:
    try:
        numbers = np.ravel(np.asarray(index)).tolist()
    except jax.errors.TracerArrayConversionError:  # known only when the program runs
        return
    for one in numbers:
        if not 0 <= one < size:
            raise UserError(f"{address} has the {what}s 0 to {size - 1}, got {one}.")
