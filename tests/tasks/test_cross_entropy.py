"""The cross-entropy equals the log-softmax in every bit, forward and backward."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.tasks.cross_entropy import cross_entropy


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_loss_and_gradient_have_the_bits_of_the_log_softmax(dtype):
    keys = jax.random.split(jax.random.key(0), 3)
    logits = 5 * jax.random.normal(keys[0], (2, 3, 4, 37), dtype)  # members first
    targets = jax.random.randint(keys[1], (2, 3, 4), 0, 37)
    weights = jax.random.normal(keys[2], (3, 4))

    def by_log_softmax(logits, targets):
        logp = jax.nn.log_softmax(logits)
        return -jnp.take_along_axis(logp, targets[..., None], -1)[..., 0]

    def results(nats):
        loss = lambda logits, targets: (nats(logits.astype(float), targets) * weights).sum()  # noqa: E731
        return jax.jit(jax.vmap(jax.value_and_grad(loss)))(logits, targets)

    for a, b in zip(results(cross_entropy), results(by_log_softmax), strict=True):
        np.testing.assert_array_equal(a, b)
