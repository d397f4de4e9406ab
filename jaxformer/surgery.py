"""Cutting parameters: params -> params, by path. Nothing here knows a model.

A pattern may name parameters ("block_1/mlp/in/kernel") or modules ("block_1/mlp"); see `paths`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxformer import paths
from jaxformer.errors import UserError

Params = Mapping[str, Any]


def laser(params: Params, pattern: str, fraction: float) -> dict[str, Any]:
    """LASER: each matched matrix becomes its best approximation of rank floor(fraction min(dims)).

    Biases and gains below a matched module are left as they are; fraction 1 changes nothing but
    rounding, fraction 0 gives zero matrices.
    """
    check_fraction(fraction)
    chosen = matrices(params, pattern)
    new = {path: low_rank(leaf, rank_of(leaf, fraction)) for path, leaf in chosen.items()}
    return paths.replace(params, new)


def truncations(
    params: Params, pattern: str, fractions: Sequence[float], measure: Callable[[Params], Any]
) -> Any:
    """`measure(laser(params, pattern, fraction))` for every fraction, stacked.

    One SVD a matrix and one program however many fractions there are: a cut is a mask on the
    singular values.
    """
    for fraction in fractions:
        check_fraction(fraction)
    chosen = matrices(params, pattern)
    parts = {path: jnp.linalg.svd(leaf, full_matrices=False) for path, leaf in chosen.items()}
    ranks = {
        path: jnp.array([rank_of(leaf, fraction) for fraction in fractions])
        for path, leaf in chosen.items()
    }

    def cut(rank):
        new = {}
        for path, (u, s, vt) in parts.items():
            kept = jnp.where(jnp.arange(len(s)) < rank[path], s, 0)
            new[path] = (u * kept[None]) @ vt
        return measure(paths.replace(params, new))

    return jax.lax.map(cut, ranks)


def check_fraction(fraction: float) -> None:
    """Raises unless it is a share of a rank."""
    if not isinstance(fraction, int | float) or not 0 <= fraction <= 1:
        raise UserError(f"a LASER fraction must be in [0, 1], got {fraction}.")


def matrices(params: Params, pattern: str) -> dict[str, jax.Array]:
    """The matched parameters that have two axes; raises if there are none."""
    chosen = paths.select(params, pattern)
    found = {path: leaf for path, leaf in chosen.items() if leaf.ndim == 2}
    if not found:
        path, leaf = next(iter(chosen.items()))
        raise UserError(f"LASER needs a matrix, {pattern!r} matches {path} of shape {leaf.shape}.")
    return found


def rank_of(matrix: jax.Array, fraction: float) -> int:
    """floor(fraction * min(dims)); a product like 0.29 * 100 counts as the 29 it stands for."""
    return math.floor(fraction * min(matrix.shape) + 1e-9)


def low_rank(matrix: jax.Array, rank: int) -> jax.Array:
    """The closest matrix of that rank in Frobenius norm (Eckart-Young)."""
    u, s, vt = jnp.linalg.svd(matrix, full_matrices=False)
    return ((u[:, :rank] * s[None, :rank]) @ vt[:rank]).astype(matrix.dtype)


def drop(params: Params, pattern: str) -> dict[str, Any]:
    """The matched parameters become zero: a dropped branch adds nothing to the residual stream."""
    return paths.replace(params, jax.tree.map(jnp.zeros_like, paths.select(params, pattern)))
