"""Counts the floating-point operations of a program, and measures the rate of this machine."""

import functools
import math
import timeit
from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.extend.core as jex
import jax.numpy as jnp
from jax.interpreters.partial_eval import dce_jaxpr

Clock = Callable[[], float]


def matmul_flops(function: Any, *arguments: Any) -> float:
    """Returns the FLOPs of all matrix products of a call; arguments may be shapes."""
    return program_flops(jax.make_jaxpr(function)(*arguments).jaxpr)


def program_flops(program: jex.Jaxpr) -> float:
    """Returns the FLOPs of all matrix products of a jaxpr, 2 x rows x columns x inner size each.

    The body of a scan counts as often as it runs. A loop of unknown length counts once. Products
    that the backward pass recomputes (remat) count too. Of the branches of a `cond` only the most
    expensive branch counts.
    """
    return sum(flops_by_dtype(program).values())


def used_program(program: jex.Jaxpr) -> jex.Jaxpr:
    """The program without what its results do not need, which the compiler removes too."""
    return dce_jaxpr(program, [True] * len(program.outvars))[0]


def flops_by_dtype(program: jex.Jaxpr) -> dict[str, float]:
    """Returns the FLOPs of `program_flops` for each dtype of the factors."""
    totals: Counter[str] = Counter()
    for equation in program.eqns:
        totals.update(_equation_flops(equation))
    return dict(totals)


def _equation_flops(equation: Any) -> dict[str, float]:
    if equation.primitive.name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        inner = math.prod(equation.invars[0].aval.shape[axis] for axis in contracted)
        flops = 2.0 * inner * math.prod(equation.outvars[0].aval.shape)
        return {equation.invars[0].aval.dtype.name: flops}
    inner_flops = [flops_by_dtype(program) for program in inner_programs(equation)]
    if equation.primitive.name == "cond":
        return max(inner_flops, key=lambda flops: sum(flops.values()), default={})
    repeats = equation.params["length"] if equation.primitive.name == "scan" else 1
    totals: Counter[str] = Counter()
    for flops in inner_flops:
        totals.update({dtype: repeats * count for dtype, count in flops.items()})
    return dict(totals)


def inner_programs(equation: Any) -> list[jex.Jaxpr]:
    """Returns the jaxprs among the parameters of an equation, such as the body of a loop."""
    kinds = (jex.Jaxpr, jex.ClosedJaxpr)
    leaves = jax.tree.leaves(dict(equation.params), is_leaf=lambda x: isinstance(x, kinds))
    programs = [leaf for leaf in leaves if isinstance(leaf, kinds)]
    return [p.jaxpr if isinstance(p, jex.ClosedJaxpr) else p for p in programs]


@functools.lru_cache
def matmul_rate(dtype: Any = float, timer: Clock = timeit.default_timer) -> float:
    """Returns the FLOPs per second of a large matrix product on one device.

    Args:
      dtype: the type of the product's factors and of its result.
      timer: with `time.process_time` the rate of one thread, also on a busy machine.
    """
    n = 1024 if jax.local_devices()[0].platform == "cpu" else 8192
    x = jnp.ones((n, n), dtype)
    return 2 * n**3 / best_seconds(jax.jit(lambda x: x @ x), x, timer=timer)


def best_seconds(function: Any, *arguments: Any, timer: Clock = timeit.default_timer) -> float:
    """Returns the shortest time of three calls of a compiled function."""

    def call() -> None:
        jax.block_until_ready(function(*arguments))

    call()
    return min(timeit.repeat(call, timer=timer, number=1, repeat=3))
