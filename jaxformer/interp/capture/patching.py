"""What an activation carries from a clean prompt into a corrupted one.

    patch       the corrupted run with one activation of the clean one: its metric, exactly
    attribute   the same to first order, for all activations by one gradient
    path_patch  one head's output into one later reader, every other reader unchanged

(Wang et al. 2211.00593; Goldowsky-Dill et al. 2304.05969; Nanda 2023 for the gradient.)
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core import paths
from jaxformer.core.errors import UserError, check_choice
from jaxformer.interp.capture import edits
from jaxformer.interp.capture.running import capture, intervene, run, shapes
from jaxformer.models.model import Model

KINDS = ("position", "head")
BRANCHES = r"(.*/)?block_\d+/(attn|mlp)/output"
Metric = Callable[[jax.Array], jax.Array]
Reader = tuple[str, Any]  # (address, head or None for all of it)


def patch(
    model: Model,
    params: Any,
    clean: Any,
    corrupted: Any,
    patterns: str | Sequence[str],
    metric: Metric,
    by: Sequence[str] = (),
    at_once: int = 16,
) -> dict[str, np.ndarray]:
    """{address: metric(logits) of the corrupted run with that activation of the clean one}.

    `by` names what is patched one at a time, "position" and "head": the value then has an axis for
    each of the two that the address has. Prompts are tokens (B, T), or tuples of a model's inputs.
    All cases are one compiled program, of `at_once` runs at a time; another prompt of the same
    shape needs no other program.
    """
    clean, corrupted = _prompts(clean, corrupted)
    chosen = _addresses(model, corrupted, patterns, by)
    cases = _cases(chosen, by, at_once)
    program = _program(model, tuple(chosen), metric)
    values = np.asarray(program(params, clean, corrupted, cases))
    found, start = {}, 0
    for address, shape in chosen.items():
        size = edits.sizes(address, shape, by)
        number = int(np.prod(size))
        rows = values[start : start + number]
        found[address], start = rows.reshape((*size, *values.shape[1:])), start + number
    return found


@lru_cache(maxsize=32)
def _program(model: Model, chosen: tuple[str, ...], metric: Metric) -> Any:
    """Compiled once for a model, addresses, metric and the shapes of prompts and cases."""

    def all_cases(params, clean, corrupted, cases_CxKx3):
        there = capture(model, params, *clean, names=[re.escape(a) for a in chosen])

        def one(case_3):
            def patched(index, address):
                def new(value, _):
                    sort = jnp.where(case_3[1:] < 0, 0, case_3[1:])
                    axis = edits.axes(address, value.ndim)
                    here = case_3[0] == index
                    for kind, number in zip(KINDS, range(2), strict=True):
                        if axis[kind] is None:
                            continue
                        row = jnp.arange(value.shape[axis[kind]]) == sort[number]
                        row = row | (case_3[1 + number] < 0)
                        others = [i for i in range(value.ndim) if i != axis[kind]]
                        here = here & jnp.expand_dims(row, others)
                    return jnp.where(here, there[address], value)

                new.takes_address = True
                return new

            new = {re.escape(a): patched(i, a) for i, a in enumerate(chosen)}
            return metric(intervene(model, params, *corrupted, new))

        values = jax.lax.map(jax.vmap(one), cases_CxKx3)
        return values.reshape(-1, *values.shape[2:])

    return jax.jit(all_cases)


def _cases(chosen: dict[str, tuple[int, ...]], by: Sequence[str], at_once: int) -> np.ndarray:
    """(chunks, at_once, 3): address, position and head of each case, -1 for all; the last one is
    repeated to fill a chunk."""
    rows = []
    for index, (address, shape) in enumerate(chosen.items()):
        axis = edits.axes(address, len(shape))
        numbers = [
            range(shape[axis[kind]]) if kind in by and axis[kind] is not None else [-1]  # type: ignore[index]
            for kind in KINDS
        ]
        # In the order of `by`, which is that of the axes of the result.
        order = [kind for kind in by if axis[kind] is not None]
        first, second = numbers
        pairs = [(p, h) for p in first for h in second]
        if order == ["head", "position"]:
            pairs = [(p, h) for h in second for p in first]
        rows += [(index, p, h) for p, h in pairs]
    at_once = min(at_once, len(rows))
    rows += [rows[-1]] * (-len(rows) % at_once)
    return np.array(rows, np.int32).reshape(-1, at_once, 3)


def attribute(
    model: Model,
    params: Any,
    clean: Any,
    corrupted: Any,
    patterns: str | Sequence[str],
    metric: Metric,
    by: Sequence[str] = (),
) -> dict[str, jax.Array]:
    """{address: (clean - corrupted) . d metric / d activation}: what `patch` would add to the
    metric, to first order, from one backward pass. The metric is one number."""
    clean, corrupted = _prompts(clean, corrupted)
    chosen = _addresses(model, corrupted, patterns, by)
    names = [re.escape(address) for address in chosen]
    there = capture(model, params, *clean, names=names)

    def of(moved):
        new = {re.escape(a): lambda value, a=a: value + moved[a] for a in chosen}
        logits, found = run(model, params, *corrupted, names=names, edits=new)
        return metric(logits), found

    zeros = jax.tree.map(jnp.zeros_like, there)
    slopes, here = jax.grad(of, has_aux=True)(zeros)
    return {
        address: _sum_but((there[address] - here[address]) * slopes[address], address, by)
        for address in chosen
    }


def path_patch(
    model: Model,
    params: Any,
    clean: Any,
    corrupted: Any,
    sender: Reader,
    receiver: Reader,
    metric: Metric,
) -> jax.Array:
    """The metric when `receiver` alone reads what `sender` says on the clean prompt, directly.

    Sender and receiver are (address, head), head None for all of it: from ("block_0/attn/heads", 3)
    into ("block_5/attn/queries", 7). Every attention and MLP between them says what it said on the
    corrupted prompt. Heads may be traced: one program, by vmap, for all of them.
    """
    clean, corrupted = _prompts(clean, corrupted)
    (sends, head), (reads, reader) = sender, receiver
    known = [*_known(model, _like(corrupted))]
    if {sends, reads} <= {*known} and known.index(sends) >= known.index(reads):
        raise UserError(f"{sends} does not come before {reads}: there is no path.")
    name = re.escape(sends)
    said = _the_one(capture(model, params, *clean, names=[name]), sends)
    usual = capture(model, params, *corrupted, names=[BRANCHES])
    own = sends.rsplit("/", 1)[0]
    held = {re.escape(a): value for a, value in usual.items() if a.rsplit("/", 1)[0] != own}
    target = re.escape(reads)
    held.pop(target, None)
    new = held | {name: edits.at(said, heads=head)}
    heard = _the_one(run(model, params, *corrupted, names=[target], edits=new)[1], reads)
    return metric(intervene(model, params, *corrupted, {target: edits.at(heard, heads=reader)}))


def _the_one(found: dict[str, Any], address: str) -> Any:
    if list(found) != [address]:
        raise UserError(f"expected the address of one activation, got {address!r}.")
    return found[address]


@lru_cache(maxsize=32)
def _known(model: Model, inputs: tuple[jax.ShapeDtypeStruct, ...]) -> dict[str, Any]:
    """Traced once for prompts of a shape."""
    return shapes(model, None, *inputs)


def _addresses(model, inputs, patterns, by) -> dict[str, tuple[int, ...]]:
    """{address: shape} of what is to be patched."""
    for kind in by:
        check_choice("kind of place", kind, KINDS)
    known = _known(model, _like(inputs))
    chosen: dict[str, tuple[int, ...]] = {}
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        paths.check_pattern(pattern)
        hits = {a: x.shape for a, x in known.items() if paths.matches(pattern, a, modules=True)}
        if not hits:
            raise paths.no_match_error(pattern, list(known))
        chosen |= hits
    return chosen


def _like(inputs: Any) -> Any:
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x), x.dtype), inputs)


def _prompts(clean: Any, corrupted: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    pair: Any = tuple(
        tuple(part if part is None else jnp.asarray(part) for part in one)
        for one in (x if isinstance(x, tuple) else (x,) for x in (clean, corrupted))
    )
    first, second = ([jnp.shape(x) for x in one] for one in pair)
    if first != second:
        raise UserError(
            "a clean and a corrupted prompt must have as many tokens, got the shapes "
            f"{first} and {second}."
        )
    return pair


def _sum_but(value: jax.Array, address: str, by: Sequence[str]) -> jax.Array:
    axis = edits.axes(address, value.ndim)
    kept = [axis[kind] for kind in by if axis[kind] is not None]
    summed = value.sum([i for i in range(value.ndim) if i not in kept])
    return summed if kept == sorted(kept) else summed.T  # type: ignore[type-var]
