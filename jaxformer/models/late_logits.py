"""Logits that are never held whole: what the head reads, and the head, multiplied chunk by chunk.

    logits = h W,  nats = logsumexp(logits) - logits[target]

A chunk is a number of positions. The backward pass computes each chunk's logits again, so that at
any time one chunk of them is in memory, whatever the vocabulary and the batch are.
"""

import inspect
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxformer.errors import UserError


class LateLogits(NamedTuple):
    """Stands for the logits h W of shape (B, K, V)."""

    h_BxKxN: jax.Array
    kernel_NxV: jax.Array
    chunk: int  # positions at once

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.h_BxKxN.shape[:2], self.kernel_NxV.shape[1])

    def scores(self, targets_BxK: jax.Array, dtype: Any) -> tuple[jax.Array, jax.Array]:
        """(B, K) nats of each target in `dtype`, (B, K) the most likely token."""
        n = targets_BxK.size
        chunk = min(self.chunk, n)
        width, padding = self.h_BxKxN.shape[2], -n % chunk
        h_CxPxN = jnp.pad(self.h_BxKxN.reshape(n, width), ((0, padding), (0, 0)))
        targets_CxP = jnp.pad(targets_BxK.reshape(n), (0, padding)).reshape(-1, chunk)
        kernel_NxV = self.kernel_NxV.astype(h_CxPxN.dtype)

        @jax.checkpoint
        def score(kernel_NxV, h_PxN, targets_P):
            logits_PxV = h_PxN @ kernel_NxV
            best_P = jnp.argmax(logits_PxV, -1)
            logits_PxV = logits_PxV.astype(dtype)
            taken_P = jnp.take_along_axis(logits_PxV, targets_P[:, None], 1)[:, 0]
            return jax.nn.logsumexp(logits_PxV, -1) - taken_P, best_P

        nats_CxP, best_CxP = jax.lax.map(
            lambda one: score(kernel_NxV, *one), (h_CxPxN.reshape(-1, chunk, width), targets_CxP)
        )
        return tuple(x.reshape(-1)[:n].reshape(targets_BxK.shape) for x in (nats_CxP, best_CxP))


def late_logits(model: Any, params: Any, inputs: tuple, chunk: int) -> LateLogits:
    """The logits of a model with a linear head called `unembed`."""
    h_BxKxN = model.apply({"params": params}, *inputs, head=False)
    return LateLogits(h_BxKxN, params["unembed"]["kernel"], chunk)


def check_head(model: Any) -> None:
    """Raises unless the model can leave its head to others."""
    if "head" not in inspect.signature(model.__call__).parameters:
        raise UserError(
            f"train.loss_chunk needs a model that takes head=False and has a linear `unembed`, as "
            f"the decoder does; {type(model).__name__} has not: leave it at 0."
        )
