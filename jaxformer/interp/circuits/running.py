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

import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.interp.answers import Answers
from jaxformer.interp.capture.running import capture, run
from jaxformer.interp.circuits.graph import Graph, Stage
from jaxformer.models.model import take_positions

Metric = Callable[[jax.Array, Answers], jax.Array]
Values = dict[str, jax.Array]
Static = tuple[Any, Graph, Metric]  # the model, its graph, the metric
Arrays = tuple[Any, jax.Array, Values, Answers]  # parameters, tokens, other values, answers


class Setting(NamedTuple):
    """A network on prompts, and what its edges carry when they are cut."""

    model: Any
    params: Any
    graph: Graph
    tokens_BxT: jax.Array  # the clean prompts
    others: Values  # {address: what replaces the outputs of nodes}, as `outputs` has them
    answers: Answers
    metric: Metric  # of logits (B, K, V) at the scored positions and answers


class MaskedNetwork(Protocol):
    """A network in a setting whose edges have masks; there are two ways to compute it.

    `Whole` serves every model. `blockwise.Blockwise` is faster where blocks add to the stream.
    """

    def scores(self, masks_CxRxS: np.ndarray) -> np.ndarray:
        """The metric (C, B) under each mask; all cases run together."""
        ...

    def slopes(self, level: float) -> np.ndarray:
        """d metric / d mask, (R, S, B), if all edges have the number `level`."""
        ...


@partial(jax.jit, static_argnames=("model", "graph"))
def outputs(model: Any, params: Any, graph: Graph, tokens_BxT: jax.Array) -> Values:
    """Returns {address: what the nodes write} on prompts."""
    names = [re.escape(address) for address in graph.writing]
    return capture(model, params, tokens_BxT, names=names)


class Whole:
    """A `MaskedNetwork` as one program."""

    def __init__(self, setting: Setting):
        model, params, graph, tokens_BxT, others, answers, metric = setting
        self.static, self.arrays = (model, graph, metric), (params, tokens_BxT, others, answers)

    def scores(self, masks_CxRxS: np.ndarray) -> np.ndarray:
        return np.asarray(_scores(self.static, self.arrays, masks_CxRxS))

    def slopes(self, level: float) -> np.ndarray:
        return np.asarray(_slopes(self.static, self.arrays, jnp.float32(level)))


@partial(jax.jit, static_argnums=0)
def _scores(static: Static, arrays: Arrays, masks_CxRxS: jax.Array) -> jax.Array:
    """Returns the metric (C, B) under each of the masks, which run together."""

    def score(mask_RxS: jax.Array) -> jax.Array:
        mask_RxSx1 = mask_RxS[..., None]
        return masked(*static, *arrays, mask_RxSx1)

    return jax.vmap(score)(masks_CxRxS)


@partial(jax.jit, static_argnums=0)
def _slopes(static: Static, arrays: Arrays, level: jax.Array) -> jax.Array:
    """Returns d metric / d mask of each prompt, (R, S, B), if all edges have the number `level`."""
    (_, graph, _), (_, tokens_BxT, *_) = static, arrays
    shape = len(graph.readers), len(graph.sources), len(tokens_BxT)

    def total(mask_RxSxB: jax.Array) -> jax.Array:
        return masked(*static, *arrays, mask_RxSxB).sum()

    return jax.grad(total)(jnp.full(shape, level))


def masked(
    model: Any,
    graph: Graph,
    metric: Metric,
    params: Any,
    tokens_BxT: jax.Array,
    others: Values,
    answers: Answers,
    mask_RxSxB: jax.Array,
) -> jax.Array:
    """Returns the metric of each prompt, (B,), under a mask; for use inside jit."""
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
            logits_BxKxV = take_positions(inputs["logits"], answers.position_BxK)
            return metric(logits_BxKxV, answers)
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
