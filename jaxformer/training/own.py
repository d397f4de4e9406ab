"""An optax transformation as an optimizer of a run, and a word for it that lasts.

A folder says which optimizers its run has, and another process asks whether they are its own. The
`repr` of a function holds an address, which no other process has. What a function is made of stays:
its name, its default values, its numbers, and what it took along when it was made.
"""

import inspect
from collections.abc import Mapping
from functools import partial
from types import CellType, ModuleType
from typing import Any

import optax

from jaxformer.io.atomic_files import dumps, sha256
from jaxformer.io.checkpoint_reader import hash_of


class Own(tuple):
    """An optax transformation as the optimizer of a label."""

    multiplier = 1.0

    def transform(self) -> optax.GradientTransformation:
        return optax.GradientTransformation(*self)

    def __repr__(self) -> str:
        """Its name and twelve digits, which change with its settings."""
        said = _parts([*self], frozenset())
        name = getattr(self[1], "__qualname__", type(self[1]).__qualname__).split(".")[0]
        return f"{name}:{sha256(dumps(said).encode())[:12]}"


def _parts(value: Any, within: frozenset[int]) -> Any:
    """What a value is made of, without addresses; a function may hold itself."""
    if isinstance(value, str | int | float | bool | None):
        return repr(value)
    if id(value) in within:
        return "itself"
    within |= {id(value)}
    if isinstance(value, Mapping):
        return {str(name): _parts(entry, within) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_parts(entry, within) for entry in value]
    if isinstance(value, partial):
        return _parts([value.func, value.args, value.keywords], within)
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return [str(value.dtype), [*value.shape], hash_of(value)]
    function = inspect.unwrap(value) if callable(value) else value
    if inspect.ismethod(function):
        return _parts([function.__func__, function.__self__], within)
    if inspect.isfunction(function):
        numbers = [n for n in function.__code__.co_consts if isinstance(n, int | float)]
        taken = [cell.cell_contents for cell in function.__closure__ or () if cell != CellType()]
        made = [numbers, function.__defaults__, function.__kwdefaults__, taken]
        return [function.__qualname__, _parts(made, within)]
    name = getattr(value, "__qualname__", type(value).__qualname__)
    if isinstance(value, type | ModuleType) or not hasattr(value, "__dict__"):
        return name
    return [name, _parts(vars(value), within)]
