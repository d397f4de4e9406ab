"""Cosine of tokens after any number of post-norm encoder blocks, in jax (arXiv 2505.24333).

The map of one block is `theory.signal.encoder_block.cosine_map`. Here it is iterated, inverted
(`critical_alpha`) and solved for fixed points. Everything broadcasts and is differentiable in all
fields of the block, also at rho = 1. `theory.signal.phase_diagram` is the NumPy version for large
grids.
"""

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError, check_choice
from theory import rem
from theory.activations import activation_function
from theory.numerics import Numbers, check_count, check_range, in_float64
from theory.signal.encoder_block import MAX_ALPHA, OVERLAPS, Block, cosine_map

MAX_STRENGTH = 1e100  # of variances and residual weights: their squares stay finite

jax.tree_util.register_dataclass(Block)


class FixedPoints(NamedTuple):
    """Fixed points of one block in ascending order; rho = 1 is always the last."""

    rho: np.ndarray  # (F,) cosines with rho' = rho
    slope: np.ndarray  # (F,) d rho' / d rho
    stable: np.ndarray  # (F,) |slope| < 1


@in_float64
def propagate(
    rho0: Numbers, block: Block, depth: int, T: float | None = None, overlaps: str | None = None
) -> jax.Array:
    """Returns the cosine of two tokens before the first block and after every block.

    Args:
      rho0: cosine of two input tokens, in [0, 1].
      block: the block, the same at every depth.
      depth: number of blocks.
      T: number of tokens; None is the limit T -> infinity.
      overlaps: one of `OVERLAPS`. The default is "limit" for T=None and "exact" otherwise.

    Returns:
      (depth+1, ...) cosines; the other axes are the broadcast shape of rho0 and block's fields.

    Example:
      >>> block = Block(0.02, 1.5, 1.0, sigma_v2=0.2, sigma_w2=0.2, sigma_b2=4e-4)
      >>> round(float(propagate(0.0, block, depth=60, T=64)[-1]), 4)
      0.944
    """
    T, overlaps = _checked(block, T, overlaps, rho0=rho0)
    check_count("depth", depth)
    rho0, block = _broadcast(rho0, block)
    return _propagate(rho0, block, depth, T, overlaps)


@in_float64
def block_map(
    rho: Numbers, block: Block, T: float | None = None, overlaps: str | None = None
) -> jax.Array:
    """Returns the cosine after one block; arguments as in `propagate`."""
    T, overlaps = _checked(block, T, overlaps, rho=rho)
    return _block_map(*_broadcast(rho, block), T, overlaps)


@in_float64
def critical_alpha(
    beta: Numbers,
    block: Block,
    depth: int,
    T: float | None = None,
    epsilon: Numbers = 0.01,
    overlaps: str | None = None,
) -> jax.Array:
    """Returns the smallest alpha_SA for which orthogonal input tokens do not collapse.

    It is computed by bisection in [0, 1000], and its gradient by the implicit function theorem.

    Args:
      beta: score scale, in place of block.beta.
      block: the block; block.alpha_sa is ignored.
      depth: number of blocks.
      T: number of tokens; None is the limit T -> infinity.
      epsilon: tokens have collapsed if rho_depth > 1 - epsilon.
      overlaps: as in `propagate`.

    Returns:
      alpha_SA in the broadcast shape of beta, epsilon and block's fields: 0 if tokens never
      collapse, inf if no alpha_SA prevents it.

    Example:
      >>> block = Block(0.02, 1.5, 1.0, sigma_v2=0.2, sigma_w2=0.2, sigma_b2=4e-4)
      >>> round(float(critical_alpha(0.02, block, depth=60, T=64)), 3)
      1.255
    """
    block = block.replace(beta=beta, alpha_sa=0.0)
    T, overlaps = _checked(block, T, overlaps)
    check_count("depth", depth)
    check_range("epsilon", epsilon, 0, 1)
    return _critical_alpha(*_broadcast(epsilon, block), depth, T, overlaps)


@in_float64
def fixed_points(
    block: Block, T: float | None = None, overlaps: str | None = None, grid: int = 2001
) -> FixedPoints:
    """Returns all fixed points of one block and their stability.

    Args:
      block: the block; its fields are concrete numbers.
      T: number of tokens; None is the limit T -> infinity.
      overlaps: as in `propagate`.
      grid: number of points in [0, 1]; roots are bisected between points of opposite sign.
    """
    rho = np.linspace(0, 1, grid)
    excess = np.asarray(block_map(rho, block, T, overlaps)) - rho
    # The last grid point, rho = 1, is always a root: it is appended below.
    left = np.flatnonzero((excess[:-2] == 0) | (excess[:-2] * excess[1:-1] < 0))
    low, high, sign = rho[left], rho[left + 1], np.sign(excess[left])
    for _ in range(50 if len(left) else 0):
        middle = (low + high) / 2
        same = np.sign(np.asarray(block_map(middle, block, T, overlaps)) - middle) == sign
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    roots = np.append(np.where(sign == 0, rho[left], (low + high) / 2), 1.0)
    slope = np.asarray(jax.vmap(jax.grad(lambda r: block_map(r, block, T, overlaps)))(roots))
    return FixedPoints(roots, slope, np.abs(slope) < 1)


@in_float64
def effective_beta(init_std: Numbers, width: int, length: int) -> jax.Array:
    """Returns beta = init_std^2 width / sqrt(ln T), whatever the number of heads.

    It is 0.123 for BERT at T = 512.

    Args:
      init_std: standard deviation of the entries of the query and key matrices.
      width: their fan-in. A score q.k / sqrt(d_head) then has standard deviation init_std^2 width.
      length: number of tokens T.
    """
    check_range("init_std", init_std, 0)
    check_count("width", width)
    check_count("length", length, 2)
    return jnp.asarray(init_std, float) ** 2 * (width / np.log(length) ** 0.5)


@in_float64
def effective_beta_paper(init_std: Numbers, d_head: int, length: int) -> jax.Array:
    """Returns init_std^2 d_head / sqrt(ln T), the paper's B.1.

    The formula omits the number of heads as a factor.
    """
    return effective_beta(init_std, d_head, length)


# The map -----------------------------------------------------------------------------------------


@partial(jax.jit, static_argnames=("depth", "T", "overlaps"))
def _propagate(rho0, block, depth, T, overlaps):
    next_cosine = _step(block, T, overlaps)

    def step(rho, _):
        rho = next_cosine(rho)
        return rho, rho

    return jnp.concatenate([rho0[None], jax.lax.scan(step, rho0, None, depth)[1]])


@partial(jax.jit, static_argnames=("T", "overlaps"))
def _block_map(rho, block, T, overlaps):
    return _step(block, T, overlaps)(rho)


@partial(jax.jit, static_argnames=("depth", "T", "overlaps"))
def _critical_alpha(epsilon, block, depth, T, overlaps):
    def cosine(alpha, block):
        step = _step(block.replace(alpha_sa=alpha), T, overlaps)
        return jax.lax.scan(lambda r, _: (step(r), None), jnp.zeros_like(epsilon), None, depth)[0]

    def has_collapsed(alpha):
        return cosine(alpha, block) > 1 - epsilon

    def halve(_, bracket):
        low, high = bracket
        middle = (low + high) / 2
        is_low = has_collapsed(middle)
        return jnp.where(is_low, middle, low), jnp.where(is_low, high, middle)

    zero, largest = jnp.zeros_like(epsilon), jnp.full_like(epsilon, MAX_ALPHA)
    collapses_at_max, collapses_at_0 = has_collapsed(largest), has_collapsed(zero)
    # 52 halvings reach the precision of float64.
    alpha = jax.lax.stop_gradient(jax.lax.fori_loop(0, 52, halve, (zero, largest))[1])
    # alpha keeps its value and gets the derivative of the implicit function rho_depth(alpha) =
    # 1 - epsilon: d alpha = (-d epsilon - d rho_depth) / (d rho_depth / d alpha).
    _, slope = jax.jvp(
        partial(cosine, block=jax.lax.stop_gradient(block)), (alpha,), (alpha * 0 + 1,)
    )
    slope = jax.lax.stop_gradient(jnp.where(slope < 0, slope, -1.0))
    miss = 1 - epsilon - cosine(alpha, block)
    alpha = alpha + (miss - jax.lax.stop_gradient(miss)) / slope
    return jnp.where(collapses_at_max, jnp.inf, jnp.where(collapses_at_0, alpha, 0.0))


def _step(block: Block, T: float | None, overlaps: str) -> Callable[[jax.Array], jax.Array]:
    next_cosine = cosine_map(block, partial(overlap_pair, T=T, overlaps=overlaps), jnp)

    # Without the checkpoint reverse mode would store every layer's Chebyshev polynomials.
    @partial(jax.checkpoint, prevent_cse=False)
    def step(rho):
        out = next_cosine(rho)
        return out - jax.lax.stop_gradient(jnp.maximum(out - 1, 0))  # rounding may give more than 1

    return step


def overlap_pair(
    beta: Numbers, rho: Numbers, T: Any, overlaps: str
) -> tuple[jax.Array, jax.Array | float]:
    """Returns the self overlap Y_q and the cross overlap Y_p of attention rows.

    `overlaps` is one of `OVERLAPS`. The paper's theories, "limit" and "heuristic", have Y_p = 0.
    """
    if overlaps == "exact":
        return rem.self_overlap(beta, rho, T), rem.cross_overlap(beta, rho, T)
    if overlaps == "heuristic":
        return rem.self_overlap_heuristic(beta, rho, T), 0.0
    return rem.self_overlap(beta, rho), 0.0


# Checks ------------------------------------------------------------------------------------------


def _checked(block: Block, T: float | None, overlaps: str | None, **cosines) -> tuple[Any, str]:
    """Checks all arguments and returns T as a float or None, and the name of the overlaps."""
    for name, value in cosines.items():
        check_range(name, value, 0, 1)
    for f in fields(block):
        value = getattr(block, f.name)
        if f.name != "activation" and value is not None:
            # The first check has the clearer message for negative values.
            check_range(f.name, value, 0)
            check_range(f.name, value, 0, MAX_STRENGTH)
    activation_function(block.activation)
    overlaps = overlaps or ("limit" if T is None else "exact")
    check_choice("overlaps", overlaps, OVERLAPS)
    if T is None and overlaps != "limit":
        raise UserError(f'overlaps="{overlaps}" needs the number of tokens T; got T=None.')
    return None if T is None else rem.number_of_tokens(T), overlaps


def _broadcast(first, block: Block) -> tuple[jax.Array, Block]:
    """Returns `first` in the common shape, and the block's fields reshaped to its rank."""
    leaves, tree = jax.tree.flatten(block)
    arrays = [jnp.asarray(x, float) for x in (first, *leaves)]
    try:
        shape = jnp.broadcast_shapes(*(x.shape for x in arrays))
    except ValueError as error:
        raise UserError(
            f"the shapes of rho and of the block's fields must broadcast: {error}"
        ) from None
    arrays = [jnp.reshape(x, (1,) * (len(shape) - x.ndim) + x.shape) for x in arrays]
    return jnp.broadcast_to(arrays[0], shape), jax.tree.unflatten(tree, arrays[1:])
