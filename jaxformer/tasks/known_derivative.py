"""The derivative of a loss in the nats of its tokens, known before the nats are computed.

`chunked_loss` needs it to compute the gradients of a large vocabulary in the pass of the loss.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.interpreters.partial_eval import dce_jaxpr

from jaxformer.tasks.chunked_loss import DeferredLogits


class _GivenScores(DeferredLogits):
    """Deferred logits whose scores are given, so that a loss can be differentiated in them."""

    nats_BxK: jax.Array
    best_BxK: jax.Array
    asked: list[jax.Array]  # the targets of all calls of `scores`
    # The number of the call that gets the nats, to which others add nothing; None: all get them.
    call: int | None = None

    def scores(self, targets_BxK: jax.Array, dtype: Any) -> tuple[jax.Array, jax.Array]:
        self.asked.append(targets_BxK)
        is_given = self.call in (None, len(self.asked) - 1)
        nats_BxK = self.nats_BxK if is_given else jnp.zeros_like(self.nats_BxK)
        return nats_BxK.astype(dtype), self.best_BxK


def with_derivative(logits: Any, targets_BxK: jax.Array, loss: Callable[[Any], jax.Array]) -> Any:
    """Gives deferred logits the derivative of the loss in their nats, if it is known beforehand.

    It is known if the derivative of the loss depends neither on the nats nor on the most likely
    tokens, as in a weighted mean. Other losses, those that read the nats twice, and logits that are
    not deferred stay as they are.

    Args:
        logits: the logits of a batch.
        targets_BxK: its targets.
        loss: the loss of these logits, which the caller is about to differentiate.
    """
    if not isinstance(logits, DeferredLogits):
        return logits
    asked: list[jax.Array] = []

    def loss_of(nats_BxK, best_BxK, call=None):
        given = _GivenScores(*logits)
        asked.clear()
        given.nats_BxK, given.best_BxK, given.asked, given.call = nats_BxK, best_BxK, asked, call
        return loss(given)

    shape = logits.shape[:2]
    zeros = jnp.zeros(shape, jnp.float32), jnp.zeros(shape, jnp.int32)

    def used(function):
        return dce_jaxpr(jax.make_jaxpr(function)(*zeros).jaxpr, [True])[1]

    if any(used(jax.grad(loss_of))) or any(targets is not targets_BxK for targets in asked):
        return logits
    # The backward pass of one call returns the gradient of the whole loss, so only one may count.
    if sum(used(partial(loss_of, call=i))[0] for i in range(len(asked))) > 1:
        return logits
    return logits._replace(derivative_BxK=jax.grad(loss_of)(*zeros))
