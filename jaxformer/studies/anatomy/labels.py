"""Names for heads that do one of a few known things, by their attention to random tokens.

    previous token     attends to the token before
    3 tokens back      attends to a fixed distance
    duplicate token    attends to the earlier copy of the same token
    induction          attends to the token after the earlier copy

The prompts repeat a random sequence. A head that looks at a fixed distance would attend to the
earlier copy as well, so the first two are read off sequences without repetition, and the last two
count only what the repetition adds.

Shapes: B prompts, T tokens, S key positions, H heads; n tokens in the repeated sequence.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxformer.interp.blocks import Blocks
from jaxformer.studies.anatomy.layer_facts import WEIGHTS, weights_by_prompt

PROMPTS, MAX_REPEATED, MIN_REPEATED = 8, 24, 3
MIN_SCORE = 0.4  # of the attention
Labels = dict[str, tuple[str, float]]  # {head: (label, its share of the attention)}


def head_labels(model: Any, params: Any, tokens_BxT: np.ndarray) -> Labels:
    """Returns the labels of the heads that have one.

    Args:
        model, params: the network.
        tokens_BxT: prompts; the random tokens are those that occur in them.
    """
    prompts = random_prompts(model, tokens_BxT)
    if prompts is None:
        return {}
    labels: Labels = {}
    n = prompts.repeated.shape[1] // 2
    weights = (_attention(Blocks(model, params), x) for x in prompts[1:])
    for block, (plain, again) in enumerate(zip(*weights, strict=True)):
        for head in range(plain.shape[1]):
            label, score = _label(plain[:, head].mean(0), again[:, head].mean(0), n)
            if score >= MIN_SCORE:
                labels[f"block_{block}/attn/head_{head}"] = label, score
    return labels


class RandomPrompts(NamedTuple):
    """Sequences of random tokens, without repetition and with.

    Attributes:
        known: the tokens that they are drawn from, (K,).
        different: (B, 2n) without repetition.
        repeated: (B, 2n), the first half of `different` twice.
    """

    known: np.ndarray
    different: np.ndarray
    repeated: np.ndarray


def random_prompts(model: Any, tokens_BxT: np.ndarray) -> RandomPrompts | None:
    """Returns prompts of the tokens in others; None if these are too few or too short."""
    known = np.unique(tokens_BxT)
    n = min(tokens_BxT.shape[1] // 2, MAX_REPEATED, len(known) // 2)
    if n < MIN_REPEATED or not hasattr(model.spec, "heads"):
        return None
    random = np.random.default_rng(0)
    different = np.array([random.permutation(known)[: 2 * n] for _ in range(PROMPTS)])
    return RandomPrompts(known, different, np.concatenate([different[:, :n]] * 2, 1))


def _label(plain_TxS: np.ndarray, again_TxS: np.ndarray, n: int) -> tuple[str, float]:
    """Returns the label with the largest score."""
    scores = {"previous token": _at_distance(plain_TxS, 1, 1)}
    for distance in range(2, n):
        scores[f"{distance} tokens back"] = _at_distance(plain_TxS, distance, distance)
    for label, distance in (("duplicate token", n), ("induction", n - 1)):
        scores[label] = _at_distance(again_TxS, distance, n) - _at_distance(plain_TxS, distance, n)
    label = max(scores, key=lambda name: scores[name])
    return label, scores[label]


def _at_distance(weights_TxS: np.ndarray, distance: int, start: int) -> float:
    """Returns the mean attention of tokens from `start` on to the token so far before."""
    rows = np.arange(start, len(weights_TxS))
    return float(weights_TxS[rows, rows - distance].mean())


def _attention(blocks: Blocks, tokens_BxT: np.ndarray) -> list[np.ndarray]:
    """Returns the attention (B, H, T, S) of each block."""
    values = blocks.forward(jnp.asarray(tokens_BxT, jnp.int32), [WEIGHTS]).values
    return [
        np.asarray(weights_by_prompt(value[WEIGHTS], tokens_BxT.shape, model.spec), np.float32)
        for model, value in zip(blocks.models, values, strict=True)
    ]
