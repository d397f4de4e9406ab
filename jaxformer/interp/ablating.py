"""Removes every head, or attention and MLP, of each block, and computes only what can change.

A change of a block leaves earlier blocks as they are and, in a causal model, earlier positions. So
a case starts at its block, all cases of a block run together, and all blocks share one compiled
program (`jaxformer.interp.blocks`). `jaxformer.capture.intervene` edits anything in any model, and
runs the whole network each time. `jaxformer.interp.circuits` and `groups` remove parts together.

Shape letters: see `jaxformer.interp`. P the parts of a block.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError, check_choice
from jaxformer.interp.blocks import Blocks, Pass
from jaxformer.interp.capture.running import check_tokens
from jaxformer.interp.components import (
    ALL_POSITIONS,
    ATTENTION,
    HEADS,
    MAX_LOGITS,
    MLP,
    case_chunks,
    replace_parts,
)
from jaxformer.interp.patching import Score, check_prompts, last_scores, position_chunks
from jaxformer.interp.prompts import read_position
from jaxformer.models.model import Model
from jaxformer.models.texts import as_tokens

ABLATIONS = ("zero", "mean", "resample")
AXES = ("head", "part", "position")
EVERYWHERE = np.array([-1])  # stands for all positions at once


def ablate_grid(
    model: Model,
    params: Any,
    prompts: Any,
    score: Score,
    *,
    ablation: str = "zero",
    by: Sequence[str] = ("head",),
    others: Any = None,
    read_at: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> np.ndarray:
    """Returns the scores of prompts without one part of one block, each removed alone.

    Zero ablation needs one prompt only, but its activations are none that the network has seen; a
    mean over many prompts keeps what all have in common, and is the better default for claims.

    Args:
        model: a decoder, an encoder, a recall model or a published model.
        params: its parameters.
        prompts: tokens (B, T), a text, or a list of texts.
        score: a function of the logits (B, V) at the position `read_at` that returns (B,).
        ablation: what a part writes instead: "zero" nothing, "mean" its mean over prompts and
            others at each position, "resample" what it writes in the same row of `others`.
        by: ("head",) removes each head, ("part",) the attention and the MLP of each block; with
            "position" in addition at one position at a time, and ("position",) alone removes
            attention and MLP there together.
        others: prompts of the same shape; by default, "resample" takes the next prompt.
        read_at: the position of the logits: by default the mask of an encoder's prompts, or the
            last token.
        progress: a function of the number of finished blocks and of all blocks.

    Returns:
        Scores (B, L, H) by head, (B, L, 2) by part (attention, MLP) or (B, L); "position" adds a
        last axis T.

    Example:
        margin = lambda logits: logits[:, mary] - logits[:, john]
        without = ablate_grid(model, params, prompt, margin)
    """
    check_choice("ablation", ablation, ABLATIONS)
    _check_axes(by)
    tokens_BxT = np.asarray(as_tokens(model, prompts))
    others_BxT = tokens_BxT if others is None else np.asarray(as_tokens(model, others))
    check_prompts(tokens_BxT, others_BxT)
    check_tokens(model, tokens_BxT)
    check_tokens(model, others_BxT)
    read_at = read_position(model, tokens_BxT, read_at)
    if ablation != "zero" and others is None and len(tokens_BxT) < 2:
        raise UserError(
            f"ablation={ablation!r} needs two prompts or more, got one: give others=.. or 'zero'."
        )
    blocks = Blocks(model, params)
    n_prompts, length = tokens_BxT.shape
    stop = read_at + 1 if model.spec.causal else length
    # Heads are replaced before their output kernel, so its bias would outlive the whole attention.
    kept = (HEADS, MLP) if "head" in by else (ATTENTION, MLP)
    base = blocks.forward(jnp.asarray(tokens_BxT[:, :stop]), kept)
    other = base if others is None else blocks.forward(jnp.asarray(others_BxT[:, :stop]), kept)
    heads_PxH, mlp_P = _parts(model, by, HEADS in base.values[0])
    chunks = [(0, EVERYWHERE)]
    if "position" in by:
        chunks = position_chunks(0, stop, n_prompts * stop, blocks.has_memory)
    unchanged_BxN = base.states[-1][:, read_at]
    where, last_CxBxN = [(0, 0, 0)], [np.asarray(unchanged_BxN)[None]]  # of each case
    for block in range(blocks.n_blocks):
        values = base.values[block], _replacements(ablation, base, other, block)
        for start, chunk in chunks:
            # A chunk may repeat its last position.
            cases = [(p, part) for p in np.unique(chunk) for part in range(len(mlp_P))]
            for chosen in case_chunks(len(cases), n_prompts * (stop - start)):
                at_C, part_C = np.array(cases)[chosen].T
                at_CxT = at_C[:, None] == np.arange(start, stop) if at_C[0] >= 0 else ALL_POSITIONS
                states = replace_parts(
                    *blocks.of_block(block),
                    *(base.tokens_BxT[:, start:], base.states[block][:, start:]),
                    *({name: x[:, start:] for name, x in part.items()} for part in values),
                    *(heads_PxH[part_C], mlp_P[part_C], at_CxT, False),
                )
                states = blocks.run_from(block + 1, states, base.suffix(start))
                last_RxN = np.asarray(states[:, read_at - start])
                last_CxBxN.append(last_RxN.reshape(-1, n_prompts, last_RxN.shape[-1]))
                where += [(block, max(p, 0), part) for p, part in zip(at_C, part_C, strict=True)]
        if progress is not None:
            progress(block + 1, blocks.n_blocks)
    scores_CxB = _scores(blocks, np.concatenate(last_CxBxN), score)
    n_positions = length if "position" in by else 1
    grid_LxTxPxB = np.empty((blocks.n_blocks, n_positions, len(mlp_P), n_prompts), scores_CxB.dtype)
    # Positions after the one that is read change nothing.
    grid_LxTxPxB[:] = scores_CxB[0]
    grid_LxTxPxB[tuple(np.array(where[1:]).T)] = scores_CxB[1:]
    left_out = ([2] if [*by] == ["position"] else []) + ([] if "position" in by else [3])
    return grid_LxTxPxB.transpose(3, 0, 2, 1).squeeze(tuple(left_out))


def _scores(blocks: Blocks, last_CxBxN: np.ndarray, score: Score) -> np.ndarray:
    """Returns the scores (C, B) of last states: the unembedding is read once for many cases."""
    n_prompts, width = last_CxBxN.shape[1:]
    n_logits = n_prompts * blocks.models[0].spec.vocab_size
    chunks = case_chunks(len(last_CxBxN), n_logits, MAX_LOGITS)
    found = [
        np.asarray(
            last_scores(blocks, jnp.reshape(last_CxBxN[chosen], (-1, width)), n_prompts, score)
        )
        for chosen in chunks
    ]
    return np.concatenate(found)[: len(last_CxBxN)]


def _check_axes(by: Sequence[str]) -> None:
    if isinstance(by, str):
        raise UserError(f"`by` must be a sequence such as ['head'], got the string {by!r}.")
    for kind in by:
        check_choice("axis of `by`", kind, AXES)
    if not by or {"head", "part"} <= {*by}:
        raise UserError(
            f"`by` needs 'head', 'part' or 'position', and not both of the first two, got {by}."
        )


def _parts(model: Any, by: Sequence[str], has_heads: bool) -> tuple[np.ndarray, np.ndarray]:
    """Returns which heads each part of a block has, (P, H), and whether it is the MLP, (P,)."""
    if "head" in by and not has_heads:
        raise UserError(f"{type(model).__name__} has no heads to remove: take by=['part'].")
    n_heads = model.spec.heads if has_heads else 1
    if "head" in by:
        return np.eye(n_heads, dtype=bool), np.zeros(n_heads, bool)
    every, none = np.ones(n_heads, bool), np.zeros(n_heads, bool)
    if "part" in by:
        return np.array([every, none]), np.array([False, True])
    return every[None], np.array([True])


def _replacements(ablation: str, base: Pass, other: Pass, block: int) -> dict[str, jax.Array]:
    """Returns {address within the block: what replaces it}."""
    if ablation == "zero":
        return {name: jnp.zeros_like(x) for name, x in base.values[block].items()}
    pairs = {name: (x, other.values[block][name]) for name, x in base.values[block].items()}
    if ablation == "resample":
        return {name: jnp.roll(x, -1, 0) if x is y else y for name, (x, y) in pairs.items()}

    def mean(x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.broadcast_to(((x + y) / 2).mean(0, keepdims=True), x.shape)

    return {name: mean(*pair) for name, pair in pairs.items()}
