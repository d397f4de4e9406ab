"""Parameters of a block whose matrices are cut to a low rank, for several fractions at once."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from threadpoolctl import threadpool_limits

from jaxformer.core import paths
from jaxformer.core.adapters import check_merged
from jaxformer.interp import surgery


def cut_params(params: Any, kinds: Sequence[str], fractions: Sequence[float]) -> list[Any]:
    """Returns the parameters of a block with low-rank matrices, for each fraction and kind.

    The matrices are those of `surgery.laser`. The singular vectors of a matrix M are the
    eigenvectors of M M^T. Only as many as needed are computed, in a tenth of the time of an SVD.

    Args:
        params: the parameters of one block.
        kinds: the modules to cut, such as "attn" and "mlp"; each entry of the result cuts one.
        fractions: the fractions of the rank to keep.

    Returns:
        The parameters for fractions[0] and each kind, then for fractions[1], and so on.
    """
    check_merged(params, "", "a cut of the matrices")
    new: dict[str, dict[float, Any]] = {}  # {path: {fraction: matrix}}
    # With matrices of this size, several BLAS threads wait for each other and use five times the
    # CPU time.
    with threadpool_limits(1, user_api="blas"):
        for path, matrix in paths.flatten(params).items():
            if matrix.ndim == 2:
                ranks = [surgery.rank_of(matrix, fraction) for fraction in fractions]
                new[path] = dict(zip(fractions, _low_rank(matrix, ranks), strict=True))
    return [
        paths.replace(
            params,
            {path: cut[fraction] for path, cut in new.items() if path.startswith(f"{kind}/")},
        )
        for fraction in fractions
        for kind in kinds
    ]


def _low_rank(matrix: jax.Array, ranks: Sequence[int]) -> list[jax.Array]:
    """Returns the best approximations of a matrix of these ranks."""
    from scipy.linalg import eigh

    wide = np.asarray(matrix, float)
    is_tall = wide.shape[0] > wide.shape[1]
    wide = wide.T if is_tall else wide
    size, largest = len(wide), max(ranks)
    if largest == 0:
        return [jnp.zeros_like(matrix)] * len(ranks)
    vectors = eigh(wide @ wide.T, subset_by_index=[size - largest, size - 1])[1][:, ::-1]
    cuts = (vectors[:, :rank] @ (vectors[:, :rank].T @ wide) for rank in ranks)
    return [jnp.asarray(cut.T if is_tall else cut, matrix.dtype) for cut in cuts]
