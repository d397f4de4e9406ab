"""Path kernels, their energy and its gradient (arXiv 2405.15926, eqs. 7-9).

    K(x, x') = (1/D) sum_{pi pi'} U^{pi pi'} C_{pi pi'}(x, x'), C_{pi pi'} = xi^pi(x).xi^pi'(x') / n
    energy   = ln det(K + T) + Y^T (K + T)^-1 Y            (a Gaussian likelihood of variance T)

with D = H_1 .. H_L paths. U enters through a factor, U = C C^T with C of shape (D, r). Two forms
give the same numbers:

    packed    the pairs C_ij + C_ji, i <= j, are stored: D^2 P^2 / 2 numbers, fast for few paths
    features  K = sum_pi xi^pi (U xi)^pi / (D n), some paths at a time: P D n numbers, nothing of
              size D^2 P^2

Shape letters: P examples, D (E) paths, n token dimension, r rank of C.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from jaxformer.core.errors import unknown
from theory.numerics import Array, Numbers, is_concrete

PACKED_PATHS = 8  # above, features are both smaller and faster
FORMS = ("auto", "packed", "features")


class PathKernel(NamedTuple):
    """The training examples in one of the two forms; the field of the other is None."""

    pairs_QxPxP: jax.Array | None
    features_DxPxn: jax.Array | None


class Fit(NamedTuple):
    """A factorised K + T: the Cholesky factor and alpha = (K + T)^-1 Y."""

    cholesky_PxP: jax.Array
    alpha_P: jax.Array


def path_kernel(attentioned_PxDxn: jax.Array, form: str = "auto") -> PathKernel:
    """The form that suits the number of paths, or the one asked for."""
    paths = attentioned_PxDxn.shape[1]
    if form not in FORMS:
        raise unknown("kernel form", form, FORMS)
    if form == "features" or (form == "auto" and paths > PACKED_PATHS):
        return PathKernel(None, jnp.moveaxis(jnp.asarray(attentioned_PxDxn), 1, 0))
    rows, columns = np.triu_indices(paths)
    scaled_PxDxn = scale(attentioned_PxDxn)
    pairs_QxPxP = jnp.einsum("pqn,rqn->qpr", scaled_PxDxn[:, rows], scaled_PxDxn[:, columns])
    weights_Q = jnp.asarray(np.where(rows == columns, 0.5, 1.0), pairs_QxPxP.dtype)
    return PathKernel((pairs_QxPxP + pairs_QxPxP.swapaxes(1, 2)) * weights_Q[:, None, None], None)


def fixed_kernel(attentioned_PxDxn: Array) -> PathKernel:
    """That of examples which stay while U moves: of many paths in few coordinates, to rounding."""
    if attentioned_PxDxn.shape[1] > PACKED_PATHS and is_concrete(attentioned_PxDxn):
        attentioned_PxDxn = in_few_coordinates(attentioned_PxDxn)
    return _path_kernel(attentioned_PxDxn)


def in_few_coordinates(attentioned_PxDxn: Array) -> np.ndarray:
    """(P, D, k), k <= n, in their principal axes: inner products stay, to rounding.

    The axes left out have a share of all squares that is lost in the rounding of a sum. Images with
    blank corners need fewer coordinates than they have pixels.
    """
    attentioned_PxDxn = np.asarray(attentioned_PxDxn)
    _, paths, n = attentioned_PxDxn.shape
    flat_Fxn = attentioned_PxDxn.reshape(-1, n)
    squares_n, axes_nxn = np.linalg.eigh(flat_Fxn.T @ flat_Fxn)  # the smallest first
    up_to_n = np.cumsum(np.maximum(squares_n, 0))
    rounding = 50 * np.finfo(flat_Fxn.dtype).eps
    kept = max(1, int((up_to_n > rounding * up_to_n[-1]).sum()))
    rotated_PxDxk = (flat_Fxn @ axes_nxn[:, n - kept :]).reshape(-1, paths, kept)
    return rotated_PxDxk * (kept / n) ** 0.5  # a kernel is divided by how many there are


def gram(kernel: PathKernel, factor_Dxr: jax.Array) -> jax.Array:
    """K between the training examples, (P, P), without the temperature."""
    U_DxD = factor_Dxr @ factor_Dxr.T
    if kernel.pairs_QxPxP is not None:
        pairs_QxPxP = kernel.pairs_QxPxP
        # As a product of a vector and a matrix, which is a third faster than over three axes.
        flat_PP = U_DxD[np.triu_indices(len(U_DxD))] @ pairs_QxPxP.reshape(len(pairs_QxPxP), -1)
        return flat_PP.reshape(pairs_QxPxP.shape[1:])
    assert kernel.features_DxPxn is not None
    return _gram_by_features(kernel.features_DxPxn, U_DxD)


def scale(attentioned_PxDxn: jax.Array) -> jax.Array:
    """xi / sqrt(D n)."""
    _, paths, n = attentioned_PxDxn.shape
    return jnp.asarray(attentioned_PxDxn) * (paths * n) ** -0.5


def feature_map(attentioned_PxDxn: jax.Array, factor_Dxr: jax.Array) -> jax.Array:
    """Phi = xi C / sqrt(D n), (P, n r): K = Phi Phi^T also between two sets of examples."""
    features_Pxnxr = jnp.einsum("pdn,dr->pnr", scale(attentioned_PxDxn), factor_Dxr)
    return features_Pxnxr.reshape(len(attentioned_PxDxn), -1)


def energy(
    kernel: PathKernel, labels_P: jax.Array, temperature: Numbers, factor_Dxr: jax.Array
) -> jax.Array:
    """ln det(K + T) + Y^T (K + T)^-1 Y, not divided by P: -2 ln p(Y | U) up to P ln 2 pi.

    A rule for reverse mode makes the gradient 2.6 times cheaper than through the factorisation.
    """
    return _gaussian_energy(add_temperature(gram(kernel, factor_Dxr), temperature), labels_P)


def energy_gradient(
    kernel: PathKernel, labels_P: jax.Array, temperature: Numbers, factor_Dxr: jax.Array
) -> jax.Array:
    """G = d energy / dU, (D, D): G_pi,pi' = Tr M C_pi,pi' / D, M = (K + T)^-1 - alpha alpha^T.

    C is symmetrised over pi <-> pi', so that dE = sum_{pi pi'} G dU for symmetric dU.
    """
    fit = fit_labels(gram(kernel, factor_Dxr), labels_P, temperature)
    M_PxP = _inverse(fit.cholesky_PxP) - fit.alpha_P[:, None] * fit.alpha_P[None, :]
    if kernel.pairs_QxPxP is None:
        return _features_backward(kernel.features_DxPxn, M_PxP)[1]
    rows, columns = np.triu_indices(len(factor_Dxr))
    pairs_Q = jnp.tensordot(kernel.pairs_QxPxP, M_PxP, 2) / 2
    G_DxD = jnp.zeros((len(factor_Dxr),) * 2, pairs_Q.dtype).at[rows, columns].add(pairs_Q)
    return G_DxD + G_DxD.T


def fit_labels(kernel_PxP: jax.Array, labels_P: jax.Array, temperature: Numbers) -> Fit:
    cholesky_PxP = jnp.linalg.cholesky(add_temperature(kernel_PxP, temperature))
    half_P = solve_triangular(cholesky_PxP, labels_P, lower=True)
    return Fit(cholesky_PxP, solve_triangular(cholesky_PxP, half_P, lower=True, trans=1))


def add_temperature(kernel_PxP: jax.Array, temperature: Numbers) -> jax.Array:
    return kernel_PxP + temperature * jnp.eye(len(kernel_PxP), dtype=kernel_PxP.dtype)


def total_kernel(attentioned_PxDxn: Array, U_DxD: Array) -> jax.Array:
    """K between the examples, (P, P), from U itself, which may be of any rank."""
    _, paths, n = attentioned_PxDxn.shape
    combined_PxDxn = jnp.einsum("pdn,de->pen", attentioned_PxDxn, U_DxD)
    flat_PxF, combined_PxF = (x.reshape(len(x), -1) for x in (attentioned_PxDxn, combined_PxDxn))
    return jnp.asarray(combined_PxF @ flat_PxF.T / (paths * n))


def kernel_task_overlap(kernel_PxP: jax.Array, labels_P: jax.Array) -> jax.Array:
    """|e_k . Y| / sqrt(P) for every principal component of K, the leading one first."""
    _, vectors_PxK = jnp.linalg.eigh(kernel_PxP)
    return jnp.abs(labels_P @ vectors_PxK)[::-1] / len(labels_P) ** 0.5


def kernel_alignment(kernel_PxP: jax.Array, labels_P: jax.Array) -> jax.Array:
    """Y^T K Y / (P |K|_F)."""
    norm = len(labels_P) * jnp.linalg.norm(kernel_PxP)
    return labels_P @ kernel_PxP @ labels_P / norm


@jax.custom_vjp
def _gaussian_energy(noisy_PxP, labels_P):
    return _gaussian_energy_forward(noisy_PxP, labels_P)[0]


def _gaussian_energy_forward(noisy_PxP, labels_P):
    cholesky_PxP = jnp.linalg.cholesky(noisy_PxP, symmetrize_input=False)
    half_P = solve_triangular(cholesky_PxP, labels_P, lower=True)
    value = 2 * jnp.log(jnp.diagonal(cholesky_PxP)).sum() + half_P @ half_P
    return value, (cholesky_PxP, labels_P)


def _gaussian_energy_backward(saved, cotangent):
    cholesky_PxP, labels_P = saved
    inverse_PxP = _inverse(cholesky_PxP)
    alpha_P = inverse_PxP @ labels_P
    M_PxP = inverse_PxP - alpha_P[:, None] * alpha_P[None, :]
    return cotangent * M_PxP, 2 * cotangent * alpha_P


_gaussian_energy.defvjp(_gaussian_energy_forward, _gaussian_energy_backward)


def _sum_blocks(features_DxPxn, U_DxD):
    _, examples, n = features_DxPxn.shape
    flat_DxF = features_DxPxn.reshape(len(U_DxD), -1)

    def add_block(kernel_PxP, block):
        block_BxPxn, U_BxD = block
        combined_BxPxn = (U_BxD @ flat_DxF).reshape(-1, examples, n)
        return kernel_PxP + jnp.einsum("bpn,bqn->pq", combined_BxPxn, block_BxPxn), None

    empty_PxP = jnp.zeros((examples, examples), features_DxPxn.dtype)
    blocks = _blocks(features_DxPxn), _blocks(U_DxD)
    return jax.lax.scan(add_block, empty_PxP, blocks)[0] / (len(U_DxD) * n)


def _features_backward(features_DxPxn, M_PxP):
    paths, _, n = features_DxPxn.shape
    flat_DxF = features_DxPxn.reshape(paths, -1)

    def rows(block_BxPxn):
        weighted_BxPxn = jnp.einsum("pq,bqn->bpn", M_PxP, block_BxPxn)
        return weighted_BxPxn.reshape(len(block_BxPxn), -1) @ flat_DxF.T

    G_DxD = jax.lax.map(rows, _blocks(features_DxPxn)).reshape(paths, paths) / (paths * n)
    return None, G_DxD


# K is linear in U; its own backward rule keeps every temporary as small as a block of paths.
_gram_by_features = jax.custom_vjp(_sum_blocks)
_gram_by_features.defvjp(lambda xi, U: (_sum_blocks(xi, U), xi), _features_backward)


_path_kernel = jax.jit(path_kernel)


def _blocks(by_path_Dx):
    """(D, ..) as (blocks, paths a block, ..), the largest block of at most 16 paths."""
    paths = len(by_path_Dx)
    size = max(size for size in range(1, 17) if paths % size == 0)
    return by_path_Dx.reshape(paths // size, size, *by_path_Dx.shape[1:])


def _inverse(cholesky_PxP: jax.Array) -> jax.Array:
    identity_PxP = jnp.eye(len(cholesky_PxP), dtype=cholesky_PxP.dtype)
    root_PxP = solve_triangular(cholesky_PxP, identity_PxP, lower=True)
    return root_PxP.T @ root_PxP
