"""Cutting parameters: params -> params, by path. Nothing here knows a model.

A pattern may name parameters ("block_1/mlp/in/kernel") or modules ("block_1/mlp"); see `paths`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxformer.core import paths
from jaxformer.core.errors import UserError, did_you_mean

__all__ = [
    "ablate_heads",
    "check_fraction",
    "decompose",
    "drop",
    "laser",
    "low_rank",
    "matrices",
    "rank_of",
    "recompose",
    "truncations",
]

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
    parts = {path: decompose(leaf) for path, leaf in chosen.items()}
    ranks = {
        path: jnp.array([rank_of(leaf, fraction) for fraction in fractions])
        for path, leaf in chosen.items()
    }

    def cut(rank):
        new = {}
        for path, (u, s, vt) in parts.items():
            kept = jnp.where(jnp.arange(len(s)) < rank[path], s, 0)
            new[path] = ((u * kept[None]) @ vt).astype(chosen[path].dtype)
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
    u, s, vt = decompose(matrix)
    return ((u[:, :rank] * s[None, :rank]) @ vt[:rank]).astype(matrix.dtype)


def decompose(matrix: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Its thin SVD (u, s, vt), in float32 where the matrix has fewer digits."""
    wide = jnp.asarray(matrix, jnp.promote_types(matrix.dtype, jnp.result_type(float)))
    u, s, vt = jnp.linalg.svd(wide, full_matrices=False)
    return u, s, vt


@jax.jit
def recompose(u: jax.Array, s: jax.Array, vt: jax.Array, rank: int | jax.Array) -> jax.Array:
    """The matrix of rank `rank` from its SVD: one program for all ranks."""
    kept = jnp.where(jnp.arange(len(s)) < rank, s, 0)
    return (u * kept[None]) @ vt


def ablate_heads(
    params: Params, heads: Mapping[str, Sequence[int]], n_heads: int | None = None
) -> dict[str, Any]:
    """{"block_3/attn": [0, 5]}: the rows of the out kernel that read these heads become zero.

    A flat kernel does not say how many heads it reads: then `n_heads` does, model.spec.heads.
    Models without an out kernel (encoder) lose the heads' values instead.
    """
    flat, new = paths.flatten(params), {}
    for address, which in heads.items():
        out, value = f"{address}/out/kernel", f"{address}/value/kernel"
        path = out if out in flat else value
        if path not in flat:
            known = sorted({p.rsplit("/", 2)[0] for p in flat if p.endswith("value/kernel")})
            raise UserError(
                f"no attention {address!r}.{did_you_mean(address, known)} There are: "
                f"{', '.join(known)}."
            )
        kernel = jnp.asarray(flat[path])
        number = kernel.shape[1] if kernel.ndim == 3 else n_heads
        if number is None:
            raise UserError(f"{path} is flat: say n_heads=model.spec.heads.")
        for head in which:
            if not 0 <= head < number:
                raise UserError(f"{address} has the heads 0 to {number - 1}, got {head}.")
        index = jnp.asarray(which, int)
        if kernel.ndim == 3:
            new[path] = kernel.at[:, index].set(0)
        elif path == out:
            by_head = kernel.reshape(number, -1, kernel.shape[-1])
            new[path] = by_head.at[index].set(0).reshape(kernel.shape)
        else:
            by_head = kernel.reshape(len(kernel), number, -1)
            new[path] = by_head.at[:, index].set(0).reshape(kernel.shape)
    return paths.replace(params, new)


def drop(params: Params, pattern: str) -> dict[str, Any]:
    """The matched parameters become zero: a dropped branch adds nothing to the residual stream."""
    return paths.replace(params, jax.tree.map(jnp.zeros_like, paths.select(params, pattern)))
