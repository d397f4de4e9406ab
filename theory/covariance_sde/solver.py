"""A solver of the covariance SDE (Theorem 2.1), whose coefficients are in `coefficients`.

It evolves a factor, Phi = H^T H, by two products with Gaussian matrices a step:

    A = sqrt(kappa dt/m) (W - Wbar),   H <- (I + c Z) H (I + A) / sqrt(1 + m c^2)

with W, Z iid N(0, 1) (m x m) and W centred per column over the entries its token sees. Then
E[Phi'] = Phi + drift dt exactly, masked or not, because E[A^T Phi A] is the drift. To first order
c^2 = dt/2; 1 + m c^2 = (1 - m dt)^{-1/2} makes the value noise dt (Phi^ac Phi^bd + Phi^ad Phi^bc)
exactly, so that a step has the mean and the covariance of one layer of width 1/dt, and the weak
error, of order 1, is about a fifth of that of c^2 = dt/2. A step costs O(m^3), and H^T H is
positive semi-definite whatever dt is. Twice the variance of Z gives the output projection.

Why not a library solver: diffrax solves dy = f dt + g(y) dB with an explicit g, which here is the
square root of a p x p matrix, p = m(m+1)/2, hence O(m^6) a step; and its additive updates leave the
cone of positive semi-definite matrices. The equation is Ito: diffrax.EulerHeun and .Heun would
solve another one. diffrax.Euler serves as the cross-check (tests, benchmarks/sde_order.py).
"""

import functools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError
from theory.covariance_sde.coefficients import (
    PLAIN,
    Mixing,
    check_covariance,
    covariance,
    drift,
    mean_quadratic,
    square_root,
)
from theory.numerics import check_count, check_range, is_concrete, states_at


def factor_step(
    h_MxM: jax.Array,
    w_MxM: jax.Array,
    z_MxM: jax.Array,
    dt: float | jax.Array,
    mixing: Mixing = PLAIN,
    kappa: float | jax.Array = 1.0,
) -> jax.Array:
    """One step of the factor H from iid N(0, 1) matrices W (mixing) and Z (value); vmap over paths.

    With H heads the mixing noise has 1/H of the variance, so E[A^T Phi A] is only 1/H of the drift.
    The rest, a non-negative diagonal, is added to Phi, which costs a Cholesky factorisation.
    """
    m = h_MxM.shape[-1]
    heads = mixing.heads
    a_MxM = jnp.sqrt(kappa / heads * dt / m) * centre(w_MxM, mixing.causal)
    h_MxM = h_MxM + h_MxM @ a_MxM
    if heads > 1:
        phi = h_MxM.T @ h_MxM
        rest = (1 - 1 / heads) * kappa * dt / m * mean_quadratic(phi, mixing.causal)
        h_MxM = jnp.linalg.cholesky(phi + jnp.diag(rest)).T
    variance = 2 * dt if mixing.output_projection else dt
    # Too large a step has no exact variance: there c^2 = dt/2, a first-order step like any other.
    exact = jax.lax.rsqrt(1 - jnp.minimum(m * variance, 0.75))
    growth = jnp.where(m * variance <= 0.75, exact, 1 + m * variance / 2)  # 1 + m c^2
    return (h_MxM + jnp.sqrt((growth - 1) / m) * (z_MxM @ h_MxM)) / jnp.sqrt(growth)


def centre(w_MxM: jax.Array, causal: bool) -> jax.Array:
    """W - Wbar: column a loses its mean over the entries (<= a when causal) that token a sees."""
    m = w_MxM.shape[-1]
    if not causal:
        return w_MxM - w_MxM.mean(-2, keepdims=True)
    w_MxM = jnp.triu(w_MxM)
    mean_1xM = w_MxM.sum(-2, keepdims=True) / jnp.arange(1, m + 1, dtype=w_MxM.dtype)[None, :]
    return jnp.triu(w_MxM - mean_1xM)


@dataclass(frozen=True)
class Factor:
    """The step of this module's docstring.

    keep_root: `predict` returns H instead of Phi. At large m or tau the condition number of Phi
    passes 1e16, and eigenvalues must come from the singular values of H.
    """

    keep_root: bool = False

    start = staticmethod(square_root)
    step = staticmethod(factor_step)

    def read(self, h_xMxM: jax.Array) -> jax.Array:
        return h_xMxM if self.keep_root else jnp.swapaxes(h_xMxM, -1, -2) @ h_xMxM


@dataclass(frozen=True)
class Euler:
    """Euler-Maruyama with the square root of the p x p covariance, O(m^6) a step.

    For comparison only: it leaves the cone (negative eigenvalues, biased correlations at tau ~ 1).
    """

    start = read = staticmethod(jnp.asarray)  # the state of a path is Phi itself

    def step(self, phi_MxM, unused_w_MxM, z_MxM, dt, mixing: Mixing, kappa) -> jax.Array:
        """Phi + drift dt + sqrt(dt) (covariance)^{1/2} xi."""
        m = phi_MxM.shape[-1]
        upper = np.triu_indices(m)
        mixing = replace(mixing, scale=jnp.sqrt(kappa / m))  # the s of kappa = m n s^2 at n = 1
        root = square_root(covariance(phi_MxM, mixing, 1))
        noise = jnp.zeros_like(phi_MxM).at[upper].set(root.T @ z_MxM[upper])
        noise = noise + jnp.triu(noise, 1).T
        return phi_MxM + drift(phi_MxM, mixing, 1) * dt + jnp.sqrt(dt) * noise


FACTOR = Factor()


def predict(
    key: jax.Array,
    phi0: jax.Array,
    tau: float | jax.Array,
    paths: int,
    steps: int,
    times: Sequence[float] | np.ndarray | None = None,
    mixing: Mixing = PLAIN,
    width: int | None = None,
    solver: Factor | Euler = FACTOR,
) -> jax.Array:
    """Paths of Phi at tau, (paths, m, m), or at `times` in [0, tau], (paths, len(times), m, m).

    `steps` is the number of equal steps of size tau/steps; a requested time between two of them
    splits the step there. `width` is only needed when the scale of `mixing` is a number. A path
    that overflows keeps its inf or nan and, outside of jit, is announced by a warning; `overflowed`
    counts them.
    """
    phi0 = check_covariance("phi0", phi0)
    check_range("tau", tau, 0.0)
    check_count("paths", paths)
    check_count("steps", steps)
    kappa = mixing.rate(phi0.shape[-1], width)
    mixing = replace(mixing, scale="theory")  # kappa is traced: a new number compiles nothing
    steps_dt, stops = _grid(tau, steps, times)
    out = _solve(key, phi0, steps_dt, stops, kappa, paths, mixing, solver)
    if is_concrete(out) and (bad := int(overflowed(out))):
        warnings.warn(
            f"{bad} of {paths} paths overflowed (inf or nan) before tau = {float(tau):g}; "
            "they are returned as they are, leave them out of no mean unseen.",
            RuntimeWarning,
            stacklevel=2,
        )
    return out[:, 0] if times is None else out


def overflowed(phi: jax.Array) -> jax.Array:
    """How many paths (the leading axis) hold an inf or a nan."""
    return (~jnp.isfinite(phi)).any(axis=tuple(range(1, jnp.ndim(phi)))).sum()


def log_trace(phi: jax.Array) -> jax.Array:
    """log(Tr(Phi)/m)."""
    return jnp.log(jnp.trace(phi, axis1=-2, axis2=-1) / phi.shape[-1])


def correlation(phi: jax.Array, a: int = 0, b: int = 1) -> jax.Array:
    """rho_ab = Phi^ab / sqrt(Phi^aa Phi^bb)."""
    return phi[..., a, b] / jnp.sqrt(phi[..., a, a] * phi[..., b, b])


@functools.partial(jax.jit, static_argnums=(5, 6, 7))
def _solve(key, phi0, steps_dt, stops, kappa, paths, mixing: Mixing, solver: Factor | Euler):
    m = phi0.shape[-1]

    def advance(k, state_PxMxM):
        normals = _two_normals(jax.random.fold_in(key, k), (paths, m, m), phi0.dtype)
        step = jax.vmap(lambda x, w, z: solver.step(x, w, z, steps_dt[k], mixing, kappa))
        return step(state_PxMxM, *normals)

    start_PxMxM = jnp.broadcast_to(solver.start(phi0)[None], (paths, m, m))
    # Only the requested times are stored: 300 states of 1,000 paths at m = 64 are 10 GB.
    saved_SxPxMxM = states_at(stops, advance, start_PxMxM, lambda state_PxMxM: state_PxMxM)
    return solver.read(jnp.swapaxes(saved_SxPxMxM, 0, 1))


def _two_normals(key, shape, dtype) -> tuple[jax.Array, jax.Array]:
    """Two arrays of N(0, 1), drawn in float32 and cast: the state stays float64.

    Noise is most of a step. In float64, one block of the generator holds two float32 draws, and
    jax.random.normal uses half of it: this takes 0.55 of its CPU time, and a fifth of float64's.
    """
    if dtype != jnp.float64:
        return tuple(jax.random.normal(key, (2, *shape), dtype))
    bits = jax.random.bits(key, shape, jnp.uint64)
    halves = (bits >> 32).astype(jnp.uint32), bits.astype(jnp.uint32)

    def normal(half):  # 23 bits of mantissa: a midpoint of 2^23 cells of (-1, 1)
        exponent_one = (half >> 9) | jnp.uint32(0x3F800000)
        in_1_to_2 = jax.lax.bitcast_convert_type(exponent_one, jnp.float32)
        cells = 2 * (in_1_to_2 - 1) - jnp.float32(1 - 2**-23)
        return (jnp.sqrt(jnp.float32(2)) * jax.lax.erf_inv(cells)).astype(dtype)

    return normal(halves[0]), normal(halves[1])


def _grid(tau, steps: int, times) -> tuple[jax.Array, jax.Array]:
    """Step sizes, and for every requested time the number of steps that lead to it."""
    if times is None:
        return jnp.full((steps,), tau / steps), jnp.array([steps])
    if not (is_concrete(times) and is_concrete(tau)):
        raise UserError("times and tau must be numbers, not traced arrays: they set the steps.")
    times = np.asarray(times, float)
    if times.ndim != 1 or not len(times) or (np.diff(times) <= 0).any():
        raise UserError(f"times must be an increasing list of numbers, got {times.tolist()}.")
    check_range("times", times, 0.0, float(tau))
    uniform = np.linspace(0.0, float(tau), steps + 1)
    # A requested time that is a grid point up to round-off must not add a step of size 1e-17.
    nearest = np.abs(uniform[:, None] - times[None, :]).min(-1)
    grid = np.union1d(uniform[nearest > 1e-9 * float(tau)], np.append(times, 0.0))
    grid = grid[grid <= times[-1]]
    return jnp.asarray(np.diff(grid)), jnp.asarray(np.searchsorted(grid, times))
