"""The cross-entropy of a large vocabulary, computed in chunks of positions.

    logits = h W,  nats = logsumexp(logits) - logits[target]

Only the logits of one chunk are in memory at a time. A training step knows the derivative of its
loss in the nats of each position beforehand, because the loss is a weighted mean of them
(`known_derivative`). So the same pass computes the gradients of h and W, and the logits only once.
Without it the backward pass computes them again. The gradient of W is summed in float32, even if
its terms have a lower precision.
"""

import functools
import inspect
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxformer.core import layouts
from jaxformer.core.adapters import KERNEL, LORA_A, LORA_B, LORA_SCALE
from jaxformer.core.errors import UserError, setting
from jaxformer.models.activation_points import INTERMEDIATES, Request
from jaxformer.models.half_precision import matrix_product, wide

LAST_STATES = "final"  # the activation from which the unembedding computes the logits


class DeferredLogits(NamedTuple):
    """Logits h W of K scored positions, of shape (B, K, V), that are not computed yet."""

    h_BxKxN: jax.Array
    kernel_NxV: jax.Array
    chunk: int  # positions of the batch whose logits are computed at a time
    derivative_BxK: Any = None  # of the loss in the nats, if it is known before the nats are

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.h_BxKxN.shape[:2], self.kernel_NxV.shape[1])

    def scores(self, targets_BxK: jax.Array, dtype: Any) -> tuple[jax.Array, jax.Array]:
        """Returns the (B, K) nats of each target in `dtype` and the (B, K) most likely tokens."""
        if self.derivative_BxK is None:
            score_part = functools.partial(self._scores_of_part, jnp.dtype(dtype), targets_BxK.size)
            return layouts.map_parts(score_part, self.h_BxKxN, targets_BxK)
        arrays = (self.h_BxKxN, self.kernel_NxV, targets_BxK, self.derivative_BxK)
        return _scores_in_one_pass(self.chunk, jnp.dtype(dtype), *arrays)

    def _scores_of_part(self, dtype: Any, total: int, h_BxKxN: jax.Array, targets_BxK: jax.Array):
        """Returns the scores of a device's part of a batch with `total` positions."""
        h_CxPxN, targets_CxP = in_chunks(self.chunk, total, h_BxKxN, targets_BxK)
        scores: Any = _scores(dtype, h_CxPxN, self.kernel_NxV, targets_CxP)
        nats_BxK, best_BxK = (_without_padding(x_CxP, targets_BxK) for x_CxP in scores)
        return nats_BxK, best_BxK


def in_chunks(chunk: int, total: int, *arrays: jax.Array) -> list[jax.Array]:
    """The positions of (B, K, ..) arrays in chunks, (C, P, ..), the last one filled with zeros.

    Args:
        chunk: positions of all devices in a chunk; a device has its share of each.
        total: positions of all devices.
        arrays: the part of the batch on this device.
    """
    n = math.prod(arrays[0].shape[:2])
    size = min(math.ceil(chunk * n / total), n)

    def split(x):
        padded = jnp.pad(x.reshape(n, *x.shape[2:]), ((0, -n % size), *[(0, 0)] * (x.ndim - 2)))
        return padded.reshape(-1, size, *x.shape[2:])

    return [split(x) for x in arrays]


def _without_padding(x_CxP: jax.Array, like_BxK: jax.Array) -> jax.Array:
    """Undoes `in_chunks`: (C, P, ..) to (B, K, ..)."""
    flat = x_CxP.reshape(-1, *x_CxP.shape[2:])[: like_BxK.size]
    return flat.reshape(*like_BxK.shape, *x_CxP.shape[2:])


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _scores(dtype: Any, h_CxPxN: jax.Array, kernel_NxV: jax.Array, targets_CxP: jax.Array) -> Any:
    """Returns (C, P) nats and (C, P) most likely tokens of C chunks of P positions."""
    return _forward(dtype, h_CxPxN, kernel_NxV, targets_CxP)[0]


def _logits(dtype: Any, h_PxN: jax.Array, kernel_NxV: jax.Array) -> jax.Array:
    # Products in half precision are summed in the precision of the loss.
    return jnp.matmul(h_PxN, kernel_NxV, preferred_element_type=dtype)


def _nats(logits_PxV: jax.Array, targets_P: jax.Array) -> tuple[jax.Array, ...]:
    """Returns nats, most likely tokens and logsumexp of P positions."""
    target_logit_P = jnp.take_along_axis(logits_PxV, targets_P[:, None], 1)[:, 0]
    logsumexp_P = _logsumexp(logits_PxV)
    return logsumexp_P - target_logit_P, jnp.argmax(logits_PxV, -1), logsumexp_P


def _logsumexp(logits_PxV: jax.Array) -> jax.Array:
    """The log of the sum of exponentials; an NVIDIA GPU reads the logits once instead of twice."""

    def add(a, b):  # (largest logit, sum of exp(logit - largest)) of two parts of a row
        (max_a, sum_a), (max_b, sum_b) = a, b
        largest = jnp.maximum(max_a, max_b)
        return largest, sum_a * jnp.exp(max_a - largest) + sum_b * jnp.exp(max_b - largest)

    def in_one_pass(logits_PxV):
        nothing = (jnp.finfo(logits_PxV.dtype).min, 0.0)
        start = tuple(jnp.asarray(x, logits_PxV.dtype) for x in nothing)
        arrays = (logits_PxV, jnp.ones_like(logits_PxV))
        max_P, sum_P = jax.lax.reduce(arrays, start, add, (1,))
        return max_P + jnp.log(sum_P)

    def in_two_passes(logits_PxV):
        return jax.nn.logsumexp(logits_PxV, -1)

    return jax.lax.platform_dependent(logits_PxV, cuda=in_one_pass, default=in_two_passes)


def _logits_gradient(logits_PxV, logsumexp_P, targets_P, cotangent_P) -> jax.Array:
    """Returns the cotangent of the nats times softmax - onehot(target)."""
    p_PxV = jnp.exp(logits_PxV - logsumexp_P[:, None])
    is_target_PxV = targets_P[:, None] == jnp.arange(logits_PxV.shape[1])[None]
    return cotangent_P[:, None] * (p_PxV - is_target_PxV)


def _gathered(kernel_NxV: jax.Array, h: jax.Array) -> jax.Array:
    """Returns the kernel in the precision of h, gathered from a mesh once for all chunks."""
    return layouts.gather_parameter(kernel_NxV.astype(h.dtype), None, "tensor")


@jax.named_scope("head")
def _forward(dtype, h_CxPxN, kernel_NxV, targets_CxP):
    used_NxV = _gathered(kernel_NxV, h_CxPxN)

    def score(chunk):
        h_PxN, targets_P = chunk
        return _nats(_logits(dtype, h_PxN, used_NxV), targets_P)

    nats_CxP, best_CxP, logsumexp_CxP = jax.lax.map(score, (h_CxPxN, targets_CxP))
    return (nats_CxP, best_CxP), (h_CxPxN, kernel_NxV, targets_CxP, logsumexp_CxP)


@jax.named_scope("head")
def _backward(dtype, residuals, cotangents):
    """Applies d nats / d logits = softmax - onehot(target) chunk by chunk."""
    h_CxPxN, kernel_NxV, targets_CxP, logsumexp_CxP = residuals
    used_NxV = _gathered(kernel_NxV, h_CxPxN)

    def back(sum_NxV, chunk):
        h_PxN, targets_P, logsumexp_P, cotangent_P = chunk
        logits_PxV = _logits(dtype, h_PxN, used_NxV)
        logits_gradient_PxV = _logits_gradient(logits_PxV, logsumexp_P, targets_P, cotangent_P)
        logits_gradient_PxV = logits_gradient_PxV.astype(h_PxN.dtype)
        sum_NxV += jnp.matmul(h_PxN.T, logits_gradient_PxV, preferred_element_type=sum_NxV.dtype)
        return sum_NxV, logits_gradient_PxV @ used_NxV.T

    parts = (h_CxPxN, targets_CxP, logsumexp_CxP, cotangents[0])
    sum_NxV, h_gradient = jax.lax.scan(back, wide(jnp.zeros_like(kernel_NxV)), parts)
    return h_gradient, sum_NxV.astype(kernel_NxV.dtype), None


_scores.defvjp(_forward, _backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _scores_in_one_pass(
    chunk: int, dtype: Any, h_BxKxN: Any, kernel_NxV: Any, targets_BxK: Any, derivative_BxK: Any
) -> Any:
    """(B, K) nats and most likely tokens, whose backward pass only returns what is known.

    The cotangent of the nats must be `derivative_BxK`, which `known_derivative` computes from the
    loss that the step differentiates.
    """
    del derivative_BxK
    return DeferredLogits(h_BxKxN, kernel_NxV, chunk).scores(targets_BxK, dtype)


@jax.named_scope("head")
def _one_pass(chunk, dtype, h_BxKxN, kernel_NxV, targets_BxK, derivative_BxK):
    used_NxV = _gathered(kernel_NxV, h_BxKxN)
    logits_dtype = h_BxKxN.dtype if h_BxKxN.dtype.itemsize == 2 else dtype

    def score(sum_NxV, part):
        h_PxN, targets_P, derivative_P = part
        # Logits are stored in half precision if h is; all sums over them are in `dtype`.
        logits_PxV = _logits(logits_dtype, h_PxN, used_NxV).astype(dtype)
        nats_P, best_P, logsumexp_P = _nats(logits_PxV, targets_P)
        logits_gradient_PxV = _logits_gradient(logits_PxV, logsumexp_P, targets_P, derivative_P)
        logits_gradient_PxV = logits_gradient_PxV.astype(h_PxN.dtype)
        sum_NxV += jnp.matmul(h_PxN.T, logits_gradient_PxV, preferred_element_type=sum_NxV.dtype)
        return sum_NxV, (nats_P, best_P, logits_gradient_PxV @ used_NxV.T)

    def score_part(h_BxKxN, targets_BxK, derivative_BxK):
        arrays = (h_BxKxN, targets_BxK, derivative_BxK)
        sum_NxV, results = jax.lax.scan(
            score, wide(jnp.zeros_like(kernel_NxV)), tuple(in_chunks(chunk, total, *arrays))
        )
        return tuple(_without_padding(x_CxP, targets_BxK) for x_CxP in results), sum_NxV

    total = targets_BxK.size
    arrays = (h_BxKxN, targets_BxK, derivative_BxK)
    (nats, best, h_gradient), sum_NxV = layouts.map_and_add_parts(score_part, *arrays)
    # Each device keeps its part of the gradient only, as it does of the kernel.
    sum_NxV = layouts.gather_parameter(sum_NxV, "fsdp", "tensor")
    return (nats, best), (h_gradient, sum_NxV.astype(kernel_NxV.dtype))


def _known_gradients(chunk, dtype, gradients, cotangents):
    return *gradients, None, None


_scores_in_one_pass.defvjp(_one_pass, _known_gradients)


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
        return DeferredLogits(*_with_adapter(h_BxKxN, params["unembed"]), chunk)
    with Request(names=(LAST_STATES,)).active():
        # Only the last states are used, so the compiler removes the logits of all positions.
        _, variables = model.apply({"params": params}, *inputs, mutable=[INTERMEDIATES])
    h_BxKxN = variables[INTERMEDIATES][LAST_STATES]
    if model.spec.tied:
        return DeferredLogits(h_BxKxN, jnp.asarray(params["embed"]["embedding"]).T, chunk)
    return DeferredLogits(*_with_adapter(h_BxKxN, params["unembed"]), chunk)


def _with_adapter(h_BxKxN: jax.Array, module: Mapping[str, Any]) -> tuple[jax.Array, jax.Array]:
    """(h, W), or with an adapter ([h, s h A], [W; B]), whose product is h W + s (h A) B.

    The sum W + s A B would lose small updates of a kernel in half precision.
    """
    kernel_NxV = jnp.asarray(module[KERNEL])
    if LORA_A not in module:
        return h_BxKxN, kernel_NxV
    narrow_BxKxR = matrix_product(h_BxKxN, jnp.asarray(module[LORA_A]))
    narrow_BxKxR *= jnp.asarray(module[LORA_SCALE]).astype(h_BxKxN.dtype)
    wider = jnp.concatenate([kernel_NxV, jnp.asarray(module[LORA_B])])
    return jnp.concatenate([h_BxKxN, narrow_BxKxR], -1), wider


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
        f"{setting('train.loss_chunk')} needs a model whose logits are a linear map of its last "
        f"states, such as the decoder; {type(model).__name__} {reason}: set "
        f"{setting('train.loss_chunk')}=0."
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
