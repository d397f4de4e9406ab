"""Slopes of all edges where all have the same number, as integrated gradients need them.

All readers of a stage then read one stream, base + level sum_s d_s, and all nodes of a stage have
the same readers. So a level costs about a forward pass and a backward pass, in which each reader
keeps its own gradient g_r, and the slope of an edge is the product g_r . d_s of two saved arrays.
`blockwise` needs an array (B, S, T, N) for each stage instead, since its masks are arbitrary.

Shape letters: see `blockwise`.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.interp.circuits import stages
from jaxformer.interp.circuits.graph import Stage
from jaxformer.interp.circuits.running import SlopeOfLogits

ROWS = 120  # readers whose products with all sources are computed at once


def slopes(network: Any, level: float, slope: SlopeOfLogits) -> np.ndarray:
    """Returns d metric / d mask, (R, S, B), if all edges of a `Blockwise` have this number.

    Args:
        network: the `Blockwise`.
        level: the number of all edges.
        slope: returns d metric / d logits from the logits (B, K, V).
    """
    all_stages = [*network.stages()]
    streams, delta_BxSxTxN, logits_BxKxV = _forward(network, level)
    n_prompts, n_sources = delta_BxSxTxN.shape[:2]
    slopes_BxRxS = np.zeros((n_prompts, len(network.graph.readers), n_sources), np.float32)
    sum_BxTxN = jnp.zeros_like(streams[0])  # of the gradients of all readers of a node
    waiting: list[tuple[Stage, jax.Array]] = []  # the stages that do not read this node
    group: list[jax.Array] = []
    stop = slopes_BxRxS.shape[1]
    for number in reversed(range(len(all_stages))):
        stage, rows, _ = all_stages[number]
        while waiting and waiting[0][0].n_sources > number + 1:
            sum_BxTxN += waiting.pop(0)[1]
        of_output = level * sum_BxTxN if stage.writes else slope(logits_BxKxV)
        gradient_BxRxTxN, total_BxTxN = _backward(
            *network.static(stage), network.arguments(stage, 1), streams[number], of_output
        )
        waiting.append((stage, total_BxTxN))
        group.insert(0, gradient_BxRxTxN)
        if stop - rows.start >= ROWS or number == 0:
            products = _products(jnp.concatenate(group, 1), delta_BxSxTxN)
            slopes_BxRxS[:, rows.start : stop] = np.asarray(products)
            group, stop = [], rows.start
    return np.moveaxis(slopes_BxRxS * network.graph.exists_RxS, 0, -1)


def _forward(network: Any, level: float) -> tuple[list[jax.Array], jax.Array, jax.Array]:
    """Returns the stream (B, T, N) of each stage, what each node adds (B, S, T, N), the logits."""
    deltas = [network.start_BxSxTxN[:, :1]]
    sums = [deltas[0][:, 0]]  # of the nodes of the first stages
    streams = []
    for stage, _, _ in network.stages():
        arguments = network.arguments(stage, 1)
        base_BxTxN = arguments[2]
        streams.append(base_BxTxN + level * sums[stage.n_sources - 1])
        written = _write(*network.static(stage), arguments, streams[-1])
        if stage.writes:
            deltas.append(written)
            sums.append(sums[-1] + written.sum(1))
    return streams, jnp.concatenate(deltas, 1), written  # the last stage gives the logits


@partial(jax.jit, static_argnames=("model", "writes", "reads"))
def _write(model, writes, reads, arguments, stream_BxTxN):
    values = stages.read_values(model, writes, reads, arguments, stream_BxTxN)
    return stages.output(model, writes, arguments, values)


@partial(jax.jit, static_argnames=("model", "writes", "reads"))
def _backward(model, writes, reads, arguments, stream_BxTxN, of_output):
    """Returns the gradient with respect to what each reader reads, (B, R, T, N), and their sum.

    `of_output` is the gradient with respect to what each node of the stage writes, (B, T, N), or
    with respect to the logits, (B, K, V).
    """
    values = stages.read_values(model, writes, reads, arguments, stream_BxTxN)
    output, backward = jax.vjp(partial(stages.output, model, writes, arguments), values)
    if writes:
        of_output = jnp.broadcast_to(of_output[:, None], output.shape)
    (of_values,) = backward(of_output)
    gradients = []
    for name, n_readers in reads:

        def read_one(stream_BxTxN, name=name):
            return stages.read_values(model, writes, ((name, 1),), arguments, stream_BxTxN)[name]

        _, of_stream = jax.vjp(read_one, stream_BxTxN)
        of_value = of_values[name]
        if n_readers == 1 and of_value.ndim == 3:
            gradients.append(of_stream(of_value)[0][:, None])
            continue

        def one_reader(is_reader_H, of_value=of_value, of_stream=of_stream):
            return of_stream(of_value * is_reader_H[None, None, :, None])[0]

        is_reader_HxH = jnp.eye(n_readers, dtype=of_value.dtype)
        gradients.append(jax.vmap(one_reader, out_axes=1)(is_reader_HxH))
    gradient_BxRxTxN = jnp.concatenate(gradients, 1)
    return gradient_BxRxTxN, gradient_BxRxTxN.sum(1)


@jax.jit
def _products(gradient_BxRxTxN, delta_BxSxTxN):
    return jnp.einsum("brtn,bstn->brs", gradient_BxRxTxN, delta_BxSxTxN)
