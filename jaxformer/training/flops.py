"""Floating-point operations of a function, counted from its program: matrix products alone.

    products(f, *arguments)     2 x rows x columns x inner, of every product that is computed
    of(program)                 the same of a jaxpr

Arguments may be shapes; nothing is compiled or run. A loop counts as often as it goes round, once
if nobody can know (so the program of many steps counts as one). What is recomputed in the backward
pass (remat) counts too: these are the operations of the program.
"""

import math
from typing import Any

import jax
import jax.extend.core as core


def products(function: Any, *arguments: Any) -> float:
    """The operations of all matrix products of a call."""
    return of(jax.make_jaxpr(function)(*arguments).jaxpr)


def of(program: core.Jaxpr) -> float:
    return sum(_operations(step) for step in program.eqns)


def _operations(step: Any) -> float:
    if step.primitive.name == "dot_general":
        (contracted, _), _ = step.params["dimension_numbers"]
        inner = math.prod(step.invars[0].aval.shape[axis] for axis in contracted)
        return 2.0 * inner * math.prod(step.outvars[0].aval.shape)
    times = step.params["length"] if step.primitive.name == "scan" else 1
    inside = [_program(value) for value in jax.tree.leaves(dict(step.params), is_leaf=_is_program)]
    if step.primitive.name == "cond":  # one of the branches
        return max((of(program) for program in inside if program is not None), default=0.0)
    return times * sum(of(program) for program in inside if program is not None)


def _is_program(value: Any) -> bool:
    return isinstance(value, core.Jaxpr | core.ClosedJaxpr)


def _program(value: Any) -> core.Jaxpr | None:
    return (
        value.jaxpr
        if isinstance(value, core.ClosedJaxpr)
        else value
        if _is_program(value)
        else None
    )
