"""A batch in parts has the gradient of the whole batch; a batch that does not divide is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.core.errors import UserError
from jaxformer.core.sharding import check_batch
from jaxformer.tasks.task import Batch, over_scored
from jaxformer.training.step import in_parts, token_weighted

ROWS, T = 12, 5


def scores_of(trainable, frozen, batch, total):
    """Returns a linear model's scores; an example's loss is the mean over its scored tokens."""
    out_BxT = jnp.tanh(batch.inputs @ trainable["w"]) * frozen
    probes = {"size": (out_BxT**2).mean()}
    return over_scored((out_BxT - batch.targets) ** 2, batch.weights), probes


@pytest.mark.parametrize("parts", [3, pytest.param(12, marks=pytest.mark.slow)])
def test_the_gradient_is_that_of_the_whole_batch(parts):
    """Examples have different weights, so the mean of the parts' means would be wrong."""
    keys = jax.random.split(jax.random.key(0), 4)
    batch = Batch(
        jax.random.normal(keys[0], (ROWS, T)),
        jax.random.normal(keys[1], (ROWS, T)),
        jax.random.bernoulli(keys[2], 0.4, (ROWS, T)) * 1.0,
    )
    trainable, frozen = {"w": jax.random.normal(keys[3], (T, T))}, jnp.float32(0.7)

    def whole(trainable, frozen, batch):
        scores, probes = scores_of(trainable, frozen, batch, token_weighted)
        return token_weighted(scores), probes

    expected = jax.value_and_grad(whole, has_aux=True)(trainable, frozen, batch)
    result = jax.jit(in_parts(scores_of, parts))(trainable, frozen, batch)
    for a, b in zip(jax.tree.leaves(result), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-6, atol=1e-7)


def test_a_batch_that_does_not_divide_is_refused():
    sizes = {"data": 2, "fsdp": 1, "tensor": 1, "members": 3}
    check_batch(12, sizes, 3)
    with pytest.raises(UserError, match=r"12 is not a multiple of the 2 .* accumulate = 4"):
        check_batch(12, sizes, 4)
