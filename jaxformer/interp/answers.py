"""The answers that score prompts, and the score of each prompt.

Shape letters: see `jaxformer.interp`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxformer.models.half_precision import wide


class Answers(NamedTuple):
    """The scored positions of each prompt, with their right and wrong answers."""

    position_BxK: jax.Array
    target_BxK: jax.Array  # the right token
    against_BxK: jax.Array  # the wrong token; negative: none
    weight_BxK: jax.Array  # of each position in the mean of its prompt


def score(logits_BxKxV: jax.Array, answers: Answers) -> jax.Array:
    """Returns the mean score of each prompt, (B,).

    A score is the logit of the right token minus the logit of the wrong token. Without a wrong
    token it is the log probability of the right one.
    """
    logits_BxKxV = wide(logits_BxKxV)
    return _mean_difference(logits_BxKxV, answers, jax.nn.logsumexp(logits_BxKxV, -1))


def margin(logits_BxKxV: jax.Array, answers: Answers) -> jax.Array:
    """Returns a linear score of each prompt, (B,).

    A score is the logit of the right token minus the logit of the wrong token. Without a wrong
    token the mean logit is subtracted.
    """
    logits_BxKxV = wide(logits_BxKxV)
    return _mean_difference(logits_BxKxV, answers, logits_BxKxV.mean(-1))


def _mean_difference(
    logits_BxKxV: jax.Array, answers: Answers, reference_BxK: jax.Array
) -> jax.Array:
    """Returns the weighted mean of right minus wrong logits, (B,).

    Without a wrong token, the reference is subtracted.
    """

    def logits_of(token_BxK: jax.Array) -> jax.Array:
        index_BxKx1 = jnp.maximum(token_BxK, 0)[..., None]
        return jnp.take_along_axis(logits_BxKxV, index_BxKx1, -1)[..., 0]

    right, wrong = logits_of(answers.target_BxK), logits_of(answers.against_BxK)
    difference_BxK = right - jnp.where(answers.against_BxK >= 0, wrong, reference_BxK)
    weight_BxK = answers.weight_BxK
    return (difference_BxK * weight_BxK).sum(-1) / weight_BxK.sum(-1)
