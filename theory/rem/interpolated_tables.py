"""The averages of theory.rem at every length T from 2 to 2^24, in numpy alone.

`theory.rem.integrals` computes Chebyshev coefficients in the spread of the scores for one T. They
are smooth in ln ln T, so a third Chebyshev series joins them: `rows_of_length` sums it once, and
gives the overlaps of rows of these lengths. Beside the integrals they err by 1e-7 for T up to 1e5.
The numbers are in overlaps.npz; `python -m theory.rem.make_tables` makes it anew.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

SCALE = 0.5  # c / sqrt(ln T) in the coordinate 1 - 1/sqrt(1 + s^2/c^2): even in s, finite at s = oo
REACH = 6.0  # the pair table ends at s = 6 sqrt(ln T)
SOFTEN = 0.02  # the pair table is smooth in sqrt(1 - rho + SOFTEN)
END = 1 - 1 / np.sqrt(1 + (REACH / SCALE) ** 2)
LONGEST = 2.0**24
FILE = Path(__file__).with_name("overlaps.npz")
_LOW, _HIGH = np.log(np.log(2.0)), np.log(np.log(LONGEST))
SOFT_LOW, SOFT_HIGH = SOFTEN**0.5, (1 + SOFTEN) ** 0.5


@dataclass(frozen=True)
class Rows:
    """Rows of attention of K lengths; coefficients of the series in the spread, one row a length.

    A length of 1 sees itself alone: its overlaps are 1 and its entropy is 0, whatever the spread.
    """

    length_K: np.ndarray
    overlap_KxM: np.ndarray  # ln(T E sum A^2)
    moment_KxM: np.ndarray  # ln(T^2 E (sum A^2)^2)
    cube_KxM: np.ndarray  # ln(T^2 E sum A^3)
    entropy_KxM: np.ndarray  # H sqrt(1 + s^2/c^2)
    pair_KxMxR: np.ndarray  # ln(T E sum A A'), in the spread and in rho

    def statistics(self, s2_K: np.ndarray) -> tuple[np.ndarray, ...]:
        """E sum A^2, E (sum A^2)^2, E sum A^3 and the entropy of rows whose scores have the
        variance s2 between tokens."""
        T, x = self.length_K, self._spread(s2_K)
        basis = basis_of(x, self.overlap_KxM.shape[1])
        one = self.length_K <= 1

        def series(table_KxM):
            return np.sum(basis * table_KxM, -1)

        y = np.where(one, 1.0, np.exp(series(self.overlap_KxM)) / T)
        y2 = np.where(one, 1.0, np.exp(series(self.moment_KxM)) / T**2)
        y3 = np.where(one, 1.0, np.exp(series(self.cube_KxM)) / T**2)
        return y, y2, y3, np.where(one, 0.0, series(self.entropy_KxM) * (1 - x))

    def cross_overlap(self, s2_K: np.ndarray, rho_KxK: np.ndarray) -> np.ndarray:
        """E sum_s A_ts A_us over what both rows see, of rows of lengths k and l whose queries have
        cosine rho: of the longer row only the part that the shorter one sees counts,
        (T_short / T_long) Y_p(T_short)."""
        T, n_s, n_rho = self.length_K, *self.pair_KxMxR.shape[1:]
        x_K = self._spread(s2_K) / END
        rows_KxR = np.einsum("...km,kmr->...kr", basis_of(np.minimum(x_K, 1), n_s), self.pair_KxMxR)
        # Beyond the table it goes on along its tangent; T_n'(1) = n^2 on [-1, 1].
        slope_KxR = np.einsum("m,kmr->kr", 2 * np.arange(n_s, dtype=float) ** 2, self.pair_KxMxR)
        rows_KxR = rows_KxR + np.maximum(x_K - 1, 0)[..., None] * slope_KxR
        soft = (np.sqrt(1 - np.clip(rho_KxK, 0, 1) + SOFTEN) - SOFT_LOW) / (SOFT_HIGH - SOFT_LOW)
        own_KxK = np.exp(np.einsum("...kr,...klr->...kl", rows_KxR, basis_of(soft, n_rho)))
        own_KxK = np.where(T[:, None] <= 1, 1.0, own_KxK / T[:, None])
        shorter = T[:, None] <= T[None]
        own_KxK = np.where(shorter, own_KxK, np.swapaxes(own_KxK, -1, -2))
        return own_KxK * np.minimum(T[:, None], T[None]) / np.maximum(T[:, None], T[None])

    def _spread(self, s2_K):
        log_T = np.log(np.maximum(self.length_K, 2))
        return 1 - 1 / np.sqrt(1 + np.maximum(s2_K, 0) / (SCALE**2 * log_T))


def rows_of_length(length_K: np.ndarray) -> Rows:
    """The rows of these lengths, numbers from 1 to 2^24, but none between 1 and 2."""
    length_K = np.asarray(length_K, float)
    held = shipped()
    log = np.log(np.log(np.clip(length_K, 2, LONGEST)))
    basis_KxN = basis_of((log - _LOW) / (_HIGH - _LOW), len(held["overlap"]))
    names = ("overlap", "moment", "cube", "entropy", "pair")
    return Rows(length_K, *(np.tensordot(basis_KxN, held[name], 1) for name in names))


@lru_cache(maxsize=1)
def shipped() -> dict[str, np.ndarray]:
    """Every array of overlaps.npz."""
    with np.load(FILE) as file:
        return dict(file)


def length_at(y: np.ndarray) -> np.ndarray:
    """The T at the place y of [0, 1] in ln ln T."""
    return np.exp(np.exp(_LOW + (_HIGH - _LOW) * y))


def basis_of(x: np.ndarray, n: int) -> np.ndarray:
    """T_0 .. T_{n-1} of 2x - 1 on a new last axis, for x in [0, 1]."""
    angle = np.arccos(np.clip(2 * np.asarray(x) - 1, -1, 1))
    return np.cos(angle[..., None] * np.arange(n))
