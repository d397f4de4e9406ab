"""Second moments of an activation at two correlated Gaussians: E phi(u)^2 and E phi(u) phi(v).

u, v ~ N(0, q) with correlation c >= 0. ReLU in closed form (arc-cosine kernel); any other function
by its Hermite series, E phi(u) phi(v) = sum_k a_k(q)^2 c^k with a_k = E phi(sqrt(q) z) h_k(z): a
polynomial in c, so gradients are finite at c = 1 where the two-dimensional quadrature has none.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from jaxformer.core.errors import UserError, unknown
from jaxformer.models.activations import ACTIVATIONS
from theory.formulas import arc_cosine
from theory.quadrature import hermite, normal_nodes

_TERMS = 160
_Z, _W = normal_nodes(641)

Kernel = Callable[[jax.Array], jax.Array]


def second_moments(activation: str | Callable, q: jax.Array) -> tuple[jax.Array, Kernel]:
    """E phi(u)^2, and the function c -> E phi(u) phi(v), at variance q."""
    if activation == "relu":
        return q / 2, lambda c: q / 2 * relu_cosine(c)
    phi = activation_function(activation)
    deviation = jnp.sqrt(jnp.maximum(q, jnp.finfo(q.dtype).tiny))
    values = phi(deviation[..., None] * jnp.reshape(_Z, (1,) * q.ndim + (-1,)))
    if values.shape != (*q.shape, len(_Z)):
        raise UserError(f"the activation must act elementwise, got shape {values.shape} back.")
    square = values**2 @ jnp.asarray(_W, values.dtype)
    a = values @ jnp.asarray(_W[:, None] * hermite(_Z, _TERMS), values.dtype)
    # What the series leaves out goes into its last term, so that c = 1 gives E phi^2.
    series = a**2
    rest = square - jnp.sum(series, -1)
    terms = jnp.moveaxis(jnp.concatenate([series, rest[..., None]], -1), -1, 0)[::-1]
    return square, lambda c: jnp.polyval(terms, c, unroll=8)


def activation_function(activation: str | Callable) -> Callable:
    """The function of that name, the same as in the models."""
    if callable(activation):
        _check_elementwise(activation)
        return activation
    if activation not in ACTIVATIONS:
        raise unknown("activation", activation, ACTIVATIONS)
    return ACTIVATIONS[activation]


def _check_elementwise(phi: Callable) -> None:
    """Raises if what it makes of a number depends on the others, as a softmax does."""
    with jax.ensure_compile_time_eval():
        z = jnp.linspace(-2.0, 2.0, 5)
        together, alone = phi(z), phi(z[1:2])
        if together.shape != z.shape or not jnp.allclose(together[1:2], alone, atol=1e-5):
            raise UserError("the activation must act elementwise, each number on its own.")


@jax.custom_jvp
def relu_cosine(c: jax.Array) -> jax.Array:
    """`arc_cosine` with a slope, f'(1) = 1."""
    return arc_cosine(jnp.clip(c, -1, 1), jnp)


@relu_cosine.defjvp
def _(primals, tangents):
    # f' = 1 - arccos(c) / pi is finite at c = 1, its terms are not.
    (c,), (dc,) = primals, tangents
    inside = jnp.abs(c) < 1
    angle = jnp.where(inside, jnp.arccos(jnp.where(inside, c, 0.0)), jnp.where(c > 0, 0.0, jnp.pi))
    return relu_cosine(c), (1 - angle / jnp.pi) * dc
