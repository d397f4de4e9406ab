"""Runs a network in which every reader reads its own mixture of what the nodes write.

A reader reads m x + (1 - m) y of each node before it: x is what the node writes in this run, y what
replaces it (its value in another prompt, its mean, or zero), and m the number of the edge in the
mask. With m = 1 everywhere this is the network, with m = 0 nothing of the prompt arrives. So an
exact patch of an edge, a circuit and the gradient with respect to an edge are one program.

Works for every model with activation addresses: the residual stream of a reader is the model
itself, run with the outputs of all nodes fixed, and jit drops what these replace.

Shape letters: see `jaxformer.interp`. R readers, S sources, C cases; a mask is (R, S, B), or
(R, S, 1) for all prompts.
"""

import copy
import re
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.interp.capture.running import capture, run
from jaxformer.interp.circuits.graph import Graph, Stage
from jaxformer.interp.programs import compiled
from jaxformer.models.model import take_positions

Values = dict[str, jax.Array]
# Parameters, tokens, what replaces the outputs of nodes, and the scored positions.
Arrays = tuple[Any, jax.Array, Values, jax.Array]
SlopeOfLogits = Callable[[jax.Array], jax.Array]  # d metric / d logits from the logits (B, K, V)


class Setting(NamedTuple):
    """A network on prompts, and what its edges carry when they are cut."""

    model: Any
    params: Any
    graph: Graph
    tokens_BxT: jax.Array  # the clean prompts
    others: Values  # {address: what replaces the outputs of nodes}, as `outputs` has them
    position_BxK: jax.Array  # the scored positions


class MaskedNetwork(Protocol):
    """A network in a setting whose edges have masks; there are two ways to compute it.

    `Whole` serves every model. `blockwise.Blockwise` is faster where blocks add to the stream.
    Neither knows the metric, which may be a function of the caller.
    """

    def logits(self, masks_CxRxS: np.ndarray) -> jax.Array:
        """The logits (C, B, K, V) under each mask; all cases run together."""
        ...

    def slopes(self, level: float, slope: SlopeOfLogits) -> np.ndarray:
        """d metric / d mask, (R, S, B), if all edges have the number `level`."""
        ...

    def with_setting(self, setting: Setting) -> "MaskedNetwork":
        """The same network with other parameters or prompts, by the same compiled programs."""
        ...


def outputs(model: Any, params: Any, graph: Graph, tokens_BxT: jax.Array) -> Values:
    """Returns {address: what the nodes write} on prompts."""
    return compiled(_outputs, model, graph)(params, tokens_BxT)


def _outputs(model, graph, params, tokens_BxT):
    names = [re.escape(address) for address in graph.writing]
    return capture(model, params, tokens_BxT, names=names)


class Whole:
    """A `MaskedNetwork` as one program, which belongs to this object if the model is a user's."""

    def __init__(self, setting: Setting):
        model, params, graph, *arrays = setting
        self.arrays = (params, *arrays)
        self._logits = compiled(_logits, model, graph)
        self._logits_and_pull = compiled(_logits_and_pull, model, graph)

    def with_setting(self, setting: Setting) -> "Whole":
        other = copy.copy(self)
        other.arrays = (setting.params, *setting[3:])
        return other

    def logits(self, masks_CxRxS: np.ndarray) -> jax.Array:
        return self._logits(self.arrays, masks_CxRxS)

    def slopes(self, level: float, slope: SlopeOfLogits) -> np.ndarray:
        logits_BxKxV, pull = self._logits_and_pull(self.arrays, jnp.float32(level))
        return np.asarray(_pulled(pull, slope(logits_BxKxV)))


def _logits(model: Any, graph: Graph, arrays: Arrays, masks_CxRxS: jax.Array) -> jax.Array:
    """Returns the logits (C, B, K, V) under each of the masks, which run together."""

    def of_mask(mask_RxS: jax.Array) -> jax.Array:
        return masked(model, graph, *arrays, mask_RxS[..., None])

    return jax.vmap(of_mask)(masks_CxRxS)


def _logits_and_pull(model: Any, graph: Graph, arrays: Arrays, level: jax.Array) -> Any:
    """Returns the logits (B, K, V) if all edges have the number `level`, and what `_pulled` needs.

    That is the function of `jax.vjp`, a tree whose leaves are arrays of this pass.
    """
    _, tokens_BxT, *_ = arrays
    shape = len(graph.readers), len(graph.sources), len(tokens_BxT)
    return jax.vjp(
        lambda mask_RxSxB: masked(model, graph, *arrays, mask_RxSxB), jnp.full(shape, level)
    )


@jax.jit
def _pulled(pull, slope_BxKxV):
    """Returns d metric / d mask, (R, S, B), from d metric / d logits."""
    return pull(slope_BxKxV)[0]


def masked(
    model: Any,
    graph: Graph,
    params: Any,
    tokens_BxT: jax.Array,
    others: Values,
    position_BxK: jax.Array,
    mask_RxSxB: jax.Array,
) -> jax.Array:
    """Returns the logits (B, K, V) at the scored positions under a mask; for use inside jit."""
    start = re.escape(graph.input)
    current = capture(model, params, tokens_BxT, names=[start])
    row = 0
    for stage in graph.stages:
        sources = graph.writing[: stage.n_sources]

        def mixed(row_SxB: jax.Array, sources=sources) -> Values:
            edits, column = {}, 0
            for address in sources:
                x, y = current[address], others[address]
                n_units = x.shape[2] if address.endswith("/heads") else 1
                m = row_SxB[column : column + n_units].astype(x.dtype).T  # (B or 1, units)
                column += n_units
                m = m[:, None, :, None] if address.endswith("/heads") else m[:, :, None]
                edits[re.escape(address)] = m * x + (1 - m) * y
            return edits

        inputs: Values = {}
        for address, n_readers in stage.reads:
            rows = mask_RxSxB[row : row + n_readers]
            row += n_readers
            inputs[address] = _read(model, params, tokens_BxT, stage, address, mixed, rows)
        if not stage.writes:
            return take_positions(inputs["logits"], position_BxK)
        current[stage.writes] = inputs.get(stage.writes)
        if current[stage.writes] is None:  # heads, from their queries, keys and values
            edits = {re.escape(address): value for address, value in inputs.items()}
            (current[stage.writes],) = run(
                model, params, tokens_BxT, names=[re.escape(stage.writes)], edits=edits
            )[1].values()
    raise AssertionError("the last stage has the logits")


def _read(
    model: Any,
    params: Any,
    tokens_BxT: jax.Array,
    stage: Stage,
    address: str,
    mixed: Callable[[jax.Array], Values],
    rows_RxSxB: jax.Array,
) -> jax.Array:
    """Returns an activation, each head of which is computed from its own mixture."""
    if not stage.writes:
        return run(model, params, tokens_BxT, edits=mixed(rows_RxSxB[0]))[0]

    def read(row_SxB: jax.Array) -> jax.Array:
        names = [re.escape(address)]
        return run(model, params, tokens_BxT, names=names, edits=mixed(row_SxB))[1][address]

    if len(rows_RxSxB) == 1 and not stage.writes.endswith("/heads"):
        return read(rows_RxSxB[0])
    every_HxBxTxHxD = jax.vmap(read)(rows_RxSxB)
    head_H = jnp.arange(len(rows_RxSxB))
    return jnp.moveaxis(every_HxBxTxHxD[head_H, :, :, head_H], 0, 2)
