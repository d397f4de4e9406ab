"""Patches every block and position of the residual stream, and computes only what can change.

A patch after block l at position p changes later blocks only, and in a causal model only positions
from p on. If the prompts have the same tokens up to p, nothing changes at all. A patch is therefore
computed from block l + 1 and position p on. The keys and values of earlier positions come from the
run of the corrupted prompt. All blocks share one compiled program (`jaxformer.interp.blocks`).

`jaxformer.capture.patch` patches any activation of any model; it runs the whole network each time.
"""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError, check_choice
from jaxformer.interp import capture
from jaxformer.interp.blocks import Blocks, Pass
from jaxformer.interp.capture.running import check_tokens
from jaxformer.interp.one_block import is_divisible
from jaxformer.interp.prompts import read_position
from jaxformer.models.model import Model
from jaxformer.models.texts import as_tokens

Score = Callable[[jax.Array], jax.Array]
SITES = ("before", "states")
MAX_CHUNKS = 4  # each chunk of positions has another shape, and so another compiled program
CHUNK_TOKENS = 64  # computing fewer tokens costs less time than compiling a further program
MAX_TOKENS = 8192  # in all cases that run together
# Cases of several blocks run together up to this number of tokens: reading a block's parameters
# from memory takes as long as computing a hundred tokens.
JOINED_TOKENS, MAX_JOINED_BLOCKS = 256, 6


def patch_grid(
    model: Model,
    params: Any,
    clean: Any,
    corrupted: Any,
    score: Score,
    *,
    site: str = "states",
    read_at: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> np.ndarray:
    """Returns the scores of corrupted prompts in which one state is that of the clean prompts.

    Each state of the residual stream is patched alone.

    Args:
        model: a decoder, an encoder or a published model. Other models run as a whole for each
            patch, with a warning.
        params: its parameters.
        clean: the tokens of the clean prompts, (B, T), or texts.
        corrupted: as `clean`, with the same shape.
        score: a function of the logits (B, V) at the position `read_at` that returns (B,).
        site: the patched state of each block: "states", which leave it, or "before", which enter.
        read_at: the position of the logits: by default the mask of an encoder's prompts, or the
            last token.
        progress: a function of the number of finished blocks and of all blocks.

    Returns:
        Scores (B, L, T) by pair, block and position.

    Example:
        margin = lambda logits: logits[:, mary] - logits[:, john]
        scores = patch_grid(model, params, clean, corrupted, margin)
    """
    check_choice("site", site, SITES)
    clean, corrupted = (np.asarray(as_tokens(model, x)) for x in (clean, corrupted))
    check_prompts(clean, corrupted)
    check_tokens(model, clean)
    check_tokens(model, corrupted)
    read_at = read_position(model, corrupted, read_at)
    if not is_divisible(model):
        return _whole_runs(model, params, clean, corrupted, score, site, read_at)
    blocks = Blocks(model, params)
    first, stop = 0, clean.shape[1]
    # A causal model has equal states before the first difference, and does not read states after
    # `read_at`.
    if model.spec.causal:
        first, stop = first_difference(clean, corrupted), read_at + 1
    first_computed = first if blocks.has_memory else 0
    n_tokens = clean[:, first_computed:].size
    chunks = position_chunks(first, stop, n_tokens, blocks.has_memory)
    clean_pass, corrupted_pass = (blocks.forward(jnp.asarray(x)) for x in (clean, corrupted))
    last_BxN = corrupted_pass.states[-1][:, read_at]
    base_B = np.asarray(last_scores(blocks, last_BxN, len(clean), score))[0]
    grid_BxLxT = np.empty((len(clean), blocks.n_blocks, clean.shape[1]), base_B.dtype)
    grid_BxLxT[:] = base_B[:, None, None]
    done = 0
    for start, positions_C in chunks:
        n_tokens = len(positions_C) * clean[:, start:].size
        at_once = int(np.clip(JOINED_TOKENS // n_tokens, 1, MAX_JOINED_BLOCKS))
        for first_block in range(0, blocks.n_blocks, at_once):
            last_block = min(first_block + at_once, blocks.n_blocks)
            # The states that leave a block are patched where the next block reads them.
            readers = [block + (site == "states") for block in range(first_block, last_block)]
            states = _states_of_cases(
                blocks, readers, at_once, clean_pass, corrupted_pass, positions_C, start
            )
            scores = np.asarray(last_scores(blocks, states[:, read_at - start], len(clean), score))
            by_block = scores.reshape(at_once, len(positions_C), len(clean))[: len(readers)]
            grid_BxLxT[:, first_block:last_block, positions_C] = by_block.transpose(2, 0, 1)
            if progress is not None:
                done += len(readers)
                progress(done, blocks.n_blocks * len(chunks))
    return grid_BxLxT


def first_difference(clean_BxT: np.ndarray, corrupted_BxT: np.ndarray) -> int:
    """Returns the first position at which the tokens of any pair differ; T if there is none."""
    differs_T = (clean_BxT != corrupted_BxT).any(0)
    return int(differs_T.argmax()) if differs_T.any() else len(differs_T)


def position_chunks(
    first: int, stop: int, n_tokens: int, has_memory: bool
) -> list[tuple[int, np.ndarray]]:
    """Returns chunks of the positions first .. stop - 1 that are patched together.

    Args:
        first, stop: the range of positions.
        n_tokens: the number of tokens to compute for a patch at `first`, of all prompts.
        has_memory: whether a chunk is computed from its first position on, or from position 0.

    Returns:
        (the first computed position, positions (C,)) of each chunk. A chunk may repeat its last
        position, so that few shapes are compiled.
    """
    if first >= stop:
        return []
    at_once = max(MAX_TOKENS // n_tokens, 1)
    n_parts = -(-(stop - first) * n_tokens // CHUNK_TOKENS)
    n_parts = min(n_parts, MAX_CHUNKS, stop - first) if has_memory else 1
    chunks = []
    for part in np.array_split(np.arange(first, stop), n_parts):
        n_runs = -(-len(part) // at_once)
        size = -(-len(part) // n_runs)
        for run in range(n_runs):
            index = np.minimum(np.arange(run * size, (run + 1) * size), len(part) - 1)
            chunks.append((int(part[0]) if has_memory else 0, part[index]))
    return chunks


def check_prompts(clean: np.ndarray, corrupted: np.ndarray) -> None:
    """Raises UserError unless the tokens of both are one shape (B, T)."""
    if clean.shape != corrupted.shape or clean.ndim != 2 or not clean.size:
        raise UserError(
            "clean and corrupted prompts must have one shape (prompts, tokens), got "
            f"{clean.shape} and {corrupted.shape}."
        )


def _states_of_cases(
    blocks: Blocks,
    readers: list[int],
    slots: int,
    clean: Pass,
    corrupted: Pass,
    positions_C: np.ndarray,
    start: int,
) -> jax.Array:
    """Returns the last states of all cases of some blocks, (slots C B, T', N).

    The cases run together, so that a block's parameters are read from memory once for all of them.
    A case has unchanged corrupted states until its block is reached. T' counts the positions from
    `start` on.

    Args:
        readers: the numbers of the blocks that read patched states, in sequence; the number L
            stands for the logits.
        slots: the number of blocks in the result. If it exceeds the number of `readers`, the
            remaining cases have no patch.
        clean, corrupted: the passes without patches.
        positions_C: the patched positions.
        start: the first computed position.
    """
    suffix, n_rows = corrupted.suffix(start), len(positions_C) * len(corrupted.tokens_BxT)
    repeats = slots * len(positions_C)
    states = jnp.tile(corrupted.states[readers[0]][:, start:], (repeats, 1, 1))
    for slot, reader in enumerate(readers):
        patched = _patched(clean.states[reader], corrupted.states[reader], positions_C, start)
        states = jax.lax.dynamic_update_slice(states, patched, (slot * n_rows, 0, 0))
        if reader < blocks.n_blocks:
            states = blocks.run(reader, states, suffix)
    return blocks.run_from(readers[-1] + 1, states, suffix)


@partial(jax.jit, static_argnames=("start",))
def _patched(clean_BxTxN, corrupted_BxTxN, positions_C, start):
    """Returns corrupted states from `start` on, each case with one clean position, (C B, T', N)."""
    at_CxT = positions_C[:, None] == jnp.arange(start, clean_BxTxN.shape[1])[None]
    clean, corrupted = (x[None, :, start:] for x in (clean_BxTxN, corrupted_BxTxN))
    patched = jnp.where(at_CxT[:, None, :, None], clean, corrupted)
    return patched.reshape(-1, *patched.shape[2:])


def last_scores(blocks: Blocks, states_RxN: jax.Array, n_prompts: int, score: Score) -> jax.Array:
    """Returns the scores (C, B) of last states at one position."""
    logits_RxV = blocks.read(states_RxN[:, None])[:, 0]
    logits_CxBxV = logits_RxV.reshape(-1, n_prompts, logits_RxV.shape[-1])
    return jax.vmap(partial(_score, score))(logits_CxBxV)


def _score(score: Score, logits_BxV: jax.Array) -> jax.Array:
    scores = score(logits_BxV)
    if jnp.shape(scores) != logits_BxV.shape[:1]:
        raise UserError(
            f"the score must return one number for each of the {len(logits_BxV)} prompts, got the "
            f"shape {jnp.shape(scores)} from logits {logits_BxV.shape}: choose a token, such as "
            "logits[:, token]."
        )
    return scores


def _whole_runs(model, params, clean, corrupted, score, site, read_at) -> np.ndarray:
    """Returns the scores (B, L, T) of a model whose blocks cannot run alone."""
    warnings.warn(
        f"{type(model).__name__} runs as a whole for each patch: its blocks cannot run alone.",
        stacklevel=3,
    )

    def metric(logits_BxTxV):
        return _score(score, logits_BxTxV[:, read_at])

    pattern = rf"block_\d+/{site}"
    scores = capture.patch(model, params, clean, corrupted, pattern, metric, by=("position",))
    return np.stack(list(scores.values())).transpose(2, 0, 1)
