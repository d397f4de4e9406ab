"""Runs a network block by block. Blocks that differ only in parameters share a compiled program.

    blocks = Blocks(model, params)
    clean = blocks.forward(tokens_BxT)                      every state of the residual stream
    suffix = clean.suffix(start=9)                          tokens 9, 10, .. and the memory of 0..8
    states = blocks.run(12, new_states, suffix)             the states after block_12
    logits = blocks.read(states)

A change of the states that enter block l at token p affects no earlier block and, in a causal
model, no earlier token. Its effect is computed from block l and token p on. The keys and values of
earlier tokens are the memory of each block.

Shape letters: see `jaxformer.interp`. Rows R are ordered by case, then by prompt.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core import paths
from jaxformer.core.errors import UserError
from jaxformer.interp.capture.running import check_tokens, names
from jaxformer.interp.one_block import (
    BEFORE,
    PREFIX,
    STATES,
    check_divisible,
    count_blocks,
    one_block,
    read,
)
from jaxformer.models.activation_points import INTERMEDIATES, Request
from jaxformer.models.cache import CACHE
from jaxformer.models.decoder import Decoder
from jaxformer.models.model import Model
from jaxformer.models.pretrained.network import Pretrained


class Suffix(NamedTuple):
    """The tokens from `start` on, and the memory of earlier tokens in each block."""

    tokens_BxT: jax.Array
    start: int
    memory: tuple[Any, ...]  # (L,) the cache of each block, or None in models without a memory


class Pass(NamedTuple):
    """One run over prompts: the residual stream, and other activations by block."""

    tokens_BxT: jax.Array
    states: list[jax.Array]  # (L + 1,) of (B, T, N): before each block, and after the last
    memory: tuple[Any, ...]  # (L,) keys and values of each block, or None
    values: list[dict[str, jax.Array]]  # (L,) {address within the block: activation}

    def suffix(self, start: int) -> Suffix:
        """Returns the inputs of a run from token `start` on, which is 0 without a memory."""
        return Suffix(self.tokens_BxT[:, start:], start, self.memory)


class Blocks:
    """A network that runs block by block.

    Args:
        model: a decoder, an encoder, a recall model or a published model.
        params: its parameters.
    """

    def __init__(self, model: Model, params: Mapping[str, Any]):
        check_divisible(model)
        if not getattr(model.spec, "has_logits", True):
            raise UserError("this model returns no logits: it has no head for tokens.")
        self.n_blocks = count_blocks(model)
        self.has_memory = model.spec.causal and isinstance(model, Decoder | Pretrained)
        self.models = [one_block(model, i) for i in range(self.n_blocks)]
        # The parameters outside the blocks, such as embeddings.
        self.outside = {
            name: tree for name, tree in params.items() if not name.startswith("block_")
        }
        self.params = [params[f"block_{i}"] for i in range(self.n_blocks)]

    def of_block(self, block: int) -> tuple[Any, dict[str, Any]]:
        """Returns the model that has only this block, and its parameters."""
        return self.models[block], {**self.outside, "block_0": self.params[block]}

    def forward(self, tokens_BxT: jax.Array, names: Sequence[str] = ()) -> Pass:
        """Runs all blocks on whole prompts.

        Args:
            tokens_BxT: the prompts.
            names: the addresses within a block, such as "attn/heads", to keep in `Pass.values`. A
                block ignores addresses that it does not have.
        """
        check_tokens(self.models[0], tokens_BxT)
        states = [embed(*self.of_block(0), tokens_BxT)]
        memory, values = [], []
        for i in range(self.n_blocks):
            empty = _empty_memory(self.models[i], tokens_BxT) if self.has_memory else None
            available = addresses(self.models[i])
            kept_names = tuple(name for name in names if name in available)
            states_BxTxN, block_values, block_memory = _run(
                *self.of_block(i), tokens_BxT, states[-1], empty, 0, kept_names
            )
            states.append(states_BxTxN)
            values.append(block_values)
            memory.append(block_memory)
        return Pass(jnp.asarray(tokens_BxT), states, tuple(memory), values)

    def run(
        self, block: int, states_RxTxN: jax.Array, suffix: Suffix, params: Any = None
    ) -> jax.Array:
        """Returns the states (R, T, N) that leave a block if these states enter it.

        Args:
            block: the number of the block.
            states_RxTxN: the states that enter it.
            suffix: the tokens of the states, and the memory of earlier tokens.
            params: the parameters of the block, if they differ from those of the network.
        """
        model, all_params = self.of_block(block)
        if params is not None:
            all_params["block_0"] = params
        memory = suffix.memory[block]
        return _run(model, all_params, suffix.tokens_BxT, states_RxTxN, memory, suffix.start)[0]

    def run_from(self, block: int, states_RxTxN: jax.Array, suffix: Suffix) -> jax.Array:
        """Returns the states after the last block if these states enter a block.

        With `block` = L, the number of blocks, they are returned unchanged.
        """
        for i in range(block, self.n_blocks):
            states_RxTxN = self.run(i, states_RxTxN, suffix)
        return states_RxTxN

    def read(self, states_RxKxN: jax.Array) -> jax.Array:
        """Returns the logits (R, K, V) of states after the last block, for each position alone."""
        return read(*self.of_block(self.n_blocks - 1), states_RxKxN)


@lru_cache(maxsize=64)
def addresses(model: Any) -> tuple[str, ...]:
    """Returns the addresses within the block of a model of one block, such as "attn/heads"."""
    return tuple(name.removeprefix(PREFIX) for name in names(model))


def block_output(
    model: Any,
    params: Any,
    tokens_BxT: jax.Array,
    states_RxTxN: jax.Array,
    memory: Any,
    start: Any,
    edits: Mapping[str, Any],
    names: Sequence[str] = (),
) -> tuple[jax.Array, dict[str, jax.Array], Any]:
    """Runs a model of one block on states; for use inside jit.

    Args:
        model, params: the model of one block, as from `Blocks.of_block`.
        tokens_BxT: the tokens of the states.
        states_RxTxN: the states that enter the block; R is a multiple of B.
        memory: keys and values of the block for B prompts; None in a pass over whole prompts.
        start: the position of the first of the T tokens.
        edits: {address within the block: new value}.
        names: the addresses within the block to keep.

    Returns:
        The states after the block, {address: activation}, and the memory with these tokens.
    """
    repeats = states_RxTxN.shape[0] // tokens_BxT.shape[0]
    tokens_RxT = jnp.tile(tokens_BxT, (repeats, 1))
    kept = [STATES, *(PREFIX + name for name in names)]
    edits = {BEFORE: states_RxTxN} | {PREFIX + name: new for name, new in edits.items()}
    with Request(kept, edits).active() as request:
        inputs, variables, mutable = _inputs(model, memory, start, tokens_RxT, repeats)
        outputs, updates = model.apply({"params": params, **variables}, *inputs, mutable=mutable)
    request.check_edits()
    values = paths.flatten(updates[INTERMEDIATES])
    if isinstance(model, Pretrained) and memory is not None:
        new_memory = outputs[1]["block_0"]
    else:
        new_memory = updates.get(CACHE)
    return values[STATES], {name: values[PREFIX + name] for name in names}, new_memory


def first_difference(clean_BxT: np.ndarray, corrupted_BxT: np.ndarray) -> int:
    """Returns the first position at which the tokens of any pair differ; T if there is none."""
    differs_T = (clean_BxT != corrupted_BxT).any(0)
    return int(differs_T.argmax()) if differs_T.any() else len(differs_T)


def embed(model: Any, params: Any, tokens_BxT: jax.Array) -> jax.Array:
    """Returns the states (B, T, N) that enter the first block."""
    return _embed(model, params, tokens_BxT)


def _inputs(model: Any, memory: Any, start: Any, tokens_RxT: jax.Array, repeats: int) -> Any:
    """Returns the inputs, variables and mutable collections with which flax continues a memory."""
    if memory is None:
        return (tokens_RxT,), {}, [INTERMEDIATES]

    def tiled(x: jax.Array) -> jax.Array:
        return jnp.tile(x, (repeats, *(1,) * (x.ndim - 1)))

    if not isinstance(model, Pretrained):
        # Arrays without axes are counters of the tokens so far.
        cache = jax.tree.map(lambda x: tiled(x) if jnp.ndim(x) else jnp.asarray(start), memory)
        return (tokens_RxT,), {CACHE: cache} if cache else {}, [INTERMEDIATES, CACHE]
    block_cache = jax.tree.map(tiled, memory)
    n_rows, n_slots = block_cache["keys"].shape[:2]
    seen_RxS = jnp.broadcast_to((jnp.arange(n_slots) < start)[None], (n_rows, n_slots))
    cache = {"seen": seen_RxS, "length": jnp.asarray(start), "block_0": block_cache}
    return (tokens_RxT, None, None, cache), {}, [INTERMEDIATES]


def _empty_memory(model: Any, tokens_BxT: jax.Array) -> Any:
    """Returns the memory before the first token; {} if flax makes it in the first call."""
    if isinstance(model, Pretrained):
        return model.empty_cache(*tokens_BxT.shape)["block_0"]
    return {}


@partial(jax.jit, static_argnames=("model", "names"))
def _run(model, params, tokens_BxT, states_RxTxN, memory, start, names=()):
    return block_output(model, params, tokens_BxT, states_RxTxN, memory, start, {}, names)


@partial(jax.jit, static_argnames=("model",))
def _embed(model, params, tokens_BxT):
    with Request([BEFORE]).active():
        updates = model.apply({"params": params}, tokens_BxT, mutable=[INTERMEDIATES])[1]
    return paths.flatten(updates[INTERMEDIATES])[BEFORE]
