"""Checks of arguments, without jax: a command that needs none starts in a tenth of the time."""

import sys
from typing import Any

import numpy as np

from jaxformer.core.errors import UserError, one_line


def is_concrete(value: Any) -> bool:
    """False for an array that jit, vmap or grad is tracing: its numbers cannot be looked at."""
    if "jax" not in sys.modules:  # then nothing can be traced
        return True
    from jax.core import Tracer

    return not isinstance(value, Tracer)


def check_range(name: str, value: Any, low: float = -np.inf, high: float = np.inf) -> None:
    """Raises unless all entries are finite numbers and low <= entry <= high; tracers pass."""
    if not is_concrete(value):
        return
    try:
        if np.asarray(value).dtype.kind in "SUOc":
            raise TypeError
        array = np.asarray(value, float)
    except (TypeError, ValueError):
        raise UserError(f"{name} must be numbers, got {one_line(repr(value), 60)}.") from None
    ok = np.isfinite(array) & (array >= low) & (array <= high)
    if not ok.all():
        bounds = f"in [{low:g}, {high:g}]" if np.isfinite(high) else f"finite and at least {low:g}"
        raise UserError(f"{name} must be {bounds}, got {array[~ok].flat[0]:g}.")


def check_count(name: str, value: int, low: int = 1, high: float = np.inf) -> None:
    """Raises unless `value` is a whole number of at least `low`, and of at most `high`."""
    try:
        is_whole = not isinstance(value, bool) and abs(value) < np.inf and int(value) == value
    except TypeError:  # no number
        is_whole = False
    if not is_whole or value < low:
        raise UserError(f"{name} must be a whole number of at least {low}, got {value!r}.")
    if value > high:
        raise UserError(f"{name} must be at most {high:,}, got {value:,}.")
