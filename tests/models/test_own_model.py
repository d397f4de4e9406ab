"""A model from outside is tried once: it must not read the token that it predicts."""

import flax.linen as nn
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import jaxformer
from jaxformer.core.errors import UserError
from jaxformer.models.decoder import decoder
from jaxformer.models.own_model import model_identity

SIZES = {"vocab_size": 12, "length": 8}
TOKENS = np.arange(16).reshape(2, 8) % 12


class Reader(nn.Module):
    """Adds to each position the token that stands `ahead` places later."""

    ahead: int = 0
    dropout: float = 0.0
    zeros: bool = False

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(12, 8)(tokens)
        is_inside = (jnp.arange(8) < 8 - self.ahead)[None, :, None]
        later = jnp.roll(x, -self.ahead, axis=1) * is_inside
        x = nn.relu(x + later)
        x = nn.Dropout(self.dropout, deterministic=not self.dropout)(x)
        init = nn.initializers.zeros if self.zeros else nn.initializers.lecun_normal()
        return nn.Dense(12, kernel_init=init)(x)


def identity(causal=True, **fields):
    return model_identity(jaxformer.wrap(Reader(**fields), causal=causal, **SIZES), TOKENS)


@pytest.mark.parametrize("fields", [{"ahead": 1}, {"ahead": 5}, {"ahead": 1, "zeros": True}])
def test_a_module_that_looks_ahead_is_refused(fields):
    with pytest.raises(UserError, match="depends on later tokens"):
        identity(**fields)


def test_looking_ahead_is_fine_where_it_is_declared():
    assert identity(ahead=1, causal=False)


def test_a_causal_module_passes_and_is_identified_by_its_logits():
    assert identity() == identity() != identity(zeros=True, causal=False, ahead=1)


def test_an_nnx_module_that_looks_ahead_is_refused():
    class Ahead(nnx.Module):
        def __init__(self, rngs):
            self.embed, self.out = nnx.Embed(12, 8, rngs=rngs), nnx.Linear(8, 12, rngs=rngs)

        def __call__(self, tokens):
            return self.out(jnp.roll(self.embed(tokens), -1, axis=1))

    with pytest.raises(UserError, match="depends on later tokens"):
        model_identity(jaxformer.wrap(Ahead, **SIZES), TOKENS)


def test_dropout_is_a_one_line_error():
    with pytest.raises(UserError) as error:
        identity(dropout=0.5)
    assert "build it with deterministic=True" in str(error.value) and "\n" not in str(error.value)


def test_networks_of_this_package_are_not_tried():
    assert model_identity(decoder(**SIZES, width=8, layers=1, heads=2, mlp_width=8), TOKENS) == {}
