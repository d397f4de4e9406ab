"""Cutting parameters: params -> params, by path. Nothing here knows a model.

A pattern may name parameters ("block_1/mlp/in/kernel") or modules ("block_1/mlp"); see `paths`.
"""

import math
from collections.abc import Mapping
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
    if not 0 <= fraction <= 1:
        raise UserError(f"a LASER fraction must be in [0, 1], got {fraction}.")
    chosen = paths.select(params, pattern)
    matrices = {path: leaf for path, leaf in chosen.items() if leaf.ndim == 2}
    if not matrices:
        path, leaf = next(iter(chosen.items()))
        raise UserError(f"LASER needs a matrix, {pattern!r} matches {path} of shape {leaf.shape}.")
    new = {path: low_rank(leaf, rank_of(leaf, fraction)) for path, leaf in matrices.items()}
    return paths.replace(params, new)


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
