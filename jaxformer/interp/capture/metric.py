"""Metrics of logits, such as the margin between two tokens."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxformer.core.errors import UserError

Metric = Callable[[jax.Array], jax.Array]


def per_example(metric: Metric, logits: jax.Array) -> jax.Array:
    """Applies a metric that returns one number, or one for each example (B,).

    A metric that forgets to choose a token returns (B, V), and every effect would be an array.
    """
    return _applied(metric, logits, [(), logits.shape[:1]], "one number, or one for each example")


def scalar(metric: Metric, logits: jax.Array) -> jax.Array:
    """Applies a metric that is differentiated, which therefore returns one number."""
    return _applied(metric, logits, [()], "one number")


def _applied(metric: Metric, logits: jax.Array, allowed: list, what: str) -> jax.Array:
    value = metric(logits)
    if jnp.shape(value) not in allowed:
        raise UserError(
            f"the metric must return {what}, got the shape {jnp.shape(value)} from logits "
            f"{logits.shape}: choose a position and a token, such as logits[:, -1, token], and "
            "take the mean over examples if one number is needed."
        )
    return value
