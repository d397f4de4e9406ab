"""The chain of order parameters u, U^(L), .., U^(1) and its Bartlett coordinates theta.

**Law.** v^(l) has a row for each partial path (h_l .. h_L), with N_l entries: the product
a^T V^(L)h_L .. V^(l)h_l / sqrt(N_{l+1} .. N_{L+1}) of the readout a and the value matrices. The
order parameter is U^(l) = v^(l) v^(l)T / N_l. For weights drawn from the prior, the N_l columns of
v^(l) given v^(l+1) are iid N(0, Ut^(l)). The order parameters are therefore a chain of Wishart
matrices, exactly and at every width:

    U^(l) | U^(l+1) ~ W(Ut^(l) / N_l, N_l),     Ut^(l) = I_{H_l} (x) U^(l+1),     Ut^(L+1) = 1.

(x) is the Kronecker product.

**Coordinates.** Bartlett's decomposition writes each matrix with a lower trapezoidal factor A_l:

    U^(l) = C_l C_l^T,     C_l = (I_{H_l} (x) C_{l+1}) A_l.

The A_l are independent. With r_l the rank of U^(l),

    A_ii^2 ~ chi^2_{N_l - i + 1} / N_l for i = 1 .. r_l,     A_ij ~ N(0, 1/N_l) below the diagonal.

theta has the logarithms of the diagonals and the entries below them. A_l has the shape
(H_l r_{l+1}, r_l). If N_l is below the number of rows, U^(l) is singular and
r_l = min(N_l, H_l r_{l+1}). The thermodynamic action always has its minimum at full rank. In
shapes H_l .. H_L stands for the product of these numbers.

**Several outputs.** A network of m outputs has m readout vectors. Then u is (m, m), Ut^(L+1) is
1_m, and the rows of every U^(l) run over (partial path, output).

Every list runs over the layers l = L+1, L, .., 1, as OrderParameter.chain does. The equations are
in appendix B of arXiv 2405.15926; here the exact finite-N law replaces its saddle point.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Layout(NamedTuple):
    """The shapes of the factors A_l in the flat vector theta; a static argument of jit.

    theta has for each layer the logarithm of the diagonal, then the entries below it.
    heads: (H_1 .. H_L). shapes: (rows, rank) for l = L+1 .. 1.
    """

    heads: tuple[int, ...]
    shapes: tuple[tuple[int, int], ...]

    @property
    def size(self) -> int:
        return sum(rank + len(_below_diagonal(rows, rank)[0]) for rows, rank in self.shapes)


def full_layout(heads: Sequence[int], outputs: int = 1) -> Layout:
    """Returns the layout of full-rank matrices, for the action or for widths N_l >= H_l .. H_L."""
    return ranked_layout(heads, (np.inf,) * (len(heads) + 1), outputs)


def ranked_layout(heads: Sequence[int], widths: Sequence[float], outputs: int = 1) -> Layout:
    """Returns the layout with ranks r_l = min(N_l, H_l r_{l+1}) for widths (N_1 .. N_{L+1})."""
    shapes, rank = [], outputs
    for head_count, width in zip((*heads, 1)[::-1], widths[::-1]):
        rows = head_count * rank
        rank = int(min(width, rows))
        shapes.append((rows, rank))
    return Layout(tuple(heads), tuple(shapes))


def bartlett_factors(layout: Layout, theta: jax.Array) -> list[jax.Array]:
    """Returns A_l for l = L+1 .. 1."""
    factors, start = [], 0
    for rows, rank in layout.shapes:
        stop = start + rank + len(_below_diagonal(rows, rank)[0])
        diagonal, below = jnp.exp(theta[start : start + rank]), theta[start + rank : stop]
        entries = jnp.concatenate([diagonal, below, jnp.zeros(1, theta.dtype)])
        factors.append(entries[_entry_indices(rows, rank)])
        start = stop
    return factors


def order_parameter_factors(layout: Layout, theta: jax.Array) -> list[jax.Array]:
    """Returns C_l, (H_l .. H_L, r_l), for l = L+1 .. 1, with U^(l) = C_l C_l^T."""
    A = bartlett_factors(layout, theta)
    C = [A[0]]
    for heads, A_l in zip(layout.heads[::-1], A[1:]):
        # R and r are the ranks of U^(l+1) and U^(l), and d runs over the rows of C_{l+1}.
        blocks_HxRxr = A_l.reshape(heads, -1, A_l.shape[1])
        C.append(jnp.einsum("dR,hRr->hdr", C[-1], blocks_HxRxr).reshape(-1, A_l.shape[1]))
    return C


def order_parameters(layout: Layout, theta: jax.Array) -> list[jax.Array]:
    """Returns [u, U^(L), .., U^(1)]: a number, or (m, m), then matrices of side H_l .. H_L m."""
    u, *matrices = (C_l @ C_l.T for C_l in order_parameter_factors(layout, theta))
    return [u[0, 0] if u.size == 1 else u, *matrices]


def coordinates(layout: Layout, chain: Sequence[jax.Array]) -> jax.Array:
    """Returns theta of a chain of positive definite matrices: the inverse of `order_parameters`."""
    parts = []
    C_above = jnp.eye(layout.shapes[0][0], dtype=jnp.asarray(chain[-1]).dtype)
    for heads, (rows, rank), U in zip((1, *layout.heads[::-1]), layout.shapes, chain):
        C = jnp.linalg.cholesky(jnp.reshape(jnp.asarray(U), (rows, rows)))
        blocks_HxDxr = C.reshape(heads, -1, rank)
        blocks_DxHr = jnp.moveaxis(blocks_HxDxr, 1, 0).reshape(len(C_above), -1)
        A_DxHr = jax.scipy.linalg.solve_triangular(C_above, blocks_DxHr, lower=True)
        A = jnp.moveaxis(A_DxHr.reshape(len(C_above), heads, rank), 1, 0).reshape(rows, rank)
        parts += [jnp.log(jnp.diagonal(A)), A[_below_diagonal(rows, rank)]]
        C_above = C
    return jnp.concatenate(parts)


def neg_entropy(layout: Layout, theta: jax.Array, width_ratios: Sequence) -> jax.Array:
    """Returns the prior part of the action S, sum_l (N_l/N) [|A_l|^2 - 2 sum_i ln A_l,ii].

    Its minimum is the GP limit U = I, where theta is 0.

    Args:
        layout: layout of theta.
        theta: Bartlett coordinates.
        width_ratios: N_l / N for l = 1 .. L+1.
    """
    total = 0.0
    for ratio, A in zip(width_ratios[::-1], bartlett_factors(layout, theta)):
        total += ratio * ((A**2).sum() - 2 * jnp.log(jnp.diagonal(A)).sum())
    return jnp.asarray(total)


def log_prior(layout: Layout, theta: jax.Array, widths: Sequence) -> jax.Array:
    """Returns ln p(theta) of the exact finite-N law, up to a constant and at every rank.

    It is sum_l [ sum_{i=1}^{r_l} (N_l - i + 1) ln A_l,ii - N_l |A_l|^2 / 2 ], which includes the
    Jacobian of the logarithm.

    Args:
        layout: the shapes of the Bartlett factors.
        theta: their coordinates, a vector.
        widths: (N_1 .. N_{L+1}).
    """
    total = 0.0
    for width, A in zip(widths[::-1], bartlett_factors(layout, theta)):
        degrees_of_freedom = width - jnp.arange(A.shape[1])
        logs = jnp.log(jnp.diagonal(A))
        total += (degrees_of_freedom.astype(logs.dtype) * logs).sum() - width / 2 * (A**2).sum()
    return jnp.asarray(total)


def prior_scale(layout: Layout, widths: Sequence) -> jax.Array:
    """Returns the prior standard deviations of theta at large N.

    They are 1/sqrt(2 N_l) for logarithms of diagonals and 1/sqrt(N_l) for the entries below.
    """
    parts = []
    for width, (rows, rank) in zip(widths[::-1], layout.shapes):
        parts.append(jnp.full(rank, 1.0) / (2 * width) ** 0.5)
        parts.append(jnp.full(len(_below_diagonal(rows, rank)[0]), 1.0) / width**0.5)
    return jnp.concatenate(parts)


def _below_diagonal(rows: int, rank: int) -> tuple[np.ndarray, np.ndarray]:
    return np.tril_indices(rows, -1, rank)


def _entry_indices(rows: int, rank: int) -> np.ndarray:
    """Returns for each entry of A its index in the vector (diagonal, entries below it, one 0)."""
    below = _below_diagonal(rows, rank)
    indices = np.full((rows, rank), rank + len(below[0]))
    indices[np.arange(rank), np.arange(rank)] = np.arange(rank)
    indices[below] = rank + np.arange(len(below[0]))
    return indices
