"""Overlaps of attention rows at every length T from 2 to 2^24, from precomputed tables.

`theory.rem.integrals` computes Chebyshev series in the spread of the scores (and in rho) for one
T. Their coefficients are smooth in ln ln T, so a further Chebyshev series interpolates them. The
relative error against the integrals is 1e-7 for T up to 1e5. The coefficients are in overlaps.npz,
which `python -m theory.rem.make_tables` computes. Importing this module does not import jax.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from theory.quadrature import chebyshev_basis, chebyshev_end_slopes
from theory.rem.coordinates import (
    PAIR_END,
    cosine_coordinate,
    length_coordinate,
    spread_coordinate,
)

FILE = Path(__file__).with_name("overlaps.npz")


@dataclass(frozen=True)
class Rows:
    """Attention rows of K lengths: Chebyshev coefficients (M terms in the spread, R in rho).

    A row of length 1 attends to its own token: its overlaps are 1 and its entropy is 0.
    """

    length_K: np.ndarray
    overlap_KxM: np.ndarray  # ln(T E sum A^2)
    moment_KxM: np.ndarray  # ln(T^2 E (sum A^2)^2)
    cube_KxM: np.ndarray  # ln(T^2 E sum A^3)
    entropy_KxM: np.ndarray  # entropy / (1 - x), with x the coordinate of the spread
    pair_KxMxR: np.ndarray  # ln(T E sum A A')

    def statistics(self, s2_K: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Returns averages over one row of each length.

        Args:
          s2_K: variance of the scores within each row.

        Returns:
          E sum A^2, E (sum A^2)^2, E sum A^3 and the mean entropy in nats, each (K,).
        """
        T, x = self.length_K, self._spread(s2_K)
        basis = basis_on_last_axis(x, self.overlap_KxM.shape[1])
        is_single = self.length_K <= 1

        def series(table_KxM):
            return np.sum(basis * table_KxM, -1)

        overlap = np.where(is_single, 1.0, np.exp(series(self.overlap_KxM)) / T)
        moment = np.where(is_single, 1.0, np.exp(series(self.moment_KxM)) / T**2)
        cube = np.where(is_single, 1.0, np.exp(series(self.cube_KxM)) / T**2)
        entropy = np.where(is_single, 0.0, series(self.entropy_KxM) * (1 - x))
        return overlap, moment, cube, entropy

    def cross_overlap(self, s2_K: np.ndarray, rho_KxK: np.ndarray) -> np.ndarray:
        """Returns E sum_s A_ts A_us over the tokens s that both rows see.

        Only the share T_short / T_long of the longer row lies on these tokens, so the result is
        (T_short / T_long) Y_p(T_short), with Y_p the overlap of two rows of equal length.

        Args:
          s2_K: variance of the scores within each row.
          rho_KxK: cosine of the two queries.

        Returns:
          (K, K) overlaps of rows of lengths k and l.
        """
        T, n_s, n_rho = self.length_K, *self.pair_KxMxR.shape[1:]
        x_K = self._spread(s2_K) / PAIR_END
        basis = basis_on_last_axis(np.minimum(x_K, 1), n_s)
        rows_KxR = np.einsum("...km,kmr->...kr", basis, self.pair_KxMxR)
        # Beyond the end of the table the logarithm continues linearly in the spread.
        slope_KxR = np.einsum("m,kmr->kr", chebyshev_end_slopes(n_s), self.pair_KxMxR)
        rows_KxR = rows_KxR + np.maximum(x_K - 1, 0)[..., None] * slope_KxR
        basis = basis_on_last_axis(cosine_coordinate(np.clip(rho_KxK, 0, 1)), n_rho)
        pair_KxK = np.exp(np.einsum("...kr,...klr->...kl", rows_KxR, basis))
        pair_KxK = np.where(T[:, None] <= 1, 1.0, pair_KxK / T[:, None])
        is_shorter = T[:, None] <= T[None]
        pair_KxK = np.where(is_shorter, pair_KxK, np.swapaxes(pair_KxK, -1, -2))
        return pair_KxK * np.minimum(T[:, None], T[None]) / np.maximum(T[:, None], T[None])

    def _spread(self, s2_K):
        return spread_coordinate(np.maximum(s2_K, 0) / np.log(np.maximum(self.length_K, 2)))


def rows_of_length(length_K: np.ndarray) -> Rows:
    """Returns the rows of K lengths, each 1 or a number from 2 to 2^24."""
    length_K = np.asarray(length_K, float)
    tables = load_tables()
    basis_KxN = basis_on_last_axis(length_coordinate(length_K), len(tables["overlap"]))
    names = ("overlap", "moment", "cube", "entropy", "pair")
    return Rows(length_K, *(np.tensordot(basis_KxN, tables[name], 1) for name in names))


@lru_cache(maxsize=1)
def load_tables() -> dict[str, np.ndarray]:
    """Returns every array of overlaps.npz."""
    with np.load(FILE) as file:
        return dict(file)


def basis_on_last_axis(x: np.ndarray, n: int) -> np.ndarray:
    """Returns T_0 .. T_{n-1} of 2x - 1, (*x.shape, n), for x in [0, 1]."""
    return np.stack(chebyshev_basis(np.asarray(x), n), -1)
