"""Cosines and critical residuals for a whole grid of post-norm encoders at once, in NumPy.

The commands `theory.phase_map` and `theory.trainability` use it: a diagram of 40,000 networks is
complete before jax would have been imported. Overlaps come from a fine grid by linear
interpolation: after 60 layers cosines differ from `theory.signal.propagate` by less than 1e-5.
"""

import numpy as np

from jaxformer.core.errors import check_choice
from theory.activation_moments import ACTIVATIONS
from theory.quadrature import chebyshev_end_slopes
from theory.rem.coordinates import (
    MAX_TABULATED_LENGTH,
    PAIR_END,
    cosine_coordinate,
    spread_coordinate,
)
from theory.rem.interpolated_tables import basis_on_last_axis, rows_of_length
from theory.rem.limit import heuristic_overlap, limit_overlap
from theory.signal.encoder_block import MAX_ALPHA, OVERLAPS, Block, cosine_map

# The search for alpha_c cuts its interval into 16 parts 9 times, to a width of 1000/16^9 = 1e-8.
N_PARTS, N_ROUNDS = 16, 9
# Points of the grids of the overlaps.
N_SPREADS, N_PAIR_SPREADS, N_PAIR_COSINES = 2**15, 2048, 1024


class GridOverlaps:
    """The overlaps Y_q and Y_p of rows of T tokens, by linear interpolation on a grid.

    Args:
      length: number of tokens T.
      kind: one of `OVERLAPS`.
    """

    def __init__(self, length: int, kind: str = "exact"):
        check_choice("overlaps", kind, OVERLAPS)
        self.T, self.kind = float(length), kind
        if kind != "exact":
            return
        overlap_M, pair_MxR = _chebyshev_coefficients(self.T)
        x = np.linspace(0, 1, N_SPREADS + 1)
        self.log_overlap = basis_on_last_axis(x, len(overlap_M)) @ overlap_M
        x = np.linspace(0, 1, N_PAIR_SPREADS + 1)
        y = np.linspace(0, 1, N_PAIR_COSINES + 1)
        rho_basis = basis_on_last_axis(y, pair_MxR.shape[1]).T
        log_pair = basis_on_last_axis(x, len(pair_MxR)) @ pair_MxR @ rho_basis
        # The pair table ends at x = 1 and continues linearly up to infinite spread, x = 1/PAIR_END.
        slope = chebyshev_end_slopes(len(pair_MxR)) @ pair_MxR @ rho_basis
        beyond = np.arange(1, np.ceil((1 / PAIR_END - 1) * N_PAIR_SPREADS) + 2) / N_PAIR_SPREADS
        self.log_pair = np.concatenate([log_pair, log_pair[-1] + beyond[:, None] * slope])

    def __call__(self, beta: np.ndarray, rho: np.ndarray) -> tuple[np.ndarray, np.ndarray | float]:
        """Returns Y_q and Y_p in the broadcast shape of beta and rho."""
        if self.kind == "limit":
            return limit_overlap(beta, rho), 0.0
        if self.kind == "heuristic":
            return heuristic_overlap(beta, rho, self.T), 0.0
        x = spread_coordinate(beta**2 * (1 - rho))
        i, s = _grid_cell(x * N_SPREADS, N_SPREADS)
        y_q = np.exp((1 - s) * self.log_overlap[i] + s * self.log_overlap[i + 1]) / self.T
        j, t = _grid_cell(x / PAIR_END * N_PAIR_SPREADS, len(self.log_pair) - 1)
        y = np.clip(cosine_coordinate(rho), 0, 1)
        k, u = _grid_cell(y * N_PAIR_COSINES, N_PAIR_COSINES)
        low = (1 - u) * self.log_pair[j, k] + u * self.log_pair[j, k + 1]
        high = (1 - u) * self.log_pair[j + 1, k] + u * self.log_pair[j + 1, k + 1]
        return y_q, np.exp((1 - t) * low + t * high) / self.T


def final_cosine(block: Block, depth: int, overlaps: GridOverlaps) -> np.ndarray:
    """Returns the cosine, after `depth` blocks, of two tokens that start orthogonal.

    Args:
      block: the block; its fields are numbers or arrays that broadcast.
      depth: number of blocks.
      overlaps: the overlaps at one T.

    Returns:
      Cosines in the broadcast shape of block.beta and block.alpha_sa.
    """
    check_choice("activation", str(block.activation), ACTIVATIONS)
    next_cosine = cosine_map(block, overlaps)
    rho = np.zeros(np.broadcast_shapes(np.shape(block.beta), np.shape(block.alpha_sa)))
    for _ in range(depth):
        rho = np.minimum(next_cosine(rho), 1)  # rounding may give more
    return rho


def critical_alpha(block: Block, depth: int, epsilon: float, overlaps: GridOverlaps) -> np.ndarray:
    """Returns the smallest alpha_SA without collapse, rho_depth <= 1 - epsilon.

    Args:
      block: the block. block.beta is an array (B,); block.alpha_sa is ignored.
      depth: number of blocks.
      epsilon: tokens have collapsed if their cosine exceeds 1 - epsilon.
      overlaps: the overlaps at one T.

    Returns:
      (B,) values: 0 if there is no collapse at any alpha_SA, inf if no alpha_SA up to MAX_ALPHA
      prevents it.
    """
    column = block.replace(beta=np.asarray(block.beta)[:, None])

    def has_collapsed(alpha):
        return final_cosine(column.replace(alpha_sa=alpha), depth, overlaps) > 1 - epsilon

    n = len(column.beta)
    low, high = np.zeros(n), np.full(n, MAX_ALPHA)
    collapses_at_max = has_collapsed(high[:, None])[:, 0]
    collapses_at_0 = has_collapsed(low[:, None])[:, 0]
    for _ in range(N_ROUNDS):
        part = (high - low) / N_PARTS
        collapsed_BxP = has_collapsed(low[:, None] + part[:, None] * np.arange(1, N_PARTS))
        # The index of the first part whose upper end has not collapsed; argmin finds a False.
        first = np.where(collapsed_BxP.all(1), N_PARTS - 1, collapsed_BxP.argmin(1))
        low = low + part * first
        high = low + part
    return np.where(collapses_at_max, np.inf, np.where(collapses_at_0, high, 0.0))


def _chebyshev_coefficients(T: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns the series of ln(T Y_q) in the spread and of ln(T Y_p) in the spread and rho."""
    if T <= MAX_TABULATED_LENGTH:
        rows = rows_of_length(np.array([T]))
        return rows.overlap_KxM[0], rows.pair_KxMxR[0]
    from theory.rem.integrals import tables_of_length  # imports scipy

    tables = tables_of_length(T)
    return tables.overlap, tables.pair


def _grid_cell(x: np.ndarray, n_cells: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the index of the grid point below x, and the fraction of a cell beyond it."""
    below = np.clip(x.astype(int), 0, n_cells - 1)
    return below, x - below
