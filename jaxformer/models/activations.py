"""The activation functions of MLPs by name, shared by models and theory.

"gelu" is the exact function, x times the normal distribution function.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp

from jaxformer.core.errors import unknown

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "relu": jax.nn.relu,
    "gelu": partial(jax.nn.gelu, approximate=False),
    "gelu_tanh": partial(jax.nn.gelu, approximate=True),
    "quick_gelu": lambda x: x * jax.nn.sigmoid(1.702 * x),
    "silu": jax.nn.silu,
    "tanh": jnp.tanh,
    "linear": lambda x: x,
}


def activation(name: str, width: int) -> Callable[[jax.Array], jax.Array]:
    """Returns the activation with this name; "shaped_leaky" depends on the width n."""
    choices = ACTIVATIONS | {"shaped_leaky": shaped_leaky_relu(width)}
    if name not in choices:
        raise unknown("activation", name, choices)
    return choices[name]


def shaped_leaky_relu(width: int, c: float = -1.0) -> Callable[[jax.Array], jax.Array]:
    """Returns LeakyReLU with the negative slope 1 + c/sqrt(n).

    It is scaled so that an input from N(0, 1) gives an output of second moment 1.
    """
    slope = 1 + c / width**0.5
    gain = (2 / (1 + slope**2)) ** 0.5
    return lambda x: gain * jnp.where(x >= 0, x, slope * x)
