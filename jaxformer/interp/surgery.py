"""Changes parameters by path, for any model: low-rank approximation and removal.

A pattern may match parameters ("block_1/mlp/in/kernel") or modules ("block_1/mlp"), see
`jaxformer.core.paths`. No function changes its argument.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxformer.core import adapters, paths
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
    """LASER: replaces each matched matrix by its best approximation of a lower rank.

    Biases and gains below a matched module stay. Fraction 1 changes only rounding, fraction 0 gives
    zero matrices.

    Args:
        params: a model's parameters.
        pattern: matches matrices or modules.
        fraction: the rank is floor(fraction * min(dimensions)).

    Returns:
        New parameters.
    """
    check_fraction(fraction)
    chosen = matrices(params, pattern)
    new = {path: low_rank(leaf, rank_of(leaf, fraction)) for path, leaf in chosen.items()}
    return paths.replace(params, new)


def truncations(
    params: Params, pattern: str, fractions: Sequence[float], measure: Callable[[Params], Any]
) -> Any:
    """Returns `measure(laser(params, pattern, fraction))` for every fraction, stacked.

    It computes one SVD for each matrix and compiles one program for all fractions.

    Args:
        params: a model's parameters.
        pattern: matches matrices or modules.
        fractions: the fractions of the rank.
        measure: a function of the parameters that returns arrays.
    """
    for fraction in fractions:
        check_fraction(fraction)
    chosen = matrices(params, pattern)
    parts = {path: decompose(leaf) for path, leaf in chosen.items()}
    ranks = {
        path: jnp.array([rank_of(leaf, fraction) for fraction in fractions])
        for path, leaf in chosen.items()
    }

    def cut(rank_of_path):
        new = {}
        for path, (u, s, vt) in parts.items():
            new[path] = recompose(u, s, vt, rank_of_path[path]).astype(chosen[path].dtype)
        return measure(paths.replace(params, new))

    return jax.lax.map(cut, ranks)


def check_fraction(fraction: float) -> None:
    """Raises a UserError unless the fraction is in [0, 1]."""
    if not isinstance(fraction, int | float) or not 0 <= fraction <= 1:
        raise UserError(f"a LASER fraction must be a number in [0, 1], got {fraction!r}.")


def matrices(params: Params, pattern: str) -> dict[str, jax.Array]:
    """Returns {path: matrix} of the matched parameters with two axes; raises if there is none."""
    chosen = paths.select(params, pattern)
    two_axes = {path: leaf for path, leaf in chosen.items() if leaf.ndim == 2}
    for path in two_axes:
        adapters.check_merged(params, path, "LASER")
    if not two_axes:
        path, leaf = next(iter(chosen.items()))
        raise UserError(f"LASER needs a matrix, {pattern!r} matches {path} of shape {leaf.shape}.")
    return two_axes


def rank_of(matrix: jax.Array, fraction: float) -> int:
    """Returns floor(fraction * min(dimensions))."""
    # 0.29 * 100 is slightly below 29 in floating point.
    return math.floor(fraction * min(matrix.shape) + 1e-9)


def low_rank(matrix: jax.Array, rank: int) -> jax.Array:
    """Returns the closest matrix of that rank in Frobenius norm (Eckart-Young)."""
    u, s, vt = decompose(matrix)
    return ((u[:, :rank] * s[None, :rank]) @ vt[:rank]).astype(matrix.dtype)


def decompose(matrix: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns the thin SVD (u, s, vt), at least in float32."""
    dtype = jnp.promote_types(matrix.dtype, jnp.result_type(float))
    u, s, vt = jnp.linalg.svd(jnp.asarray(matrix, dtype), full_matrices=False)
    return u, s, vt


@jax.jit
def recompose(u: jax.Array, s: jax.Array, vt: jax.Array, rank: int | jax.Array) -> jax.Array:
    """Returns the matrix of a rank from its SVD; one compiled program serves all ranks.

    Args:
        u: the left singular vectors, (N, R).
        s: the singular values, (R,), the largest first.
        vt: the right singular vectors, (R, M).
        rank: how many singular values are kept.

    Returns:
        The matrix, (N, M).
    """
    kept = jnp.where(jnp.arange(len(s)) < rank, s, 0)
    return (u * kept[None]) @ vt


def ablate_heads(
    params: Params, heads: Mapping[str, Sequence[int]], n_heads: int | None = None
) -> dict[str, Any]:
    """Removes heads: sets the rows of the out kernel that read them to zero.

    In models without an out kernel (encoder) the values of the heads become zero.

    Args:
        params: a model's parameters.
        heads: {attention: its heads}, such as {"block_3/attn": [0, 5]}.
        n_heads: the number of heads (model.spec.heads), needed if kernels are matrices.

    Returns:
        New parameters.
    """
    flat, new = paths.flatten(params), {}
    for address, indices in heads.items():
        out, value = f"{address}/out/kernel", f"{address}/value/kernel"
        path = out if out in flat else value
        if path not in flat:
            known = sorted({p.rsplit("/", 2)[0] for p in flat if p.endswith("value/kernel")})
            raise UserError(
                f"no attention {address!r}.{did_you_mean(address, known)} There are: "
                f"{', '.join(known)}."
            )
        adapters.check_merged(params, path, "the removal of a head")
        kernel = jnp.asarray(flat[path])
        # The kernels of an encoder have an axis of heads, (N, H, D).
        n_kernel_heads = kernel.shape[1] if kernel.ndim == 3 else n_heads
        if n_kernel_heads is None:
            raise UserError(f"{path} is a matrix: give n_heads=model.spec.heads.")
        for head in indices:
            if not 0 <= head < n_kernel_heads:
                raise UserError(f"{address} has the heads 0 to {n_kernel_heads - 1}, got {head}.")
        index = jnp.asarray(indices, int)
        if kernel.ndim == 3:
            new[path] = kernel.at[:, index].set(0)
        elif path == out:
            by_head = kernel.reshape(n_kernel_heads, -1, kernel.shape[-1])
            new[path] = by_head.at[index].set(0).reshape(kernel.shape)
        else:
            by_head = kernel.reshape(len(kernel), n_kernel_heads, -1)
            new[path] = by_head.at[:, index].set(0).reshape(kernel.shape)
    return paths.replace(params, new)


def drop(params: Params, pattern: str) -> dict[str, Any]:
    """Sets matched parameters to zero; a dropped branch adds nothing to the residual stream.

    Args:
        params: a model's parameters.
        pattern: matches parameters or modules, such as "block_1/mlp".

    Returns:
        New parameters.
    """
    chosen = paths.select(params, pattern)
    for path in chosen:
        if adapters.beside(path, adapters.LORA_B) not in chosen:
            adapters.check_merged(params, path, "a drop")
    return paths.replace(params, jax.tree.map(jnp.zeros_like, chosen))
