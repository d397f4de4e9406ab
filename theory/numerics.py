"""What every theory needs once: checks of arguments and precision."""

import jax
import numpy as np

from jaxformer.errors import UserError


def is_concrete(value) -> bool:
    """False for an array that jit, vmap or grad is tracing: its numbers cannot be looked at."""
    return not isinstance(value, jax.core.Tracer)


def check_range(name: str, value, low: float = -np.inf, high: float = np.inf) -> None:
    """Raises unless every entry of `value` is finite and low <= entry <= high; tracers pass."""
    if not is_concrete(value):
        return
    array = np.asarray(value, float)
    ok = np.isfinite(array) & (array >= low) & (array <= high)
    if not ok.all():
        bounds = f"in [{low:g}, {high:g}]" if np.isfinite(high) else f"finite and at least {low:g}"
        raise UserError(f"{name} must be {bounds}, got {array[~ok].flat[0]:g}.")


def check_count(name: str, value: int, low: int = 1) -> None:
    """Raises unless `value` is a whole number of at least `low`."""
    if isinstance(value, bool) or int(value) != value or value < low:
        raise UserError(f"{name} must be a whole number of at least {low}, got {value!r}.")
