"""The Gaussian-process predictor at an order parameter U, and quantities computed from U.

    mean = k^T (K + T)^-1 Y
    variance = K(x*, x*) - k^T (K + T)^-1 k       (arXiv 2405.15926, Equations 5-6)

x* is a test input, and k is the vector of its kernels with the training examples. k, K and
K(x*, x*) exclude the temperature, which is added only where K is inverted.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from jaxformer.core.errors import UserError
from theory.attention_paths import multiple_outputs
from theory.attention_paths.argument_checks import check_attentioned, check_problem
from theory.attention_paths.kernel import (
    Fit,
    feature_map,
    fit_labels,
    kernel_of_factor,
    store_examples,
)
from theory.attention_paths.order_parameter import OrderParameter
from theory.numerics import Array, Numbers, in_float64

TESTS_AT_ONCE = 200  # limits the memory of `variances`


@in_float64
def predict(
    order_parameter: OrderParameter, attentioned: Array, labels: Array, attentioned_test: Array
) -> tuple[jax.Array, jax.Array]:
    """Returns the mean and the variance of f on test inputs, in the limit of wide networks.

    Args:
        order_parameter: result of `order_parameter`.
        attentioned: training inputs xi, (P, D, n).
        labels: training labels, (P,) or (P, m).
        attentioned_test: test inputs, (B, D, n).

    Returns:
        Mean and variance, (B,) each, or (B, m) each for labels (P, m).

    Example:
        >>> solution = order_parameter(xi, labels, width=10, temperature=0.1, heads=(2, 2))
        >>> mean, variance = predict(solution, xi, labels, xi_test)
    """
    heads, temperature = order_parameter.heads, order_parameter.temperature
    attentioned, labels = check_problem(attentioned, labels, temperature, heads)
    return predict_at(order_parameter.U, attentioned, labels, temperature, attentioned_test)


@in_float64
def predict_at(
    U: Array, attentioned: Array, labels: Array, temperature: Numbers, attentioned_test: Array
) -> tuple[jax.Array, jax.Array]:
    """Returns the mean and the variance of f on test inputs at any U.

    U may be the identity (the GP limit) or the result of `prune` (a network without one head).
    Other arguments and results as in `predict`.
    """
    U, labels = jnp.asarray(U), jnp.asarray(labels)
    m = multiple_outputs.count(labels)
    heads = (len(U) // m,)  # the check needs only their product, the number of paths
    n = attentioned.shape[2]
    attentioned_test = check_attentioned("attentioned_test", attentioned_test, heads, n)
    temperature = jnp.asarray(temperature, labels.dtype)
    inputs, tests = (multiple_outputs.expand(xi, m) for xi in (attentioned, attentioned_test))
    mean, variance = _predict(U, inputs, labels.reshape(-1), temperature, tests)
    return multiple_outputs.by_output(mean, labels), multiple_outputs.by_output(variance, labels)


def mean_weights(attentioned_PxDxn: jax.Array, fit: Fit, U_DxD: jax.Array) -> jax.Array:
    """Returns the linear map W of the mean predictor, (D, n): mean = sum_pi W^pi . xi*^pi.

    Args:
        attentioned_PxDxn: the path inputs of the training examples.
        fit: the solution of the kernel regression on their labels.
        U_DxD: the order parameter.
    """
    paths, n = attentioned_PxDxn.shape[1:]
    weighted_inputs_Dxn = jnp.tensordot(fit.alpha_P, attentioned_PxDxn, 1)
    return U_DxD @ weighted_inputs_Dxn / (paths * n)


def variances(
    factor_Dxr: jax.Array,
    attentioned_PxDxn: jax.Array,
    cholesky_PxP: jax.Array,
    test_BxDxn: jax.Array,
) -> jax.Array:
    """Returns the variance of f on the test inputs, (B,), `TESTS_AT_ONCE` at a time.

    Args:
        factor_Dxr: a factor of the order parameter U.
        attentioned_PxDxn: the path inputs of the training examples.
        cholesky_PxP: the Cholesky factor of K + T.
        test_BxDxn: the path inputs of the test examples.
    """
    phi_PxF = feature_map(attentioned_PxDxn, factor_Dxr)

    def of_test(test_Dxn):
        phi_F = feature_map(test_Dxn[None], factor_Dxr)[0]
        whitened_P = solve_triangular(cholesky_PxP, phi_PxF @ phi_F, lower=True)
        return phi_F @ phi_F - whitened_P @ whitened_P

    return jax.lax.map(of_test, test_BxDxn, batch_size=TESTS_AT_ONCE)


def psd_factor(U_DxD: jax.Array) -> jax.Array:
    """Returns F with U = F F^T, also for a singular U."""
    values_D, vectors_DxD = jnp.linalg.eigh(U_DxD)
    return vectors_DxD * jnp.sqrt(jnp.maximum(values_D, 0))[None, :]


@in_float64
def log_evidence(order_parameter: OrderParameter, examples: int) -> jax.Array:
    """Returns ln p(Y | X) at leading order in N: -N (S - S_prior) / 2 - P ln(2 pi) / 2.

    S_prior = sum_l (N_l / N) H_l .. H_L is the action without data, where N is the largest width
    and H_l .. H_L the product of the numbers of heads from layer l on.

    Args:
        order_parameter: result of `order_parameter`.
        examples: number P of training examples.
    """
    widths, heads = order_parameter.width, order_parameter.heads
    sizes = [math.prod(heads[l:]) * order_parameter.outputs for l in range(len(heads) + 1)]
    prior = sum(width * size for width, size in zip(widths, sizes))
    largest = functools.reduce(jnp.maximum, widths)
    excess = largest * order_parameter.action - prior
    return -0.5 * (excess + examples * math.log(2 * math.pi))


@in_float64
def gram_hidden(order_parameter: OrderParameter) -> jax.Array:
    """Returns the Gram matrix without the input projection, <v^(1) v^(1)T> / N_1, which is U."""
    return order_parameter.U


@in_float64
def gram_effective(order_parameter: OrderParameter, n: int) -> jax.Array:
    """Returns the Gram matrix with the input projection, <V_eff V_eff^T> / n.

    It is U - (N_1/n) (U - U Ut^-1 U) with Ut = I (x) U^(2), the prior mean of U. This follows from
    the exact E[U - U G U / n] with G = d energy / dU and the Ward identity of G at the saddle
    point. The paper equates the result with U, which holds only for n >> N.

    Args:
        order_parameter: result of `order_parameter`.
        n: dimension of a token vector.
    """
    U, heads = order_parameter.U, order_parameter.heads
    if heads:
        # The chain ends with U^(2) and U^(1) = U.
        U_2, first_heads = jnp.atleast_2d(order_parameter.chain[-2]), heads[0]
    else:
        U_2, first_heads = jnp.eye(order_parameter.outputs, dtype=U.dtype), 1
    Ut = jnp.kron(jnp.eye(first_heads, dtype=U.dtype), U_2)
    return U - order_parameter.width[0] / n * (U - U @ jnp.linalg.solve(Ut, U))


@in_float64
def head_scores(U: Array, heads: Sequence[int]) -> list[jax.Array]:
    """Returns a score for each head: heads with low scores can be pruned.

    The score is the sum of |U_{pi pi'}| over the pairs with at least one path through the head,
    divided by the largest score of all heads.

    Args:
        U: order parameter, (D, D), or (D m, D m) for m outputs.
        heads: (H_1 .. H_L).

    Returns:
        An array (H_l,) for each layer l = 1 .. L.

    Example:
        >>> head_scores(jnp.eye(4), (2, 2))
        [Array([1., 1.], dtype=float64), Array([1., 1.], dtype=float64)]
    """
    U = _sum_over_outputs(_check_square(U, heads), heads)
    total = U.sum()
    scores = []
    for passes_HxD in _passes_by_layer(heads):
        avoids_HxD = jnp.asarray(~passes_HxD, U.dtype)
        scores.append(total - jnp.einsum("hd,de,he->h", avoids_HxD, U, avoids_HxD))
    largest = functools.reduce(jnp.maximum, [score.max() for score in scores])
    return [score / largest for score in scores]


@in_float64
def prune(U: Array, heads: Sequence[int], layer: int, head: int) -> jax.Array:
    """Returns U with the rows and columns of all paths through one head set to zero.

    Args:
        U: order parameter, (D, D), or (D m, D m) for m outputs.
        heads: (H_1 .. H_L).
        layer: layer of the head, from 0.
        head: the head, from 0.
    """
    U = _check_square(U, heads)
    if not (0 <= layer < len(heads) and 0 <= head < heads[layer]):
        raise UserError(
            f"there is no head {head} in layer {layer} of heads {tuple(heads)}; both count from 0."
        )
    passes_D = np.repeat(_passes_by_layer(heads)[layer][head], len(U) // math.prod(heads))
    avoids_D = jnp.asarray(~passes_D, U.dtype)
    return U * avoids_D[:, None] * avoids_D[None, :]


def _check_square(U: Any, heads: Sequence[int]) -> jax.Array:
    U, paths = jnp.asarray(U), math.prod(heads)
    side = len(U) if U.ndim else 0
    if not heads or U.shape != (side, side) or not side or side % paths:
        raise UserError(
            f"U must have shape {(paths, paths)} = products of heads {tuple(heads)}, got {U.shape}."
        )
    return U


def _sum_over_outputs(U, heads: Sequence[int]) -> jax.Array:
    """Returns |U| summed over the outputs, (D, D)."""
    paths = math.prod(heads)
    return jnp.abs(U).reshape(paths, len(U) // paths, paths, -1).sum((1, 3))


def _passes_by_layer(heads: Sequence[int]) -> list[np.ndarray]:
    """Returns for each layer whether a path passes through a head, (H_l, D)."""
    choices_LxD = np.indices(heads).reshape(len(heads), -1)
    return [np.arange(h)[:, None] == choice_D[None] for h, choice_D in zip(heads, choices_LxD)]


@jax.jit
def _predict(U_DxD, attentioned_PxDxn, labels_P, temperature, test_BxDxn):
    factor_Dxr = psd_factor(U_DxD)
    kernel_PxP = kernel_of_factor(store_examples(attentioned_PxDxn), factor_Dxr)
    fit = fit_labels(kernel_PxP, labels_P, temperature)
    weights_Dxn = mean_weights(attentioned_PxDxn, fit, U_DxD)
    mean_B = jnp.tensordot(test_BxDxn, weights_Dxn, 2)
    return mean_B, variances(factor_Dxr, attentioned_PxDxn, fit.cholesky_PxP, test_BxDxn)
