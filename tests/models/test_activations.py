"""Activation functions by name, equal in models and theory."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.core.errors import UserError
from jaxformer.models.activations import ACTIVATIONS, activation, shaped_leaky_relu
from jaxformer.models.decoder import decoder
from jaxformer.models.encoder import encoder
from theory.activations import activation_function

X = jnp.linspace(-3, 3, 7)


def test_gelu_is_exact_and_gelu_tanh_approximates_it():
    exact = [x * 0.5 * (1 + math.erf(x / 2**0.5)) for x in np.linspace(-3, 3, 7)]
    np.testing.assert_allclose(activation("gelu", 8)(X), exact, atol=1e-6)
    gap = np.abs(activation("gelu_tanh", 8)(X) - np.array(exact)).max()
    assert 3e-4 < gap < 6e-4


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_name_is_the_same_function_in_models_and_theory(name):
    assert activation(name, 8) is activation_function(name)
    sizes = {"vocab_size": 5, "length": 4, "width": 8, "layers": 1, "heads": 2}
    assert decoder(**sizes, mlp_width=8, act=name).spec.act == name
    assert encoder(**sizes, beta=1.0, activation=name).spec.activation == name


def test_shaped_leaky_needs_a_width():
    np.testing.assert_array_equal(activation("shaped_leaky", 16)(X), shaped_leaky_relu(16)(X))
    for wrong in (lambda: activation_function("shaped_leaky"), lambda: activation("gelo", 8)):
        with pytest.raises(UserError, match=r"unknown activation .*gelu_tanh"):
            wrong()
