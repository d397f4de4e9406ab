"""Groups of positions that share one state: a long sequence costs as much as a few positions.

Each of the first 8 positions is a cell; each later cell is a quarter as long as all cells before
it. Two cells stand for two tokens at their middle positions. In a bidirectional network all
positions are one cell.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from theory.rem.interpolated_tables import Rows, rows_of_length
from theory.signal.architecture import Architecture

N_SINGLE_CELLS, CELL_GROWTH = 8, 1.25
MAX_ROTARY_DISTANCE = 4096  # positions further apart count as this far apart


@dataclass(frozen=True)
class Cells:
    """Positions in K groups, each represented by its middle position."""

    count_K: np.ndarray  # positions in each cell
    seen_KxJ: np.ndarray  # number of positions of cell j that the middle of cell k sees
    both_KxKxJ: np.ndarray  # number of positions of cell j that the middles of two cells both see
    rows: Rows  # overlaps of attention rows at the middle of each cell

    @property
    def length_K(self):
        """The number of positions that the middle of each cell sees."""
        return self.rows.length_K


@lru_cache(maxsize=32)
def cells_of(length: int, causal: bool) -> Cells:
    """Returns one cell of all positions, or for a causal network cells of growing length."""
    if not causal:
        length_1 = np.array([float(length)])
        rows = rows_of_length(length_1)
        return Cells(length_1, length_1[:, None], length_1[:, None, None], rows)
    edges = list(range(min(N_SINGLE_CELLS, length) + 1))
    while edges[-1] < length:
        grown = edges[-1] + max(1, round((CELL_GROWTH - 1) * edges[-1]))
        # A last cell shorter than a tenth of the sequence is merged into the one before.
        edges.append(length if length - grown < 0.1 * length else grown)
    first, last = np.array(edges[:-1]) + 1.0, np.array(edges[1:], float)
    middle = (first + last) / 2
    # A cell sees all of the cells that end before its middle, and its own positions up to there.
    full = np.where(last[None] <= middle[:, None], last - first + 1, 0)
    partial = np.where(np.eye(len(first), dtype=bool), middle - first + 1, 0)
    seen = np.where(partial > 0, partial, full)
    both = np.minimum(seen[:, None], seen[None])
    return Cells(last - first + 1, seen, both, rows_of_length(middle))


def visible_means(cells: Cells, n_q, n_p):
    """Returns C and m of the docstring of `recursion`.

    Args:
      cells: the cells of positions.
      n_q: (K,) q of the normalised tokens.
      n_p: (K, K) p of the normalised tokens.

    Returns:
      (K,) means of n_s.n_s / d over the tokens s that cell k sees, and (K, K) means of n_s.n_s' / d
      over s != s', where cell k sees s and cell l sees s'.
    """
    v, t = cells.seen_KxJ, cells.length_K
    same_K = v @ n_q / t
    pairs = v @ n_p @ v.T - cells.both_KxKxJ @ np.diagonal(n_p)
    count = t[:, None] * t[None] - np.minimum(t[:, None], t[None])
    return same_K, np.where(count > 0, pairs / np.where(count > 0, count, 1), 0)


def mean_cosine(cells: Cells, q, p) -> float:
    """Returns the mean cosine of all pairs of different tokens.

    Args:
        cells: the cells, with the number of tokens in each.
        q: the mean square of a token of each cell, (K,).
        p: the mean product of two tokens of each pair of cells, (K, K).
    """
    scale = np.sqrt(q[:, None] * q[None])
    n = cells.count_K
    pairs = n[:, None] * n[None] - np.diag(n)
    cosine = np.where(scale > 0, p / np.where(scale > 0, scale, 1), 1)
    return float(np.sum(pairs * cosine) / np.sum(pairs))


def rotary_factors(cells: Cells, arch: Architecture):
    """Returns the share of a direction common to all keys that rotary positions preserve.

    The share at a distance is the mean of cos(rate x distance) over the rotary rates.

    Returns:
      (K,) means over the pairs of positions that a row of each cell sees, and (K, K) values between
      cells. All are 1 without rotary positions.
    """
    n = len(cells.count_K)
    if not arch.rotary:
        return np.ones(n), np.ones((n, n))
    n_rates = max(1, round(arch.rotary * arch.head_width / 2))
    rates = arch.rotary_base ** (-np.arange(n_rates) / n_rates)
    rotated_share = 2 * n_rates / arch.head_width
    longest = int(min(cells.count_K.sum(), MAX_ROTARY_DISTANCE))
    distance = np.arange(longest)
    share = 1 - rotated_share + rotated_share * np.mean(np.cos(distance[:, None] * rates), -1)
    # The mean over pairs s != s' of t positions: distance D occurs t - D times.
    share_sum = np.cumsum(share[1:])
    share_distance_sum = np.cumsum(share[1:] * distance[1:])
    t = np.clip(cells.length_K, 2, longest)
    last = np.clip(np.ceil(t).astype(int) - 2, 0, longest - 2)
    rotary_K = 2 * (t * share_sum[last] - share_distance_sum[last]) / (t * (t - 1))
    if n == 1:
        return rotary_K, rotary_K[:, None]
    between = np.abs(cells.length_K[:, None] - cells.length_K[None])
    within = np.diag(cells.count_K / 3)  # mean distance of two positions of one cell
    distance_KxK = np.minimum(np.round(between + within), longest - 1).astype(int)
    return rotary_K, share[distance_KxK]
