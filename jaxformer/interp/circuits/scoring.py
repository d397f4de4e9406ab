"""The metric of a circuit's logits, and its slope.

A metric may be a function of the caller, which reads what has changed since the last call. So it
runs operation by operation on the logits that a compiled network has given, and no compiled program
contains it. The two metrics of this package are compiled.

Shape letters: see `jaxformer.interp`. C cases; the logits are those of the K scored positions.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError
from jaxformer.interp import answers as answer_scores
from jaxformer.interp.answers import Answers

Metric = Callable[[jax.Array, Answers], jax.Array]
OWN = (answer_scores.score, answer_scores.margin)


def scores(metric: Metric, logits_CxBxKxV: jax.Array, answers: Answers) -> np.ndarray:
    """Returns the metric (C, B) of each case."""
    function = _compiled_scores if _is_own(metric) else _scores
    return np.asarray(function(metric, logits_CxBxKxV, answers))


def slope(metric: Metric, logits_BxKxV: jax.Array, answers: Answers) -> jax.Array:
    """Returns d metric / d logits, (B, K, V), of each prompt."""
    function = _compiled_slope if _is_own(metric) else _slope
    return function(metric, logits_BxKxV, answers)


def _is_own(metric: Metric) -> bool:
    return any(metric is own for own in OWN)


def _scores(metric: Metric, logits_CxBxKxV: jax.Array, answers: Answers) -> jax.Array:
    return jax.vmap(lambda logits_BxKxV: _checked(metric, logits_BxKxV, answers))(logits_CxBxKxV)


def _slope(metric: Metric, logits_BxKxV: jax.Array, answers: Answers) -> jax.Array:
    # A prompt's metric depends on its own logits only, so the sum has the slope of each.
    return jax.grad(lambda logits: _checked(metric, logits, answers).sum())(logits_BxKxV)


def _checked(metric: Metric, logits_BxKxV: jax.Array, answers: Answers) -> jax.Array:
    value_B = metric(logits_BxKxV, answers)
    if jnp.shape(value_B) != logits_BxKxV.shape[:1]:
        raise UserError(
            f"the metric must return one number for each of the {len(logits_BxKxV)} prompts, got "
            f"the shape {jnp.shape(value_B)} from logits {logits_BxKxV.shape}: take the mean over "
            "scored positions."
        )
    return value_B


_compiled_scores = partial(jax.jit, static_argnums=0)(_scores)
_compiled_slope = partial(jax.jit, static_argnums=0)(_slope)
