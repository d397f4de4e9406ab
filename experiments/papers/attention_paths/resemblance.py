"""Measures of how well a learned order parameter U resembles the theory's.

Every order parameter is large on its diagonal, so even the identity correlates with it. The
measures here exclude this trivial part. They compare entries off the diagonal, their signs, and the
blocks of paths through one head of the first layer. `matched_minus_others` tests whether the theory
of a network fits it better than the theories of other networks do.
"""

import math
from collections.abc import Sequence

import numpy as np

from jaxformer.training.metrics import Mean


def correlation(left, right) -> Mean:
    """Returns Pearson's correlation of two lists of numbers, without a standard error."""
    left, right = np.asarray(left, np.float64), np.asarray(right, np.float64)
    spread = left.std() * right.std()
    value = ((left - left.mean()) * (right - right.mean())).mean() / spread if spread else math.nan
    return Mean(float(value), math.nan, len(left))


def lower(U_DxD: np.ndarray) -> np.ndarray:
    """Returns the entries on and below the diagonal."""
    return U_DxD[np.tril_indices(len(U_DxD))]


def resemblance(learned: np.ndarray, theory: np.ndarray, heads: Sequence[int]) -> dict[str, float]:
    """Compares the learned order parameter with the theory's and with the identity.

    Returns:
      U_over_identity: the theory's correlation with the learned U, minus the identity's.
      U_off_diagonal: the correlation of the entries below the diagonal.
      U_signs: the share of equal signs below the diagonal, minus one half.
      U_blocks/learned, U_blocks/theory: see `blocks`.
    """
    below_diagonal = np.tril_indices(len(learned), -1)
    whole = correlation(lower(learned), lower(theory)).mean
    trivial = correlation(lower(learned), lower(np.eye(len(learned)))).mean
    signs = np.mean(np.sign(learned[below_diagonal]) == np.sign(theory[below_diagonal]))
    return {
        "U_over_identity": whole - trivial,
        "U_off_diagonal": correlation(learned[below_diagonal], theory[below_diagonal]).mean,
        "U_signs": float(signs) - 0.5,
        "U_blocks/learned": blocks(learned, heads),
        "U_blocks/theory": blocks(theory, heads),
    }


def blocks(U_DxD: np.ndarray, heads: Sequence[int]) -> float:
    """Returns how much larger |U| is within blocks of paths than between blocks.

    Paths of one block go through the same head of the first layer. In the order of paths this head
    changes slowest. The result is the mean |U| of two different paths of one block, minus the mean
    |U| of paths of different blocks, divided by the mean of the diagonal.
    """
    first_D = np.arange(len(U_DxD)) // (len(U_DxD) // heads[0])
    same_DxD = first_D[:, None] == first_D[None]
    off_DxD = ~np.eye(len(U_DxD), dtype=bool)
    if not (same_DxD & off_DxD).any() or same_DxD.all():
        return math.nan
    size_DxD = np.abs(U_DxD)
    gap = size_DxD[same_DxD & off_DxD].mean() - size_DxD[~same_DxD].mean()
    return float(gap / np.diagonal(size_DxD).mean())


def matched_minus_others(learned_SxDxD: np.ndarray, theory_SxDxD: np.ndarray) -> np.ndarray:
    """Returns by how much each network correlates more with its theory than with others, (S,).

    It is the correlation with its own theory, minus the mean correlation with the S - 1 other
    theories.
    """
    S = len(learned_SxDxD)
    table_SxS = np.array(
        [[correlation(lower(a), lower(b)).mean for b in theory_SxDxD] for a in learned_SxDxD]
    )
    matched_S = np.diagonal(table_SxS)
    if S == 1:
        return np.full(S, math.nan)
    return matched_S - (table_SxS.sum(1) - matched_S) / (S - 1)
