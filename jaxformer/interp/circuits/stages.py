"""The values that readers of a stage compute from the residual stream, and what its nodes write.

A stage is the attention or the MLP of a block, or the logits; its network is that of one block.
`arguments` are the network's parameters, the tokens, the base of the readers, what the nodes write
in the base run, and the answers (the logits only).

Shape letters: see `jaxformer.interp`.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jaxformer.interp.blocks import addresses, block_output, read
from jaxformer.interp.circuits.graph import LOGITS
from jaxformer.interp.circuits.running import Metric, Values
from jaxformer.models.model import take_positions

HEADS, MLP, BETWEEN = "attn/heads", "mlp/output", "between"
Reads = tuple[tuple[str, int], ...]  # (address within the block, number of readers)
Arguments = tuple[Any, ...]


def read_values(
    model: Any, writes: str, reads: Reads, arguments: Arguments, stream_BxTxN: jax.Array
) -> Values:
    """Returns {address of a reader: its value} if all readers read this stream."""
    params, tokens_BxT, *_ = arguments
    if not writes:
        return {LOGITS: stream_BxTxN}
    edits = {}
    if writes == MLP and BETWEEN in addresses(model):
        edits = {BETWEEN: stream_BxTxN}
    names = [name for name, _ in reads]
    return block_output(model, params, tokens_BxT, stream_BxTxN, None, 0, edits, names)[1]


def output(
    model: Any, writes: str, metric: Metric, arguments: Arguments, values: Values
) -> jax.Array:
    """Returns what the nodes write beyond their base, (B, units, T, N), or the metric (B,)."""
    params, tokens_BxT, base_BxTxN, written, answers = arguments
    if not writes:
        scored_BxKxN = take_positions(values[LOGITS], answers.position_BxK)
        return metric(read(model, params, scored_BxKxN), answers)
    known = addresses(model)
    run = partial(block_output, model, params, tokens_BxT)
    zeros_BxTxN = jnp.zeros_like(base_BxTxN)

    def added(**values: jax.Array) -> jax.Array:
        """Returns what the block adds to the stream if its nodes write these values."""
        edits = {HEADS: values.get("heads", 0.0), MLP: values.get("mlp", 0.0)}
        edits = {name: new for name, new in edits.items() if name in known}
        return run(zeros_BxTxN, None, 0, edits)[0]

    if writes == MLP:
        return (added(mlp=values[MLP] - written) - added())[:, None]
    heads_BxTxHxD = run(zeros_BxTxN, None, 0, values, [HEADS])[1][HEADS]
    difference_BxTxHxD = heads_BxTxHxD - written
    n_heads = difference_BxTxHxD.shape[2]

    def one_head(is_head_H: jax.Array) -> jax.Array:
        return added(heads=difference_BxTxHxD * is_head_H[None, None, :, None]) - added()

    return jax.vmap(one_head, out_axes=1)(jnp.eye(n_heads, dtype=difference_BxTxHxD.dtype))
