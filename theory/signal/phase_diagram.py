"""The cosines of a whole map of post-norm encoders at once, in numpy.

The equations are those of theory.signal.propagation, which compiles and differentiates them with
jax; a picture of 40,000 networks is finished before jax would have been imported. The overlaps of
one length are tabulated on a fine grid and taken by straight lines between its points: cosines
after 60 layers differ from those of `propagate` by less than 1e-5.
"""

import numpy as np

from jaxformer.core.errors import check_choice
from theory.activation_moments import PHI
from theory.formulas import arc_cosine, ratio
from theory.quadrature import hermite, normal_nodes
from theory.rem.interpolated_tables import (
    END,
    LONGEST,
    SCALE,
    SOFT_HIGH,
    SOFT_LOW,
    SOFTEN,
    basis_of,
    rows_of_length,
)
from theory.signal.architecture import ACTIVATIONS

OVERLAPS = ("exact", "limit", "heuristic")
LARGEST_ALPHA = 1000.0  # the bracket of critical_alpha is [0, LARGEST_ALPHA]
PARTS, ROUNDS = 16, 9  # of the search for alpha_c: 1000 / 16^9 is 1e-8
_SPREADS, _PAIR_SPREADS, _PAIR_COSINES = 2**15, 2048, 1024  # points of the grids
_TERMS = 160


class Overlaps:
    """Y_q and Y_p of rows of T tokens, for arrays of beta and rho that broadcast."""

    def __init__(self, length: int, kind: str = "exact"):
        check_choice("overlaps", kind, OVERLAPS)
        self.T, self.kind = float(length), kind
        if kind != "exact":
            return
        overlap_M, pair_MxR = _coefficients(self.T)
        x = np.linspace(0, 1, _SPREADS + 1)
        self.row = basis_of(x, len(overlap_M)) @ overlap_M
        # The pair table ends at x = 1 and goes on along its tangent; T_n'(1) = n^2 on [-1, 1].
        x = np.linspace(0, 1, _PAIR_SPREADS + 1)
        in_rho = basis_of(np.linspace(0, 1, _PAIR_COSINES + 1), pair_MxR.shape[1]).T
        inside = basis_of(x, len(pair_MxR)) @ pair_MxR @ in_rho
        slope = 2 * np.arange(len(pair_MxR), dtype=float) ** 2 @ pair_MxR @ in_rho
        beyond = np.arange(1, np.ceil((1 / END - 1) * _PAIR_SPREADS) + 2) / _PAIR_SPREADS
        self.pair = np.concatenate([inside, inside[-1] + beyond[:, None] * slope])

    def __call__(self, beta: np.ndarray, rho: np.ndarray) -> tuple[np.ndarray, np.ndarray | float]:
        square = beta**2 * (1 - rho)
        if self.kind != "exact":
            return _beyond(square / 2, self.T if self.kind == "heuristic" else None), 0.0
        x = 1 - 1 / np.sqrt(1 + square / SCALE**2)
        soft = (np.sqrt(1 - rho + SOFTEN) - SOFT_LOW) / (SOFT_HIGH - SOFT_LOW)
        i, s = _place(x * _SPREADS, _SPREADS)
        y_q = np.exp((1 - s) * self.row[i] + s * self.row[i + 1]) / self.T
        j, t = _place(x / END * _PAIR_SPREADS, len(self.pair) - 1)
        k, u = _place(np.clip(soft, 0, 1) * _PAIR_COSINES, _PAIR_COSINES)
        low = (1 - u) * self.pair[j, k] + u * self.pair[j, k + 1]
        high = (1 - u) * self.pair[j + 1, k] + u * self.pair[j + 1, k + 1]
        return y_q, np.exp((1 - t) * low + t * high) / self.T


class Encoders:
    """Blocks of one kind of MLP, for arrays of beta and alpha_SA that broadcast."""

    def __init__(
        self,
        overlaps: Overlaps,
        alpha_mlp: float,
        sigma_v2: float,
        sigma_w2: float,
        sigma_b2: float,
        activation: str = "relu",
    ):
        check_choice("activation", activation, ACTIVATIONS)
        self.overlaps, self.alpha_mlp, self.sigma_v2 = overlaps, alpha_mlp, sigma_v2
        self.sigma_w2, self.sigma_b2, self.activation = sigma_w2, sigma_b2, activation
        self.q1 = sigma_w2 + sigma_b2
        self.square, self.series = self.q1 / 2, np.zeros(0)
        if activation != "relu":
            self.square, self.series = _series(activation, self.q1)

    def cosine(self, beta: np.ndarray, alpha: np.ndarray, depth: int) -> np.ndarray:
        """Of two tokens that start orthogonal, after `depth` blocks."""
        rho = np.zeros(np.broadcast_shapes(np.shape(beta), np.shape(alpha)))
        for _ in range(depth):
            rho = self.step(rho, beta, alpha)
        return rho

    def step(self, rho: np.ndarray, beta: np.ndarray, alpha: np.ndarray) -> np.ndarray:
        """rho -> rho' of one block."""
        y_q, y_p = self.overlaps(beta, rho)
        q = self.sigma_v2 * ((1 - rho) * y_q + rho) + alpha**2
        p = self.sigma_v2 * ((1 - rho) * y_p + rho) + alpha**2 * rho
        r0 = ratio(p, q)
        c = ratio(self.sigma_w2 * r0 + self.sigma_b2, np.full_like(r0, self.q1))
        q2 = self.sigma_w2 * self.square + self.sigma_b2 + self.alpha_mlp**2
        p2 = self.sigma_w2 * self._kernel(np.clip(c, 0, 1)) + self.sigma_b2
        out = ratio(p2 + self.alpha_mlp**2 * r0, np.full_like(r0, q2))
        return np.minimum(out, 1)  # rounding may give more

    def critical_alpha(self, beta_B: np.ndarray, depth: int, epsilon: float) -> np.ndarray:
        """The smallest alpha_SA without rho_depth > 1 - epsilon: 0 if there is no collapse at all,
        inf if no alpha helps."""

        def collapsed(alpha):
            return self.cosine(beta_B[:, None], alpha, depth) > 1 - epsilon

        low, high = np.zeros(len(beta_B)), np.full(len(beta_B), LARGEST_ALPHA)
        always, never = collapsed(high[:, None])[:, 0], ~collapsed(low[:, None])[:, 0]
        for _ in range(ROUNDS):
            part = (high - low) / PARTS
            inside = collapsed(low[:, None] + part[:, None] * np.arange(1, PARTS))
            first = np.where(inside.all(1), PARTS - 1, inside.argmin(1))
            low = low + part * first
            high = low + part
        return np.where(always, np.inf, np.where(never, 0.0, high))

    def _kernel(self, c: np.ndarray) -> np.ndarray:
        """E phi(u) phi(v) at correlation c."""
        if self.activation == "relu":
            return self.square * arc_cosine(c)
        total = np.zeros_like(c)
        for coefficient in self.series[::-1]:
            total = total * c + coefficient
        return total


def _coefficients(T: float) -> tuple[np.ndarray, np.ndarray]:
    """Of ln(T Y_q), and of ln(T Y_p) in the spread and rho."""
    if T <= LONGEST:
        rows = rows_of_length(np.array([T]))
        return rows.overlap_KxM[0], rows.pair_KxMxR[0]
    from theory.rem.integrals import tables

    found = tables(T)
    return found.overlap, found.pair


def _beyond(square: np.ndarray, T: float | None) -> np.ndarray:
    """Y_q of the paper at (beta / beta_c)^2: eq. 13, with T eq. 15 below the transition."""
    above = 1 - 1 / np.sqrt(np.maximum(square, 1))
    if T is None:
        return above
    return np.where(square < 1, np.exp((np.minimum(square, 1) - 1) * np.log(T)), above)


def _place(x: np.ndarray, last: int) -> tuple[np.ndarray, np.ndarray]:
    """The point of the grid below x, and how far beyond it x is."""
    below = np.clip(x.astype(int), 0, last - 1)
    return below, x - below


def _series(activation: str, q: float) -> tuple[float, np.ndarray]:
    """E phi^2 at variance q, and the coefficients of E phi phi in the correlation."""
    z, weights = normal_nodes(641)
    phi = PHI[activation](np.sqrt(q) * z)
    series = ((phi * weights) @ hermite(z, _TERMS)) ** 2
    square = float(phi**2 @ weights)
    # What the series leaves out goes into its last term, so that c = 1 gives E phi^2.
    series = np.append(series, square - series.sum())
    large = np.flatnonzero(series > 1e-14 * max(square, 1e-300))
    return square, series[: large[-1] + 1] if len(large) else series[:1]
