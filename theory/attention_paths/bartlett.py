"""The chain of order parameters u, U^(L), .., U^(1) and its Bartlett coordinates.

For weights drawn from the prior the chain is exactly a chain of Wisharts, at every width:

    U^(l) | U^(l+1) ~ W(Ut^(l) / N_l, N_l),   Ut^(l) = I_{H_l} (x) U^(l+1),   Ut^(L+1) = 1

because the N_l columns of v^(l) are iid N(0, Ut^(l)) given v^(l+1). In Bartlett's coordinates

    C_l = (I_{H_l} (x) C_{l+1}) A_l,  U^(l) = C_l C_l^T,  A_l lower trapezoidal, diagonal exp(theta)

the factors A_l are independent: A_ii^2 ~ chi^2_{N_l - i + 1} / N_l, i = 1 .. r_l, the entries below
the diagonal N(0, 1/N_l). A_l has shape (H_l r_{l+1}, r_l); U^(l) has rank r_l. With N_l below the
number of rows U^(l) is singular and r_l = min(N_l, H_l r_{l+1}) (`ranks`); the thermodynamic
action is always minimised at full rank. A network of m outputs has m readout vectors, so that u is
m x m with Ut^(L+1) = 1_m, and the rows of every U^(l) run over (partial path, output).

Layers run l = L+1, L, .., 1 in every list, as in OrderParameter.chain. Eqs. of arXiv 2405.15926,
appendix B; the finite-N law is exact and replaces its saddle point.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Layout(NamedTuple):
    """Where each A_l lies in the flat vector theta: log-diagonal first, then the entries below.

    heads (H_1 .. H_L); shapes [(rows, rank)] for l = L+1 .. 1. Hashable: a static argument of jit.
    """

    heads: tuple[int, ...]
    shapes: tuple[tuple[int, int], ...]

    @property
    def size(self) -> int:
        return sum(rank + len(_below(rows, rank)[0]) for rows, rank in self.shapes)


def full_layout(heads: Sequence[int], outputs: int = 1) -> Layout:
    """Every U^(l) of full rank: the thermodynamic action, or any widths N_l >= H_l .. H_L."""
    return ranked_layout(heads, (np.inf,) * (len(heads) + 1), outputs)


def ranked_layout(heads: Sequence[int], widths: Sequence[float], outputs: int = 1) -> Layout:
    """Ranks r_l = min(N_l, H_l r_{l+1}) for widths (N_1 .. N_{L+1})."""
    shapes, rank = [], outputs
    for head_count, width in zip((*heads, 1)[::-1], widths[::-1]):
        rows = head_count * rank
        rank = int(min(width, rows))
        shapes.append((rows, rank))
    return Layout(tuple(heads), tuple(shapes))


def bartlett(layout: Layout, theta: jax.Array) -> list[jax.Array]:
    """A_l for l = L+1 .. 1."""
    factors, start = [], 0
    for rows, rank in layout.shapes:
        below = _below(rows, rank)
        stop = start + rank + len(below[0])
        diagonal, rest = jnp.exp(theta[start : start + rank]), theta[start + rank : stop]
        entries = jnp.concatenate([diagonal, rest, jnp.zeros(1, theta.dtype)])
        factors.append(entries[_positions(rows, rank)])
        start = stop
    return factors


def factors(layout: Layout, theta: jax.Array) -> list[jax.Array]:
    """C_l of shape (H_l .. H_L, r_l) for l = L+1 .. 1, with U^(l) = C_l C_l^T."""
    A = bartlett(layout, theta)
    out = [A[0]]
    for heads, A_l in zip(layout.heads[::-1], A[1:]):
        blocks_HxRxr = A_l.reshape(heads, -1, A_l.shape[1])
        out.append(jnp.einsum("dR,hRr->hdr", out[-1], blocks_HxRxr).reshape(-1, A_l.shape[1]))
    return out


def order_parameters(layout: Layout, theta: jax.Array) -> list[jax.Array]:
    """[u, U^(L), .., U^(1)]: a number (m x m of m outputs), then matrices of side H_l .. H_L m."""
    u, *others = (C_l @ C_l.T for C_l in factors(layout, theta))
    return [u[0, 0] if u.size == 1 else u, *others]


def coordinates(layout: Layout, chain: Sequence[jax.Array]) -> jax.Array:
    """theta of a chain of positive definite matrices: the inverse of `order_parameters`."""
    parts, above = [], jnp.eye(layout.shapes[0][0], dtype=jnp.asarray(chain[-1]).dtype)
    for heads, (rows, rank), U in zip((1, *layout.heads[::-1]), layout.shapes, chain):
        C = jnp.linalg.cholesky(jnp.reshape(jnp.asarray(U), (rows, rows)))
        blocks_HxDxr = C.reshape(heads, -1, rank)
        A = jax.scipy.linalg.solve_triangular(
            above, jnp.moveaxis(blocks_HxDxr, 1, 0).reshape(len(above), -1), lower=True
        )
        A = jnp.moveaxis(A.reshape(len(above), heads, rank), 1, 0).reshape(rows, rank)
        parts += [jnp.log(jnp.diagonal(A)), A[_below(rows, rank)]]
        above = C
    return jnp.concatenate(parts)


def neg_entropy(layout: Layout, theta: jax.Array, width_ratios: Sequence) -> jax.Array:
    """sum_l (N_l/N) [|A_l|^2 - 2 sum_i ln A_l,ii]: the first bracket of the action, in theta.

    width_ratios: N_l / N for l = 1 .. L+1. The GP limit U = I is theta = 0, its minimum.
    """
    total = 0.0
    for ratio, A in zip(width_ratios[::-1], bartlett(layout, theta)):
        total += ratio * ((A**2).sum() - 2 * jnp.log(jnp.diagonal(A)).sum())
    return jnp.asarray(total)


def log_prior(layout: Layout, theta: jax.Array, widths: Sequence) -> jax.Array:
    """ln p(theta) of the exact finite-N law, up to a constant; every rank, also N < H^L.

    sum_l [ sum_{i=1}^{r_l} (N_l - i + 1) ln A_l,ii - N_l |A_l|^2 / 2 ], the Jacobian of the
    logarithm included.
    """
    total = 0.0
    for width, A in zip(widths[::-1], bartlett(layout, theta)):
        freedoms = width - jnp.arange(A.shape[1])
        logs = jnp.log(jnp.diagonal(A))
        total += (freedoms.astype(logs.dtype) * logs).sum() - width / 2 * (A**2).sum()
    return jnp.asarray(total)


def prior_scale(layout: Layout, widths: Sequence) -> jax.Array:
    """The prior standard deviations of theta at large N: 1/sqrt(2 N_l) and 1/sqrt(N_l)."""
    parts = []
    for width, (rows, rank) in zip(widths[::-1], layout.shapes):
        parts.append(jnp.full(rank, 1.0) / (2 * width) ** 0.5)
        parts.append(jnp.full(len(_below(rows, rank)[0]), 1.0) / width**0.5)
    return jnp.concatenate(parts)


def _below(rows: int, rank: int) -> tuple[np.ndarray, np.ndarray]:
    return np.tril_indices(rows, -1, rank)


def _positions(rows: int, rank: int) -> np.ndarray:
    """For every entry of A its place in (log-diagonal, below, zero)."""
    below = _below(rows, rank)
    positions = np.full((rows, rank), rank + len(below[0]))
    positions[np.arange(rank), np.arange(rank)] = np.arange(rank)
    positions[below] = rank + np.arange(len(below[0]))
    return positions
