"""Single runs of a published network: compiled programs of one block, which all blocks share.

Outside jit, Flax runs a network operation by operation, and one program of a whole network takes
long to compile. Here the embedding, a block and the read-out are a program each. Blocks of equal
hyperparameters share one, so a network of thirty blocks compiles three programs, and its next run
none. The arrays of an edit, such as a vector or the choice of a head, are arguments.

The last PROGRAMS programs are kept: one for each network, shapes, kept addresses and kinds of
edits. What JAX sees (dtypes, devices, its settings) compiles anew when it changes. Interceptors of
Flax act when a program is compiled, not when it runs: use them under `jax.disable_jit()`, which
runs the network as a whole.

Shape letters: see `jaxformer.models`.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax.errors import FlaxError
from jax.core import Tracer

from jaxformer.core import paths
from jaxformer.core.errors import UserError
from jaxformer.models import activation_points
from jaxformer.models.activation_points import INTERMEDIATES, Request, new_value
from jaxformer.models.model import take_positions

PROGRAMS = 64  # that are kept
PREFIX = "block_0/"  # of the addresses of a network of one block
BEFORE, STATES = "block_0/before", "block_0/states"
POSITIONS, CACHE = 1, 3  # the numbers of these inputs
# Errors of a program name its only block, so that a caller runs the whole network after them.
FAILURES = UserError, FlaxError
Values = dict[str, Any]  # {address: activation}
Network = tuple[Any, dict[str, Any]]  # of one block: the model and its parameters


def can_run(model: Any, variables: Any, inputs: tuple[Any, ...], *more: Any) -> bool:
    """Returns whether a run is a single one on arrays, and not a part of a larger program."""
    if activation_points.active_request() is not None or not _is_compiling():
        return False
    if not isinstance(variables, Mapping) or [*variables] != ["params"]:
        return False
    if not inputs or jnp.ndim(inputs[0]) != 2 or any(x is not None for x in inputs[CACHE:][:1]):
        return False
    if not all(f"block_{i}" in variables["params"] for i in range(model.spec.layers)):
        return False
    return not any(isinstance(x, Tracer) for x in jax.tree.leaves((variables, inputs, more)))


def _is_compiling() -> bool:
    return not jax.config.jax_disable_jit  # pyright: ignore[reportAttributeAccessIssue]


def run(
    model: Any,
    params: Mapping[str, Any],
    inputs: tuple[Any, ...],
    names: tuple[str, ...] = (),
    edits: Mapping[str, Any] | None = None,
) -> tuple[Any, Values]:
    """Returns (logits, {address: activation}) of a single run.

    Args:
        model: a published network.
        params: its parameters.
        inputs: its inputs, without a cache.
        names: the addresses to keep.
        edits: {address: new value}. Edits are pytrees, so that their arrays are arguments of the
            programs. Functions run their block operation by operation instead, because what they
            read may change between two runs.
    """
    networks, edits, found = _networks(model, params), edits or {}, {}
    positions_BxK = inputs[POSITIONS] if len(inputs) > POSITIONS else None
    # Only the read-out leaves positions out.
    inputs = tuple(None if i == POSITIONS else x for i, x in enumerate(inputs))

    def call(stage: Callable, network: Network, of_stage: Mapping[str, str], *arrays: Any) -> Any:
        kept = tuple(local for local, address in of_stage.items() if address in names)
        new = {local: edits[address] for local, address in of_stage.items() if address in edits}
        output, values = _call(stage, network, kept, new, *arrays)
        found.update({of_stage[local]: value for local, value in values.items()})
        return output

    before, after = {}, {}
    if names or edits:
        before, _, after = ({x: x for x in part} for part in _points(networks[0], inputs))
    states_BxTxN = call(_enter, networks[0], before, inputs)
    asked = {x.split("/", 1)[0] for x in (*names, *edits)}
    for i, network in enumerate(networks):
        inside = _points(network, inputs)[1] if f"block_{i}" in asked else ()
        of_block = {x: f"block_{i}/{x.removeprefix(PREFIX)}" for x in inside}
        states_BxTxN = call(_block, network, of_block, inputs, states_BxTxN)
    logits = call(_leave, networks[-1], after, states_BxTxN, positions_BxK)
    return logits, found


def points(model: Any, params: Mapping[str, Any], inputs: tuple[Any, ...]) -> dict[str, Any]:
    """Returns {address: shape} of a network in the order of computation, from its single blocks."""
    networks = _networks(model, params)
    before, _, after = _points(networks[0], inputs)
    found = dict(before)
    for i, network in enumerate(networks):
        inside = _points(network, inputs)[1]
        found |= {f"block_{i}/{x.removeprefix(PREFIX)}": shape for x, shape in inside.items()}
    return found | after


def _enter(model, kept, params, edits, inputs):
    """Returns the states that enter the first block."""
    _, values = _apply(model, (*kept, BEFORE), params, edits, inputs)
    return values.pop(BEFORE), values


def _block(model, kept, params, edits, inputs, states_BxTxN):
    """Returns the states that leave a block if these enter it."""
    entering = states_BxTxN
    if BEFORE in edits:
        entering = new_value(BEFORE, states_BxTxN, edits[BEFORE])
    _, values = _apply(model, (*kept, STATES), params, {**edits, BEFORE: entering}, inputs)
    states = values[STATES] if STATES in kept else values.pop(STATES)
    return states, values


def _leave(model, kept, params, edits, states_BxTxN, positions_BxK):
    """Returns the logits of states after the last block."""
    states_BxKxN = take_positions(states_BxTxN, positions_BxK)
    tokens_BxK = jnp.zeros(states_BxKxN.shape[:2], jnp.int32)
    return _apply(model, kept, params, {**edits, STATES: states_BxKxN}, (tokens_BxK,))


def _apply(model, kept, params, edits, inputs) -> tuple[Any, Values]:
    with Request(kept, edits, exact=True).active():
        output, updates = model.apply({"params": params}, *inputs, mutable=[INTERMEDIATES])
    return output, paths.flatten(updates.get(INTERMEDIATES, {}))


def _call(
    stage: Callable, network: Network, kept: tuple[str, ...], edits: Values, *arrays: Any
) -> Any:
    model, params = network
    if any(callable(x) for x in jax.tree.leaves(edits)):
        return stage(model, kept, params, edits, *arrays)
    program = _program(stage, model, kept, *_shapes((edits, arrays)))
    return program(params, edits, *arrays)


@lru_cache(maxsize=PROGRAMS)
def _program(stage: Callable, model: Any, kept: tuple[str, ...], *shapes: Any) -> Callable:
    """Returns a program that serves one combination of shapes, so that their number is bounded."""
    return jax.jit(partial(stage, model, kept))


def _shapes(tree: Any) -> tuple[Any, tuple[Any, ...]]:
    """Returns the structure of a tree, and the shape and dtype of each leaf."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, tuple((np.shape(x), getattr(x, "dtype", type(x))) for x in leaves)


def _networks(model: Any, params: Mapping[str, Any]) -> list[Network]:
    """Returns the network of each block."""
    outside = {name: tree for name, tree in params.items() if not name.startswith("block_")}
    return [
        (_of_block(type(model), model.spec, i), {**outside, "block_0": params[f"block_{i}"]})
        for i in range(model.spec.layers)
    ]


@lru_cache(maxsize=1024)
def _of_block(model_type: type, spec: Any, block: int) -> nn.Module:
    return model_type(spec=spec.of_block(block))


def _points(network: Network, inputs: tuple[Any, ...]) -> tuple[dict[str, Any], ...]:
    """Returns {address: shape} of a network of one block: before, inside and after the block."""
    model, params = network
    return _traced_points(model, *_shapes((params, inputs)))


@lru_cache(maxsize=PROGRAMS)
def _traced_points(model: Any, structure: Any, leaves: tuple[Any, ...]) -> tuple[dict, ...]:
    params, inputs = jax.tree.unflatten(structure, [jax.ShapeDtypeStruct(*x) for x in leaves])
    with Request().active() as request:
        jax.eval_shape(lambda p, x: model.apply({"params": p}, *x), params, inputs)
    order = [*request.shapes]
    inside = [i for i, address in enumerate(order) if address.startswith(PREFIX)]
    bounds = (0, inside[0]), (inside[0], inside[-1] + 1), (inside[-1] + 1, len(order))
    return tuple({x: request.shapes[x] for x in order[low:high]} for low, high in bounds)
