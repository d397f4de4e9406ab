"""Names for heads that do one of a few known things, by their attention to random tokens.

    previous token     attends to the token before
    3 tokens back      attends to a fixed distance
    duplicate token    attends to the earlier copy of the same token
    induction          attends to the token after the earlier copy

The prompts are random tokens of the model's own vocabulary, 48 of them repeated once where the
model reads so many. A head belongs to the network and not to the prompts of an examination, so
these play no part. A head that looks at a fixed distance would attend to the earlier copy as well,
so the last two labels count only what the repetition adds. A head that looks for the token before
among the keys attends to its copy as well, which a head that looks one position back does not: the
first two labels count only what the copy does not get.

A score has an interval over sequences. A head has a label if the score reaches `MIN_SCORE` and its
interval lies above every head's score in networks whose block weights were drawn anew.

Shapes: B prompts, T tokens, S key positions, H heads; n tokens in the repeated sequence.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxformer.interp.blocks import Blocks
from jaxformer.stats.ratios import Spread, spread
from jaxformer.studies.anatomy.layer_facts import WEIGHTS, weights_by_prompt

PROMPTS, MAX_REPEATED, MIN_REPEATED = 8, 48, 3
MIN_SCORE = 0.4  # of the attention
MAX_DISTANCE = 24  # of a label such as "3 tokens back"
DUPLICATE, INDUCTION = "duplicate token", "induction"
Labels = dict[str, tuple[str, float]]  # {head: (label, its share of the attention)}


class HeadScore(NamedTuple):
    """The share of a head's attention that follows one rule.

    Attributes:
        head: its address.
        label: the rule.
        score: the share of its attention, with its interval over sequences.
        null: the largest share of any head in networks whose block weights were drawn anew; nan
            without such networks.
        is_label: whether the head is named for it.
    """

    head: str
    label: str
    score: Spread
    null: float
    is_label: bool


def head_labels(model: Any, params: Any, nulls: Sequence[Any] = ()) -> Labels:
    """Returns the labels of the heads that have one.

    Args:
        model, params: the network.
        nulls: the parameters of networks that cannot know anything.
    """
    scores = head_scores(model, params, nulls)
    return {row.head: (row.label, row.score.mean) for row in scores if row.is_label}


def head_scores(model: Any, params: Any, nulls: Sequence[Any] = ()) -> list[HeadScore]:
    """The scores of each head for each rule, the largest of a head first.

    It is empty for a model without heads or with a vocabulary or length that is too small
    (`why_no_labels`).
    """
    if why_no_labels(model):
        return []
    prompts = random_prompts(model)
    largest = _largest_of_nulls(model, nulls, prompts)
    rows = []
    for head, scores in _scores(model, params, prompts).items():
        of_head = sorted(scores.items(), key=lambda item: -item[1].mean)
        for place, (label, score) in enumerate(of_head):
            null = largest.get(label, np.nan)
            is_above_null = np.isnan(null) or score.mean - score.half_width > null
            is_label = place == 0 and score.mean >= MIN_SCORE and bool(is_above_null)
            rows.append(HeadScore(head, label, score, null, is_label))
    return rows


def why_no_labels(model: Any) -> str:
    """Why the heads of a model can have no labels; "" if they can."""
    if not hasattr(model.spec, "heads"):
        return "the model has no heads"
    if not model.spec.vocab_size:
        return "the model has no vocabulary to draw random tokens from"
    if _repeated_tokens(model) < MIN_REPEATED:
        return (
            f"labels need {2 * MIN_REPEATED} different tokens in a sequence, the model has "
            f"{model.spec.vocab_size} tokens and a length of {model.spec.length}"
        )
    return ""


class RandomPrompts(NamedTuple):
    """Sequences of random tokens, without repetition and with.

    Attributes:
        known: the tokens that occur in them, (K,).
        different: (B, 2n) without repetition.
        repeated: (B, 2n), the first half of `different` twice.
    """

    known: np.ndarray
    different: np.ndarray
    repeated: np.ndarray


def random_prompts(model: Any) -> RandomPrompts:
    """Prompts of random tokens of the model's vocabulary."""
    n, n_tokens = _repeated_tokens(model), model.spec.vocab_size
    random = np.random.default_rng(0)
    drawn = [random.choice(n_tokens, 2 * n, replace=False) for _ in range(PROMPTS)]
    different = np.array(drawn)
    repeated = np.concatenate([different[:, :n]] * 2, 1)
    return RandomPrompts(np.unique(different), different, repeated)


def _repeated_tokens(model: Any) -> int:
    """The number of different tokens that are repeated."""
    return min(MAX_REPEATED, model.spec.length // 2, model.spec.vocab_size // 2)


def _largest_of_nulls(model: Any, nulls: Sequence[Any], prompts: RandomPrompts) -> dict[str, float]:
    """{label: the largest score of any head in any null network}."""
    largest: dict[str, float] = {}
    for params in nulls:
        for scores in _scores(model, params, prompts).values():
            for label, score in scores.items():
                largest[label] = max(largest.get(label, -np.inf), score.mean)
    return largest


def _scores(model: Any, params: Any, prompts: RandomPrompts) -> dict[str, dict[str, Spread]]:
    """{head: {label: its score}}."""
    found = {}
    n = prompts.repeated.shape[1] // 2
    weights = (_attention(Blocks(model, params), x) for x in prompts[1:])
    for block, (plain, again) in enumerate(zip(*weights, strict=True)):
        for head in range(plain.shape[1]):
            name = f"block_{block}/attn/head_{head}"
            found[name] = _scores_of_head(plain[:, head], again[:, head], n)
    return found


def _scores_of_head(plain_BxTxS: np.ndarray, again_BxTxS: np.ndarray, n: int) -> dict[str, Spread]:
    """The scores of one head, without a repetition and with one."""
    scores = {}
    for distance in range(1, min(n, MAX_DISTANCE + 1)):
        label = "previous token" if distance == 1 else f"{distance} tokens back"
        plain_B = _at_distance(plain_BxTxS, distance, distance)
        # The copy of the token at this distance is n positions before it.
        first = n + distance
        at_copy_B = _at_distance(again_BxTxS, first, first)
        again_B = _at_distance(again_BxTxS, distance, first) - at_copy_B
        scores[label] = spread(np.minimum(plain_B, again_B))
    for label, distance in ((DUPLICATE, n), (INDUCTION, n - 1)):
        again_B = _at_distance(again_BxTxS, distance, n)
        scores[label] = spread(again_B - _at_distance(plain_BxTxS, distance, n))
    return scores


def _at_distance(weights_BxTxS: np.ndarray, distance: int, start: int) -> np.ndarray:
    """The mean attention of tokens from `start` on to the token so far before, (B,)."""
    rows = np.arange(start, weights_BxTxS.shape[1])
    return weights_BxTxS[:, rows, rows - distance].mean(1)


def _attention(blocks: Blocks, tokens_BxT: np.ndarray) -> list[np.ndarray]:
    """Returns the attention (B, H, T, S) of each block."""
    values = blocks.forward(jnp.asarray(tokens_BxT, jnp.int32), [WEIGHTS]).values
    return [
        np.asarray(weights_by_prompt(value[WEIGHTS], tokens_BxT.shape, model.spec), np.float32)
        for model, value in zip(blocks.models, values, strict=True)
    ]
