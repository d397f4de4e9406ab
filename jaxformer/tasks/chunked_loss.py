"""The cross-entropy of a large vocabulary, computed in chunks of positions.

    logits = h W,  nats = logsumexp(logits) - logits[target]

Only the logits of one chunk are in memory at a time. The backward pass computes them again. The
gradient of W is summed in float32, even if its terms have a lower precision.
"""

import functools
import inspect
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxformer.core import layouts
from jaxformer.core.errors import UserError
from jaxformer.models.activation_points import INTERMEDIATES, Request
from jaxformer.models.half_precision import wide

LAST_STATES = "final"  # the activation from which the unembedding computes the logits


class DeferredLogits(NamedTuple):
    """Logits h W of K scored positions, of shape (B, K, V), that are not computed yet."""

    h_BxKxN: jax.Array
    kernel_NxV: jax.Array
    chunk: int  # positions of the batch whose logits are computed at a time

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.h_BxKxN.shape[:2], self.kernel_NxV.shape[1])

    def scores(self, targets_BxK: jax.Array, dtype: Any) -> tuple[jax.Array, jax.Array]:
        """Returns the (B, K) nats of each target in `dtype` and the (B, K) most likely tokens."""
        score_part = functools.partial(self._scores_of_part, jnp.dtype(dtype), targets_BxK.size)
        return layouts.map_parts(score_part, self.h_BxKxN, targets_BxK)

    def _scores_of_part(self, dtype: Any, total: int, h_BxKxN: jax.Array, targets_BxK: jax.Array):
        """Returns the scores of a device's part of a batch with `total` positions."""
        n = targets_BxK.size
        # A device computes its share of each chunk.
        chunk = min(math.ceil(self.chunk * n / total), n)
        width, padding = h_BxKxN.shape[2], -n % chunk
        padded_h = jnp.pad(h_BxKxN.reshape(n, width), ((0, padding), (0, 0)))
        h_CxPxN = padded_h.reshape(-1, chunk, width)
        targets_CxP = jnp.pad(targets_BxK.reshape(n), (0, padding)).reshape(-1, chunk)
        scores: Any = _scores(dtype, h_CxPxN, self.kernel_NxV, targets_CxP)
        nats_BxK, best_BxK = (x.reshape(-1)[:n].reshape(targets_BxK.shape) for x in scores)
        return nats_BxK, best_BxK


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _scores(dtype: Any, h_CxPxN: jax.Array, kernel_NxV: jax.Array, targets_CxP: jax.Array) -> Any:
    """Returns (C, P) nats and (C, P) most likely tokens of C chunks of P positions."""
    return _forward(dtype, h_CxPxN, kernel_NxV, targets_CxP)[0]


def _logits(dtype: Any, h_PxN: jax.Array, kernel_NxV: jax.Array) -> jax.Array:
    # Products in half precision are summed in the precision of the loss.
    return jnp.matmul(h_PxN, kernel_NxV, preferred_element_type=dtype)


def _gathered(kernel_NxV: jax.Array, h_CxPxN: jax.Array) -> jax.Array:
    """Returns the kernel in the precision of h, gathered from a mesh once for all chunks."""
    return layouts.gather_parameter(kernel_NxV.astype(h_CxPxN.dtype), None, "tensor")


@jax.named_scope("head")
def _forward(dtype, h_CxPxN, kernel_NxV, targets_CxP):
    used_NxV = _gathered(kernel_NxV, h_CxPxN)

    def score(chunk):
        h_PxN, targets_P = chunk
        logits_PxV = _logits(dtype, h_PxN, used_NxV)
        target_logit_P = jnp.take_along_axis(logits_PxV, targets_P[:, None], 1)[:, 0]
        logsumexp_P = jax.nn.logsumexp(logits_PxV, -1)
        return logsumexp_P - target_logit_P, jnp.argmax(logits_PxV, -1), logsumexp_P

    nats_CxP, best_CxP, logsumexp_CxP = jax.lax.map(score, (h_CxPxN, targets_CxP))
    return (nats_CxP, best_CxP), (h_CxPxN, kernel_NxV, targets_CxP, logsumexp_CxP)


@jax.named_scope("head")
def _backward(dtype, residuals, cotangents):
    """Applies d nats / d logits = softmax - onehot(target) chunk by chunk."""
    h_CxPxN, kernel_NxV, targets_CxP, logsumexp_CxP = residuals
    used_NxV = _gathered(kernel_NxV, h_CxPxN)

    def back(sum_NxV, chunk):
        h_PxN, targets_P, logsumexp_P, cotangent_P = chunk
        p_PxV = jnp.exp(_logits(dtype, h_PxN, used_NxV) - logsumexp_P[:, None])
        is_target_PxV = targets_P[:, None] == jnp.arange(kernel_NxV.shape[1])[None]
        logits_gradient_PxV = (cotangent_P[:, None] * (p_PxV - is_target_PxV)).astype(h_PxN.dtype)
        sum_NxV += jnp.matmul(h_PxN.T, logits_gradient_PxV, preferred_element_type=sum_NxV.dtype)
        return sum_NxV, logits_gradient_PxV @ used_NxV.T

    parts = (h_CxPxN, targets_CxP, logsumexp_CxP, cotangents[0])
    sum_NxV, h_gradient = jax.lax.scan(back, wide(jnp.zeros_like(kernel_NxV)), parts)
    return h_gradient, sum_NxV.astype(kernel_NxV.dtype), None


_scores.defvjp(_forward, _backward)


def deferred_logits(model: Any, params: Any, inputs: tuple, chunk: int) -> DeferredLogits:
    """Returns the deferred logits of a model whose head is a linear map of its last states.

    Args:
        model: a model that `check_head` accepts.
        params: its parameters.
        inputs: the tokens, and the scored positions or None.
        chunk: positions whose logits are in memory at a time.
    """
    if _takes_head(model):
        h_BxKxN = model.apply({"params": params}, *inputs, head=False)
        return DeferredLogits(h_BxKxN, params["unembed"]["kernel"], chunk)
    with Request(names=(LAST_STATES,)).active():
        # Only the last states are used, so the compiler removes the logits of all positions.
        _, variables = model.apply({"params": params}, *inputs, mutable=[INTERMEDIATES])
    if model.spec.tied:
        kernel_NxV = jnp.asarray(params["embed"]["embedding"]).T
    else:
        kernel_NxV = params["unembed"]["kernel"]
    return DeferredLogits(variables[INTERMEDIATES][LAST_STATES], kernel_NxV, chunk)


def check_head(model: Any) -> None:
    """Raises UserError unless the logits are a linear map of the model's last states."""
    spec = model.spec
    is_published = hasattr(spec, "tied") and hasattr(spec, "family")
    if _takes_head(model) or (is_published and not _extra_head_step(spec)):
        return
    reason = "takes no head=False"
    if is_published:
        reason = f"has {_extra_head_step(spec)} after its last states"
    raise UserError(
        f"train.loss_chunk needs a model whose logits are a linear map of its last states, such as "
        f"the decoder; {type(model).__name__} {reason}: set train.loss_chunk=0."
    )


def _takes_head(model: Any) -> bool:
    """Returns whether the model takes head=False, which returns last states without logits."""
    return "head" in inspect.signature(model.__call__).parameters


def _extra_head_step(spec: Any) -> str:
    """Returns a step, besides the unembedding, from a published model's last states to its logits.

    Returns "" if there is none.
    """
    extras = {
        "logit_cap": "a cap of the logits",
        "unembed_bias": "a bias of the logits",
        "head_act": "a dense layer",
        "embed_width": "a narrower embedding",
    }
    return next((text for field, text in extras.items() if getattr(spec, field, 0)), "")
