"""Activations in jax for `theory.activation_moments`: lookup by name, and the ReLU kernel."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxformer.core.errors import UserError, unknown
from jaxformer.models.activations import ACTIVATIONS
from theory.quadrature import arc_cosine


def activation_function(activation: str | Callable) -> Callable:
    """Returns the elementwise function of a name in `jaxformer.models.activations`.

    A function is returned as it is; UserError is raised if it does not act elementwise.
    """
    if callable(activation):
        _check_elementwise(activation)
        return activation
    if activation not in ACTIVATIONS:
        raise unknown("activation", activation, ACTIVATIONS)
    return ACTIVATIONS[activation]


def _check_elementwise(phi: Callable) -> None:
    # A softmax has the right shape, but its value at a number depends on the other numbers.
    with jax.ensure_compile_time_eval():
        z = jnp.linspace(-2.0, 2.0, 5)
        together, alone = phi(z), phi(z[1:2])
        if together.shape != z.shape or not jnp.allclose(together[1:2], alone, atol=1e-5):
            raise UserError("the activation must act elementwise, each number on its own.")


@jax.custom_jvp
def relu_cosine(c: jax.Array) -> jax.Array:
    """Returns `arc_cosine(c)`, with the derivative 1 - arccos(c) / pi also at c = 1."""
    return arc_cosine(c, jnp)


@relu_cosine.defjvp
def _(primals, tangents):
    # The derivative is finite at c = 1; the derivatives of the two terms of `arc_cosine` are not.
    (c,), (dc,) = primals, tangents
    inside = jnp.abs(c) < 1
    angle = jnp.where(inside, jnp.arccos(jnp.where(inside, c, 0.0)), jnp.where(c > 0, 0.0, jnp.pi))
    return relu_cosine(c), (1 - angle / jnp.pi) * dc
