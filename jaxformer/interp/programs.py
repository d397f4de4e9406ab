"""Compiled programs that are kept only if nothing that a user wrote decides what they compute.

Two networks of this package with equal fields compute the same, so that their program may serve
every later call. A module of your own may read a global variable or a list that has changed since,
although it still equals itself. Its program is therefore traced anew at each call, and JAX's own
compilation cache, which knows what a program computes, decides whether XLA compiles it again.
The same holds for metrics and for functions as edits: no kept program contains any.
"""

from collections.abc import Callable
from dataclasses import is_dataclass
from functools import lru_cache, partial
from typing import Any

import jax

from jaxformer.core.errors import is_users

KEPT = 64  # programs; further ones replace those that were not used for the longest time


def is_frozen(model: Any) -> bool:
    """Whether equal models compute the same: the Linen modules of this package are frozen values.

    A wrapped module and a model with given parameters are no dataclasses, because they contain what
    a user wrote.
    """
    return is_dataclass(model) and not is_users(model)


def compiled(function: Callable[..., Any], model: Any, *static: Any) -> Callable[..., Any]:
    """Returns `function(model, *static, ..)` as a compiled program of the remaining arguments.

    Args:
        function: a function of this package, at the top level of its module.
        model: a model; one of your own is traced anew, as the module's docstring says.
        static: hashable values that the program depends on, such as addresses. No function of a
            user belongs here.
    """
    if is_frozen(model):
        return _kept(function, model, *static)
    return jax.jit(partial(function, model, *static))


@lru_cache(maxsize=KEPT)
def _kept(function: Callable[..., Any], *static: Any) -> Callable[..., Any]:
    return jax.jit(partial(function, *static))


def computed(function: Callable[..., Any], model: Any, *static: Any) -> Any:
    """Returns `function(model, *static)`, such as shapes, which is computed once if it may be."""
    if is_frozen(model):
        return _known(function, model, *static)
    return function(model, *static)


@lru_cache(maxsize=KEPT)
def _known(function: Callable[..., Any], *static: Any) -> Any:
    return function(*static)
