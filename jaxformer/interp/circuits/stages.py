"""The values that readers of a stage compute from the residual stream, and what its nodes write.

A stage is the attention or the MLP of a block, or the logits; its network is that of one block.
`arguments` are the network's parameters, the tokens, the base of the readers, what the nodes write
in the base run, the scored positions (logits only), and the map from heads to the stream
(attention).

Shape letters: see `jaxformer.interp`.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jaxformer.interp.blocks import addresses, block_output
from jaxformer.interp.circuits.graph import LOGITS
from jaxformer.interp.circuits.running import Values
from jaxformer.interp.one_block import read
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


def output(model: Any, writes: str, arguments: Arguments, values: Values) -> jax.Array:
    """Returns what the nodes write beyond their base, (B, units, T, N), or the logits (B, K, V)."""
    params, tokens_BxT, base_BxTxN, written, position_BxK, map_HxDxN = arguments
    if not writes:
        return read(model, params, take_positions(values[LOGITS], position_BxK))
    zeros_BxTxN = jnp.zeros_like(base_BxTxN)
    if writes == MLP:
        return _added(model, params, tokens_BxT, zeros_BxTxN, MLP, values[MLP] - written)[:, None]
    heads_BxTxHxD = block_output(model, params, tokens_BxT, zeros_BxTxN, None, 0, values, [HEADS])[
        1
    ][HEADS]
    return jnp.einsum("bthd,hdn->bhtn", heads_BxTxHxD - written, map_HxDxN)


@partial(jax.jit, static_argnames=("model", "heads", "width"))
def head_map(model: Any, params: Any, states_BxTxN: jax.Array, heads: int, width: int) -> jax.Array:
    """Returns the linear map of each head's values to the stream, (H, D, N), of one block.

    It is what the block adds if one number of one head is 1: a row for each number.
    """
    n_rows = heads * width
    basis = jnp.eye(n_rows, dtype=states_BxTxN.dtype).reshape(n_rows, 1, heads, width)
    zeros = jnp.zeros((n_rows, 1, states_BxTxN.shape[-1]), states_BxTxN.dtype)
    tokens = jnp.zeros((n_rows, 1), jnp.int32)
    return _added(model, params, tokens, zeros, HEADS, basis).reshape(heads, width, -1)


def _added(model, params, tokens_BxT, zeros_BxTxN, node: str, value: jax.Array) -> jax.Array:
    """Returns what a node adds to the stream if it writes this value instead of zero."""
    zero = {name: 0.0 for name in (HEADS, MLP) if name in addresses(model)}
    with_value, without = (
        block_output(model, params, tokens_BxT, zeros_BxTxN, None, 0, edits)[0]
        for edits in (zero | {node: value}, zero)
    )
    return with_value - without
