"""Runs masked networks block by block, where blocks add their outputs to the residual stream.

What nodes write then adds up, so a reader reads

    base + sum_s m_s d_s        d_s = what node s writes in this run - what replaces it

where `base` is the stream in which everything is replaced. The d_s are kept as one array (B, S, T,
N), and blocks share one compiled program for each kind of reader. `uniform` has the gradients.
`running` does the same for any model, in one program for the whole network that
grows with the square of its depth: twelve blocks take minutes to compile there, and thirty seconds
here.

Memory is that of a few arrays (B, S, T, N): 200 MB each for twenty prompts of 14 tokens in a
network of 30 blocks with nine heads and width 576.

Shape letters: see `jaxformer.interp`. R readers, S sources, B rows: prompts, or cases of prompts.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.interp.blocks import Blocks, addresses, block_output, embed
from jaxformer.interp.circuits import stages, uniform
from jaxformer.interp.circuits.graph import Graph, Stage
from jaxformer.interp.circuits.running import Setting, SlopeOfLogits, Values
from jaxformer.interp.circuits.stages import BETWEEN, HEADS, MLP, Reads
from jaxformer.interp.one_block import is_divisible
from jaxformer.models.decoder import Decoder
from jaxformer.models.pretrained.network import Pretrained


def is_additive(model: Any) -> bool:
    """Whether the heads and MLPs of each block are added to the stream unchanged."""
    if not is_divisible(model):
        return False
    if isinstance(model, Decoder):
        return model.spec.residual_scale == 1
    return isinstance(model, Pretrained) and model.spec.norm_at == "input" and model.spec.has_logits


def outputs(model: Any, params: Any, graph: Graph, tokens_BxT: jax.Array) -> Values:
    """Returns {address: what the nodes write} on prompts; `running.outputs` for additive blocks."""
    blocks = Blocks(model, params)
    states = embed(*blocks.of_block(0), tokens_BxT)
    found = {graph.input: states}
    for block in range(blocks.n_blocks):
        names = [x for x in (HEADS, MLP) if f"block_{block}/{x}" in graph.writing]
        states, values = _values(*blocks.of_block(block), tuple(names), tokens_BxT, states)
        found |= {f"block_{block}/{name}": value for name, value in values.items()}
    return found


class Blockwise:
    """A `MaskedNetwork` block by block, for additive networks."""

    def __init__(self, setting: Setting):
        model, params, graph, tokens_BxT, others, position_BxK = setting
        self.blocks, self.graph = Blocks(model, params), graph
        self.tokens_BxT, self.position_BxK, self.others = tokens_BxT, position_BxK, others
        self.bases = [others[graph.input]]  # the stream before each block, and after the last
        self.betweens = []
        for block in range(self.blocks.n_blocks):
            values = {
                name: others[f"block_{block}/{name}"]
                for name in (HEADS, MLP)
                if f"block_{block}/{name}" in others
            }
            states, between = _base(
                *self.blocks.of_block(block), tokens_BxT, self.bases[-1], values
            )
            self.bases.append(states)
            self.betweens.append(between)
        self.maps = {
            address: stages.head_map(
                *self.blocks.of_block(_number(address)), self.bases[0], *value.shape[2:]
            )
            for address, value in others.items()
            if address.endswith(HEADS)
        }
        embedded = embed(*self.blocks.of_block(0), tokens_BxT)
        zeros = jnp.zeros((len(embedded), len(graph.sources), *embedded.shape[1:]), embedded.dtype)
        self.start_BxSxTxN = zeros.at[:, 0].set(embedded - self.bases[0])

    def with_setting(self, setting: Setting) -> "Blockwise":
        return Blockwise(setting)

    def logits(self, masks_CxRxS: np.ndarray) -> jax.Array:
        repeats, n_prompts = len(masks_CxRxS), len(self.tokens_BxT)
        masks_BxRxS = masks_CxRxS.repeat(n_prompts, 0)
        logits_BxKxV = self._forward(jnp.asarray(masks_BxRxS), repeats)
        return logits_BxKxV.reshape(repeats, n_prompts, *logits_BxKxV.shape[1:])

    def slopes(self, level: float, slope: SlopeOfLogits) -> np.ndarray:
        return uniform.slopes(self, level, slope)

    def _forward(self, masks_BxRxS: jax.Array, repeats: int) -> jax.Array:
        """Returns the logits at the scored positions of each row, (B, K, V)."""
        delta_BxSxTxN = jnp.tile(self.start_BxSxTxN, (repeats, 1, 1, 1))
        for stage, rows, columns in self.stages():
            found = _run_stage(
                *self.static(stage),
                self.arguments(stage, repeats),
                delta_BxSxTxN,
                masks_BxRxS[:, rows],
            )
            if stage.writes:
                delta_BxSxTxN = _place(delta_BxSxTxN, found, columns.start)
        return found

    def stages(self) -> Iterator[tuple[Stage, slice, slice]]:
        """Yields each stage with its readers and the sources that it writes."""
        row, column = 0, 1
        for stage in self.graph.stages:
            n_rows = sum(n_readers for _, n_readers in stage.reads)
            yield stage, slice(row, row + n_rows), slice(column, column + stage.n_units)
            row, column = row + n_rows, column + stage.n_units

    def static(self, stage: Stage) -> tuple[Any, str, Reads]:
        block = _block(stage)
        reads = tuple((address.split("/", 1)[-1], n) for address, n in stage.reads)
        writes = stage.writes.split("/", 1)[-1]
        return self.blocks.of_block(block)[0], writes, reads

    def arguments(self, stage: Stage, repeats: int) -> tuple[Any, ...]:
        """Returns the `arguments` of `stages`."""
        block = _block(stage)

        def tiled(x: jax.Array) -> jax.Array:
            return x if repeats == 1 else jnp.tile(x, (repeats, *(1,) * (x.ndim - 1)))

        base, written = self.bases[block], None
        if not stage.writes:
            base = self.bases[-1]
        elif stage.writes.endswith(MLP) and self.betweens[block] is not None:
            base = self.betweens[block]
        if stage.writes:
            written = tiled(self.others[stage.writes])
        params = self.blocks.of_block(block)[1]
        position_BxK = None if stage.writes else tiled(self.position_BxK)
        fixed = position_BxK, self.maps.get(stage.writes)
        return params, tiled(self.tokens_BxT), tiled(base), written, *fixed


def _block(stage: Stage) -> int:
    """Returns the number of the block of a stage; -1 for the logits."""
    return _number(stage.writes) if stage.writes else -1


def _number(address: str) -> int:
    return int(address.split("/", 1)[0].removeprefix("block_"))


@partial(jax.jit, static_argnames=("model", "names"))
def _values(model, params, names, tokens_BxT, states_BxTxN):
    return block_output(model, params, tokens_BxT, states_BxTxN, None, 0, {}, names)[:2]


@partial(jax.jit, static_argnames=("model",))
def _base(model, params, tokens_BxT, states_BxTxN, values):
    """Returns the states after a block whose nodes write `values`, and those before its MLP."""
    names = [BETWEEN] if BETWEEN in addresses(model) else []
    states, kept, _ = block_output(model, params, tokens_BxT, states_BxTxN, None, 0, values, names)
    return states, kept.get(BETWEEN)


@partial(jax.jit, donate_argnums=0)
def _place(delta_BxSxTxN, new_BxSxTxN, start):
    return jax.lax.dynamic_update_slice_in_dim(delta_BxSxTxN, new_BxSxTxN, start, axis=1)


@partial(jax.jit, static_argnames=("model", "writes", "reads"))
def _run_stage(model, writes, reads, arguments, delta_BxSxTxN, mask_BxRxS):
    """Returns what a stage writes beyond its base, (B, units, T, N), or the logits (B, K, V)."""
    base_BxTxN = arguments[2]
    mask_BxRxS = mask_BxRxS.astype(delta_BxSxTxN.dtype)
    read_BxRxTxN = base_BxTxN[:, None] + jnp.einsum("brs,bstn->brtn", mask_BxRxS, delta_BxSxTxN)
    read = partial(stages.read_values, model, writes)
    if writes != stages.HEADS:
        values = read(reads, arguments, read_BxRxTxN[:, 0])
        return stages.output(model, writes, arguments, values)
    values, row = {}, 0
    for name, n_readers in reads:
        read_one = jax.vmap(lambda x, name=name: read(((name, 1),), arguments, x)[name], in_axes=1)
        every = read_one(read_BxRxTxN[:, row : row + n_readers])
        head_H = jnp.arange(n_readers)
        values[name] = jnp.moveaxis(every[head_H, :, :, head_H], 0, 2)
        row += n_readers
    return stages.output(model, writes, arguments, values)
