"""How much two order parameters of a network's paths have in common, beyond what is trivial.

Any order parameter is large on its diagonal, so that the identity correlates with it as well. What
tells is the part off the diagonal, its signs, its blocks of paths through one head of the first
layer, and whether the theory of this network fits better than that of another one.
"""

import math
from collections.abc import Sequence

import numpy as np

from jaxformer.training.metrics import Mean


def correlation(one, other) -> Mean:
    """Pearson's correlation of two lists of numbers; it has no standard error."""
    one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
    spread = one.std() * other.std()
    value = ((one - one.mean()) * (other - other.mean())).mean() / spread if spread else math.nan
    return Mean(float(value), math.nan, len(one))


def lower(U_DxD: np.ndarray) -> np.ndarray:
    """The entries on and below the diagonal."""
    return U_DxD[np.tril_indices(len(U_DxD))]


def resemblance(learned: np.ndarray, theory: np.ndarray, heads: Sequence[int]) -> dict[str, float]:
    """What the learned order parameter shares with that of the theory, and not with the identity.

    U_over_identity   by how much the theory correlates better with it than the identity does
    U_off_diagonal    the correlation below the diagonal alone
    U_signs           the share of equal signs there, above one half
    U_blocks/..       the mean |U| off the diagonal of paths that share the head of the first layer,
                      minus that of paths that do not, in units of the mean of the diagonal
    """
    off = np.tril_indices(len(learned), -1)
    whole = correlation(lower(learned), lower(theory)).mean
    trivial = correlation(lower(learned), lower(np.eye(len(learned)))).mean
    signs = np.mean(np.sign(learned[off]) == np.sign(theory[off]))
    return {
        "U_over_identity": whole - trivial,
        "U_off_diagonal": correlation(learned[off], theory[off]).mean,
        "U_signs": float(signs) - 0.5,
        "U_blocks/learned": blocks(learned, heads),
        "U_blocks/theory": blocks(theory, heads),
    }


def blocks(U_DxD: np.ndarray, heads: Sequence[int]) -> float:
    """The contrast of the blocks; paths are numbered with the head of the first layer slowest."""
    first_D = np.arange(len(U_DxD)) // (len(U_DxD) // heads[0])
    same_DxD = first_D[:, None] == first_D[None]
    off_DxD = ~np.eye(len(U_DxD), dtype=bool)
    if not (same_DxD & off_DxD).any() or same_DxD.all():
        return math.nan
    size_DxD = np.abs(U_DxD)
    gap = size_DxD[same_DxD & off_DxD].mean() - size_DxD[~same_DxD].mean()
    return float(gap / np.diagonal(size_DxD).mean())


def own_minus_others(learned_SxDxD: np.ndarray, theory_SxDxD: np.ndarray) -> np.ndarray:
    """(S,): the correlation with the own network's theory, minus the mean with those of others."""
    S = len(learned_SxDxD)
    table_SxS = np.array(
        [[correlation(lower(a), lower(b)).mean for b in theory_SxDxD] for a in learned_SxDxD]
    )
    own_S = np.diagonal(table_SxS)
    return own_S - (table_SxS.sum(1) - own_S) / max(S - 1, 1) if S > 1 else np.full(S, math.nan)
