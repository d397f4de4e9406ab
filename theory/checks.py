"""Checks of arguments. They work on numbers and arrays and do not import jax.

`jaxformer.core.errors.check_range` is the check of one Python number. The `check_range` of this
module also accepts arrays, and lets values pass that jax is tracing.
"""

import sys
from typing import Any

import numpy as np

from jaxformer.core.errors import UserError, one_line


def is_concrete(value: Any) -> bool:
    """Returns False for an array that jit, vmap or grad is tracing, whose values are not known."""
    if "jax" not in sys.modules:  # then nothing can be traced
        return True
    from jax.core import Tracer

    return not isinstance(value, Tracer)


def check_range(name: str, value: Any, low: float = -np.inf, high: float = np.inf) -> None:
    """Raises UserError unless all entries are finite and low <= entry <= high.

    Args:
      name: the argument's name in the error message.
      value: a number or an array of numbers. Traced arrays are not checked.
      low: smallest allowed entry.
      high: largest allowed entry.
    """
    if not is_concrete(value):
        return
    try:
        if np.asarray(value).dtype.kind in "SUOc":  # bytes, text, objects, complex numbers
            raise TypeError
        array = np.asarray(value, float)
    except (TypeError, ValueError):
        raise UserError(f"{name} must be numbers, got {one_line(repr(value), 60)}.") from None
    is_valid = np.isfinite(array) & (array >= low) & (array <= high)
    if not is_valid.all():
        bounds = f"in [{low:g}, {high:g}]" if np.isfinite(high) else f"finite and at least {low:g}"
        raise UserError(f"{name} must be {bounds}, got {array[~is_valid].flat[0]:g}.")


def check_count(name: str, value: Any, low: int = 1, high: float = np.inf) -> None:
    """Raises UserError unless `value` is a whole number with low <= value <= high.

    Args:
      name: the argument's name in the error message.
      value: a Python or NumPy number; True and False are refused.
      low: smallest allowed value.
      high: largest allowed value.
    """
    try:
        is_whole = not isinstance(value, bool) and abs(value) < np.inf and int(value) == value
    except TypeError:  # not a number
        is_whole = False
    if not is_whole or value < low:
        raise UserError(f"{name} must be a whole number of at least {low}, got {value!r}.")
    if value > high:
        raise UserError(f"{name} must be at most {high:,}, got {value:,}.")
