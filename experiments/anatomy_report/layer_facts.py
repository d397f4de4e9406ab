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
from jaxformer.interp import surgery
from jaxformer.interp.answers import score
from jaxformer.interp.blocks import Blocks
from jaxformer.interp.capture.running import names as addresses
from jaxformer.interp.components import Measured
from jaxformer.models.model import take_positions

WEIGHTS = "attn/weights"
HEAD = re.compile(r"block_(\d+)/attn/head_(\d+)")


class LayerFacts(NamedTuple):
    """Scores and entropies of one block on the clean prompts.

    The logit lens reads the states before and after the block as if they were the last.
    """

    block: int
    lens_before: tuple[float, float]  # score and half width of its 95 % interval
    lens_after: tuple[float, float]
    entropy_H: tuple[float, ...]  # of each head's attention, in nats, mean over query positions


class KernelFacts(NamedTuple):
    """The size of a matrix of the network."""

    norm: float  # Frobenius
    effective_rank: float  # exp of the entropy of the normalised singular values
    rank: int  # the smaller dimension
    distance: float | None  # |W - W_0| / |W_0| from the initial matrix; None if unknown


def of_layers(measured: Measured, interval: Callable) -> tuple[LayerFacts, ...]:
    """Returns the facts of each block.

    Args:
        measured: the prompts in the network.
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


def of_kernels(
    params: Any, singular_values: dict[str, np.ndarray], initial: Any = None
) -> dict[str, KernelFacts]:
    """Returns the facts of each matrix of a block, by path.

    Args:
        params: the parameters.
        singular_values: of matrices, by path; those of others are computed.
        initial: the parameters before training.
    """
    first = {} if initial is None else paths.flatten(initial)
    facts = {}
    flat = paths.flatten(params)
    for path in sorted(flat, key=paths.by_number):
        if not re.match(r"block_\d+/", path) or flat[path].ndim != 2:
            continue
        values = singular_values.get(path)
        values = np.asarray(surgery.decompose(flat[path])[1]) if values is None else values
        distance = None
        if path in first:
            change = np.linalg.norm(np.asarray(flat[path]) - np.asarray(first[path]))
            distance = float(change / max(np.linalg.norm(np.asarray(first[path])), 1e-30))
        norm = float(np.sqrt((values.astype(float) ** 2).sum()))
        facts[path] = KernelFacts(norm, effective_rank(values), len(values), distance)
    return facts


def effective_rank(singular_values: np.ndarray) -> float:
    """Returns exp of the entropy of the singular values divided by their sum; 0 for a zero matrix.

    (Roy and Vetterli 2007, "The effective rank".)
    """
    values = np.asarray(singular_values, float)
    shares = values[values > 0] / max(values.sum(), 1e-300)
    return float(np.exp(-(shares * np.log(shares)).sum())) if len(shares) else 0.0


def attention_maps(
    model: Any, params: Any, tokens_BxT: np.ndarray, parts: Sequence[str]
) -> dict[str, np.ndarray]:
    """Returns {head: (B, T, S)} of heads such as "block_1/attn/head_0"."""
    blocks = Blocks(model, params)
    chosen = {}
    for part in parts:
        match = HEAD.fullmatch(part)
        if match is None or int(match[1]) >= blocks.n_blocks or int(match[2]) >= model.spec.heads:
            raise UserError(f"expected a head such as block_1/attn/head_0, got {part!r}.")
        chosen[part] = int(match[1]), int(match[2])
    values = blocks.forward(jnp.asarray(tokens_BxT), [WEIGHTS]).values
    maps = {}
    for part, (block, head) in chosen.items():
        weights = np.asarray(_by_prompt(values[block][WEIGHTS], tokens_BxT.shape))
        maps[part] = weights[:, head]
    return maps


def _entropies(blocks: Blocks, measured: Measured) -> list[tuple[float, ...]]:
    """Returns the mean entropy of the attention of each head, by block."""
    tokens_BxT, real_BxT = measured.clean.tokens_BxT, measured.real_BxT
    if f"block_0/{WEIGHTS}" not in addresses(blocks.models[0]):
        return [()] * blocks.n_blocks
    values = blocks.forward(tokens_BxT, [WEIGHTS]).values
    return [
        tuple(np.asarray(_entropy(_by_prompt(kept[WEIGHTS], tokens_BxT.shape), real_BxT)).tolist())
        for kept in values
    ]


def _by_prompt(weights: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Returns weights (B, H, T, T): fixed mixing has no axis of prompts, a memory more keys."""
    n_prompts, length = shape
    weights = jnp.broadcast_to(weights, (n_prompts, *weights.shape[-3:]))
    return weights[..., :length]


@jax.jit
def _entropy(weights_BxHxTxS: jax.Array, real_BxT: jax.Array) -> jax.Array:
    size = jnp.abs(weights_BxHxTxS)  # fixed mixing has negative weights
    shares = size / jnp.maximum(size.sum(-1, keepdims=True), 1e-30)
    entropy_BxHxT = -jax.scipy.special.xlogy(shares, shares).sum(-1)
    real_Bx1xT = real_BxT[:, None].astype(entropy_BxHxT.dtype)
    return (entropy_BxHxT * real_Bx1xT).sum((0, 2)) / real_Bx1xT.sum()
