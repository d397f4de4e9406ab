"""Signal propagation through a post-norm encoder at initialisation (arXiv 2505.24333).

    X <- LN(SA(X) + alpha_SA X),   X <- LN(MLP(X) + alpha_MLP X),   LN(x) = x sqrt(d) / |x|

All pairs of tokens have one cosine rho. One block maps it by

    r0  = (sV2 [(1-rho) Y_p + rho] + alpha_SA^2 rho) / (sV2 [(1-rho) Y_q + rho] + alpha_SA^2)
    q1  = sw2 + sb2,  p1 = sw2 r0 + sb2,  c = p1 / q1
    q2  = sw2 E phi(u)^2 + sb2,  p2 = sw2 E phi(u) phi(v) + sb2     (u, v ~ N(0, q1), corr. c)
    rho'= (p2 + alpha_MLP^2 r0) / (q2 + alpha_MLP^2)

with the overlaps Y_q, Y_p of theory.rem: "limit" (the paper, T -> infinity), "heuristic" (its
finite-size rule) or "exact" (finite T, width d -> infinity; a finite width adds a bias of order
1/d of the other sign, so compare at d >= 600). sV2 must be in the residual step: with the sV2 = 1
of the paper's algebra its own trainable networks would collapse.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError, unknown
from theory import rem
from theory.activations import activation_function, second_moments
from theory.formulas import ratio
from theory.numerics import Numbers, check_count, check_range
from theory.signal.phase_diagram import LARGEST_ALPHA, OVERLAPS

LARGEST = 1e100  # of a variance or a residual: their squares are numbers


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Block:
    """One encoder block at initialisation; numbers or arrays that broadcast.

    beta: scores have variance beta^2 ln T.  sigma_v2, sigma_w2, sigma_b2: variances times fan-in of
    the values, of both MLP matrices, and of the MLP biases.  A network with an output projection
    after attention takes the product of the two variances as sigma_v2.  sigma_u2: like sigma_w2,
    for the second MLP matrix alone (None: equal).
    """

    beta: jax.Array | float
    alpha_sa: jax.Array | float
    alpha_mlp: jax.Array | float
    sigma_v2: jax.Array | float
    sigma_w2: jax.Array | float
    sigma_b2: jax.Array | float
    activation: str | Callable = field(default="relu", metadata={"static": True})
    sigma_u2: jax.Array | float | None = None

    def replace(self, **changes: Any) -> "Block":
        return Block(**{f.name: getattr(self, f.name) for f in fields(self)} | changes)


class FixedPoints(NamedTuple):
    """Cosines that a block leaves as they are, ascending; rho = 1 is always the last."""

    rho: np.ndarray
    slope: np.ndarray
    stable: np.ndarray  # |slope| < 1


def propagate(
    rho0: Numbers, block: Block, depth: int, T: float | None = None, overlaps: str | None = None
) -> jax.Array:
    """(depth+1, *broadcast shape) cosines, entry 0 is rho0."""
    T, overlaps = _checked(block, T, overlaps, rho0=rho0)
    check_count("depth", depth)
    rho0, block = _broadcast(rho0, block)
    return _propagate(rho0, block, depth, T, overlaps)


def block_map(
    rho: Numbers, block: Block, T: float | None = None, overlaps: str | None = None
) -> jax.Array:
    """The cosine after one block: propagate(rho, block, 1)[1], differentiable also at rho = 1."""
    T, overlaps = _checked(block, T, overlaps, rho=rho)
    return _block_map(*_broadcast(rho, block), T, overlaps)


def critical_alpha(
    beta: Numbers,
    block: Block,
    depth: int,
    T: float | None = None,
    epsilon: Numbers = 0.01,
    overlaps: str | None = None,
) -> jax.Array:
    """The smallest alpha_SA for which tokens that start orthogonal have not collapsed at `depth`.

    beta and the alpha searched replace block.beta and block.alpha_sa; collapse is rho_depth > 1 -
    epsilon. By bisection in [0, 1000]: inf when no alpha works, 0 when it never collapses. The
    gradient is that of the implicit function.
    """
    block = block.replace(beta=beta, alpha_sa=0.0)
    T, overlaps = _checked(block, T, overlaps)
    check_count("depth", depth)
    check_range("epsilon", epsilon, 0, 1)
    return _critical_alpha(*_broadcast(epsilon, block), depth, T, overlaps)


def fixed_points(
    block: Block, T: float | None = None, overlaps: str | None = None, grid: int = 2001
) -> FixedPoints:
    """All fixed points of one block (scalar fields) and their stability; not for traced values."""
    rho = np.linspace(0, 1, grid)
    excess = np.asarray(block_map(rho, block, T, overlaps)) - rho
    left = np.flatnonzero((excess[:-2] == 0) | (excess[:-2] * excess[1:-1] < 0))
    low, high, sign = rho[left], rho[left + 1], np.sign(excess[left])
    for _ in range(50 if len(left) else 0):
        middle = (low + high) / 2
        same = np.sign(np.asarray(block_map(middle, block, T, overlaps)) - middle) == sign
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    roots = np.append(np.where(sign == 0, rho[left], (low + high) / 2), 1.0)
    slope = np.asarray(jax.vmap(jax.grad(lambda r: block_map(r, block, T, overlaps)))(roots))
    return FixedPoints(roots, slope, np.abs(slope) < 1)


def effective_beta(init_std: Numbers, width: int, length: int) -> jax.Array:
    """beta of query and key matrices with entries of deviation init_std and fan-in `width`.

    A score q.k / sqrt(d_head) of normalised tokens has deviation init_std^2 width whatever the
    number of heads, so beta = init_std^2 width / sqrt(ln T): 0.123 for BERT at T = 512.
    """
    check_range("init_std", init_std, 0)
    check_count("width", width)
    check_count("length", length, 2)
    return jnp.asarray(init_std, float) ** 2 * (width / np.log(length) ** 0.5)


def effective_beta_paper(init_std: Numbers, d_head: int, length: int) -> jax.Array:
    """The paper's B.1: init_std^2 d_head / sqrt(ln T), too low by the number of heads."""
    return effective_beta(init_std, d_head, length)


# The map -----------------------------------------------------------------------------------------


@partial(jax.jit, static_argnames=("depth", "T", "overlaps"))
def _propagate(rho0, block, depth, T, overlaps):
    block_of = _step(block, T, overlaps)

    def step(rho, _):
        rho = block_of(rho)
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

    def collapsed(alpha):
        return cosine(alpha, block) > 1 - epsilon

    def halve(_, bracket):
        low, high = bracket
        middle = (low + high) / 2
        inside = collapsed(middle)
        return jnp.where(inside, middle, low), jnp.where(inside, high, middle)

    zero, largest = jnp.zeros_like(epsilon), jnp.full_like(epsilon, LARGEST_ALPHA)
    always, never = collapsed(largest), ~collapsed(zero)
    alpha = jax.lax.stop_gradient(jax.lax.fori_loop(0, 52, halve, (zero, largest))[1])
    # The value stays; d alpha = (d epsilon-threshold - d rho_depth) / (d rho_depth / d alpha).
    _, slope = jax.jvp(
        partial(cosine, block=jax.lax.stop_gradient(block)), (alpha,), (alpha * 0 + 1,)
    )
    slope = jax.lax.stop_gradient(jnp.where(slope < 0, slope, -1.0))
    miss = 1 - epsilon - cosine(alpha, block)
    alpha = alpha + (miss - jax.lax.stop_gradient(miss)) / slope
    return jnp.where(always, jnp.inf, jnp.where(never, 0.0, alpha))


def _step(block: Block, T: float | None, overlaps: str) -> Callable[[jax.Array], jax.Array]:
    """rho -> rho' of one block; everything that does not depend on rho is computed here."""
    sigma_u2 = block.sigma_w2 if block.sigma_u2 is None else block.sigma_u2
    q1 = jnp.asarray(block.sigma_w2 + block.sigma_b2, float)
    square, kernel = second_moments(block.activation, q1)
    q2 = sigma_u2 * square + block.sigma_b2
    alpha_sa2, alpha_mlp2 = block.alpha_sa**2, block.alpha_mlp**2

    @partial(jax.checkpoint, prevent_cse=False)  # else every layer keeps its Chebyshev terms
    def step(rho):
        y_q, y_p = overlap_pair(block.beta, rho, T, overlaps)
        q = block.sigma_v2 * ((1 - rho) * y_q + rho) + alpha_sa2
        p = block.sigma_v2 * ((1 - rho) * y_p + rho) + alpha_sa2 * rho
        r0 = ratio(p, q, jnp)
        c = ratio(block.sigma_w2 * r0 + block.sigma_b2, q1, jnp)
        p2 = sigma_u2 * kernel(c) + block.sigma_b2
        out = ratio(p2 + alpha_mlp2 * r0, q2 + alpha_mlp2, jnp)
        return out - jax.lax.stop_gradient(jnp.maximum(out - 1, 0))  # rounding may give more than 1

    return step


def overlap_pair(
    beta: Numbers, rho: Numbers, T: Any, overlaps: str
) -> tuple[jax.Array, jax.Array | float]:
    """Y_q, Y_p by the theory named."""
    if overlaps == "exact":
        return rem.self_overlap(beta, rho, T), rem.cross_overlap(beta, rho, T)
    if overlaps == "heuristic":
        return rem.self_overlap_heuristic(beta, rho, T), 0.0
    return rem.self_overlap(beta, rho), 0.0


# Checks ------------------------------------------------------------------------------------------


def _checked(block: Block, T: float | None, overlaps: str | None, **cosines) -> tuple[Any, str]:
    """T as a float or None, and the name of the overlaps, after every check."""
    for name, value in cosines.items():
        check_range(name, value, 0, 1)
    for f in fields(block):
        value = getattr(block, f.name)
        if f.name != "activation" and value is not None:
            check_range(f.name, value, 0)
            check_range(f.name, value, 0, LARGEST)
    activation_function(block.activation)
    overlaps = overlaps or ("limit" if T is None else "exact")
    if overlaps not in OVERLAPS:
        raise unknown("overlaps", overlaps, OVERLAPS)
    if T is None and overlaps != "limit":
        raise UserError(f'overlaps="{overlaps}" needs the number of tokens T; got T=None.')
    return None if T is None else rem.number_of_tokens(T), overlaps


def _broadcast(first, block: Block) -> tuple[jax.Array, Block]:
    """`first` in the shape of everything; the block's fields with its rank, not its shape."""
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
