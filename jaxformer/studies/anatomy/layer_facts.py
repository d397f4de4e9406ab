"""Facts about single blocks and matrices: logit lens, entropy of attention, norms and ranks.

Shapes: B prompts, T tokens, S key positions, H heads, L blocks.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core import paths
from jaxformer.core.errors import UserError
from jaxformer.interp.answers import score
from jaxformer.interp.blocks import Blocks
from jaxformer.interp.components import Measured
from jaxformer.models.model import take_positions

WEIGHTS = "attn/weights"
HEAD = re.compile(r"block_(\d+)/attn/head_(\d+)")


class LayerFacts(NamedTuple):
    """Scores and entropies of one block on the clean (not corrupted) prompts.

    The logit lens applies the output layer of the network to the states before and after the block.
    """

    block: int
    lens_before: tuple[float, float]  # score and half width of its 95 % interval
    lens_after: tuple[float, float]
    entropy_H: tuple[float, ...]  # of each head's attention, in nats, mean over query positions


class KernelFacts(NamedTuple):
    """The size of a matrix of the network."""

    norm: float  # Frobenius
    effective_rank: float  # (sum s^2)^2 / sum s^4 of the singular values s
    rank: int  # the smaller dimension
    distance: float | None  # |W - W_0| / |W_0| from the initial matrix; None if unknown


def of_layers(measured: Measured, interval: Callable) -> tuple[LayerFacts, ...]:
    """Returns the facts of each block.

    Args:
        measured: the states and answers of the network on the prompts.
        interval: a function of the scores (B,) that returns (mean, half width, ..).
    """
    blocks, answers = measured.blocks, measured.answers
    lens = []
    for states_BxTxN in measured.clean.states:
        logits = blocks.read(take_positions(states_BxTxN, answers.position_BxK))
        lens.append(interval(np.asarray(score(logits, answers)))[:2])
    entropies = _entropies(blocks, measured)
    return tuple(
        LayerFacts(block, lens[block], lens[block + 1], entropies[block])
        for block in range(blocks.n_blocks)
    )


def of_kernels(params: Any, initial: Any = None) -> dict[str, KernelFacts]:
    """Returns the facts of each matrix of a block, by path.

    Args:
        params: the parameters.
        initial: the parameters before training.
    """
    initial_by_path = {} if initial is None else paths.flatten(initial)
    facts, flat = {}, paths.flatten(params)
    for path in sorted(flat, key=paths.by_number):
        if re.match(r"block_\d+/", path) and flat[path].ndim == 2:
            norm, effective_rank = (float(x) for x in _norm_and_rank(flat[path]))
            distance = None
            if path in initial_by_path:
                distance = float(_distance(flat[path], initial_by_path[path]))
            facts[path] = KernelFacts(norm, effective_rank, min(flat[path].shape), distance)
    return facts


@jax.jit
def _norm_and_rank(matrix: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the Frobenius norm and the effective rank, which is 0 for a zero matrix."""
    wide = matrix.astype(jnp.result_type(float))
    wide = wide.T if wide.shape[0] > wide.shape[1] else wide
    norm = jnp.linalg.norm(wide)
    unit = wide / jnp.where(norm > 0, norm, 1)
    # The singular values s of `unit` have sum s^2 = 1; this is their sum s^4.
    squares = jnp.square(unit @ unit.T).sum()
    return norm, jnp.where(norm > 0, 1 / jnp.where(squares > 0, squares, 1), 0)


@jax.jit
def _distance(matrix: jax.Array, initial: jax.Array) -> jax.Array:
    return jnp.linalg.norm(matrix - initial) / jnp.maximum(jnp.linalg.norm(initial), 1e-30)


def attention_maps(
    model: Any, params: Any, tokens_BxT: np.ndarray, parts: Sequence[str]
) -> dict[str, np.ndarray]:
    """Returns {head: (B, T, S)} of heads such as "block_1/attn/head_0"."""
    blocks = Blocks(model, params)
    chosen, n_heads = {}, getattr(model.spec, "heads", 0)
    for part in parts:
        match = HEAD.fullmatch(part)
        block, head = map(int, match.groups()) if match else (-1, -1)
        if not (0 <= block < blocks.n_blocks and 0 <= head < n_heads):
            raise UserError(f"expected a head such as block_1/attn/head_0, got {part!r}.")
        chosen[part] = block, head
    values = blocks.forward(jnp.asarray(tokens_BxT), [WEIGHTS]).values
    maps = {}
    for part, (block, head) in chosen.items():
        weights = np.asarray(
            weights_by_prompt(values[block][WEIGHTS], tokens_BxT.shape, model.spec)
        )
        maps[part] = weights[:, head]
    return maps


def _entropies(blocks: Blocks, measured: Measured) -> list[tuple[float, ...]]:
    """Returns the mean entropy of the attention of each head, by block."""
    tokens_BxT, real_BxT = measured.clean.tokens_BxT, measured.real_BxT
    entropies = []
    for model, values in zip(
        blocks.models, blocks.forward(tokens_BxT, [WEIGHTS]).values, strict=True
    ):
        weights_BxHxTxS = weights_by_prompt(values[WEIGHTS], tokens_BxT.shape, model.spec)
        entropies.append(tuple(np.asarray(_entropy(weights_BxHxTxS, real_BxT)).tolist()))
    return entropies


def weights_by_prompt(weights: jax.Array, shape: tuple[int, ...], spec: Any) -> jax.Array:
    """Returns weights (B, H, T, T).

    The weights of a recall model have no axis of heads, and those of fixed mixing have no axis of
    prompts. Blocks that run with a memory of keys have more keys than tokens, and the additional
    keys are cut off.
    """
    n_prompts, length = shape
    weights = weights if hasattr(spec, "heads") else weights[:, None]
    weights = jnp.broadcast_to(weights, (n_prompts, *weights.shape[-3:]))
    return weights[..., :length]


@jax.jit
def _entropy(weights_BxHxTxS: jax.Array, real_BxT: jax.Array) -> jax.Array:
    size = jnp.abs(weights_BxHxTxS)  # fixed mixing has negative weights
    shares = size / jnp.maximum(size.sum(-1, keepdims=True), 1e-30)
    entropy_BxHxT = -jax.scipy.special.xlogy(shares, shares).sum(-1)
    real_Bx1xT = real_BxT[:, None].astype(entropy_BxHxT.dtype)
    return (entropy_BxHxT * real_Bx1xT).sum((0, 2)) / real_Bx1xT.sum()
