"""The solver of the covariance SDE (Theorem 2.1), whose coefficients are in `coefficients`.

**Scheme.** A path is a factor H with Phi = H^T H. A step multiplies it by two Gaussian matrices,

    A = sqrt(kappa dt/m) (W - Wbar),     H <- (I + c Z) H (I + A) / sqrt(1 + m c^2)

with W, Z iid N(0, 1), (m, m). Each column of W is centred over the entries that the column's token
sees. A step costs O(m^3), and H^T H is positive semi-definite for every dt.

**Moments.** E[A^T Phi A] is the drift times dt, so E[Phi'] = Phi + drift dt exactly. The choice
1 + m c^2 = (1 - m dt)^{-1/2} gives the noise of the values the covariance
dt (Phi^ac Phi^bd + Phi^ad Phi^bc) exactly. To first order it is c^2 = dt/2. A step then has the
mean and the covariance of one layer of width 1/dt. The weak order is 1, with about a fifth of the
error of c^2 = dt/2. A model with an output projection has twice the variance of Z.

**Why not a library solver?** diffrax solves dy = f dt + g(y) dB with an explicit g. Here g is the
square root of a p x p matrix with p = m(m+1)/2, which costs O(m^6) a step. Its additive updates
also leave the cone of positive semi-definite matrices. The equation is Ito, so diffrax.EulerHeun
and diffrax.Heun would solve another equation. diffrax.Euler is the cross-check in
benchmarks/sde_order.py.
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
    check_covariance,
    covariance,
    drift,
    mean_quadratic,
    square_root,
)
from theory.covariance_sde.mixing import UNMASKED, Mixing
from theory.numerics import check_count, check_range, in_float64, is_concrete, states_at


@in_float64
def factor_step(
    h_MxM: jax.Array,
    w_MxM: jax.Array,
    z_MxM: jax.Array,
    dt: float | jax.Array,
    mixing: Mixing = UNMASKED,
    kappa: float | jax.Array = 1.0,
) -> jax.Array:
    """Advances the factor of one path by a step; use vmap for several paths.

    With several heads the mixing noise has 1/heads of the variance, so E[A^T Phi A] is 1/heads of
    the drift. The remainder of the drift is a non-negative diagonal. It is added to Phi at the
    cost of a Cholesky factorisation.

    Args:
        h_MxM: factor H with Phi = H^T H.
        w_MxM: iid N(0, 1) entries, the noise of the mixing.
        z_MxM: iid N(0, 1) entries, the noise of the values.
        dt: step of tau.
        mixing: variant of MixiT.
        kappa: mixing variance in units of 1/(n m).
    """
    m = h_MxM.shape[-1]
    heads = mixing.heads
    a_MxM = jnp.sqrt(kappa / heads * dt / m) * centre(w_MxM, mixing.causal)
    h_MxM = h_MxM + h_MxM @ a_MxM
    if heads > 1:
        phi = h_MxM.T @ h_MxM
        remainder = (1 - 1 / heads) * kappa * dt / m * mean_quadratic(phi, mixing.causal)
        h_MxM = jnp.linalg.cholesky(phi + jnp.diag(remainder)).T
    variance = 2 * dt if mixing.output_projection else dt
    # A step with m dt > 0.75 uses the first-order c^2 = dt/2, because 1 - m dt must be positive.
    exact = jax.lax.rsqrt(1 - jnp.minimum(m * variance, 0.75))
    growth = jnp.where(m * variance <= 0.75, exact, 1 + m * variance / 2)  # 1 + m c^2
    return (h_MxM + jnp.sqrt((growth - 1) / m) * (z_MxM @ h_MxM)) / jnp.sqrt(growth)


def centre(w_MxM: jax.Array, causal: bool) -> jax.Array:
    """Returns W - Wbar: subtracts from column a its mean over the entries that token a sees."""
    m = w_MxM.shape[-1]
    if not causal:
        return w_MxM - w_MxM.mean(-2, keepdims=True)
    w_MxM = jnp.triu(w_MxM)
    mean_1xM = w_MxM.sum(-2, keepdims=True) / jnp.arange(1, m + 1, dtype=w_MxM.dtype)[None, :]
    return jnp.triu(w_MxM - mean_1xM)


@dataclass(frozen=True)
class Factor:
    """The scheme of the module docstring: a path is a factor H with Phi = H^T H.

    `start` maps Phi to H, and `read` maps H to what `predict` returns.

    keep_root: whether `predict` returns H instead of Phi. At large m or tau the condition number of
    Phi exceeds 1e16. Its eigenvalues must then be computed from the singular values of H.
    """

    keep_root: bool = False

    start = staticmethod(square_root)
    step = staticmethod(factor_step)

    def read(self, h_xMxM: jax.Array) -> jax.Array:
        return h_xMxM if self.keep_root else jnp.swapaxes(h_xMxM, -1, -2) @ h_xMxM


@dataclass(frozen=True)
class Euler:
    """The Euler-Maruyama step with the square root of the p x p covariance, O(m^6) a step.

    It is for comparison only: it leaves the cone of positive semi-definite matrices, and its
    correlations are biased at tau ~ 1.
    """

    start = read = staticmethod(jnp.asarray)  # a path is Phi itself

    def step(self, phi_MxM, unused_w_MxM, z_MxM, dt, mixing: Mixing, kappa) -> jax.Array:
        """Returns Phi + drift dt + sqrt(dt) (covariance)^{1/2} z, z the upper triangle of Z."""
        m = phi_MxM.shape[-1]
        upper = np.triu_indices(m)
        mixing = replace(mixing, scale=jnp.sqrt(kappa / m))  # solves kappa = m n s^2 with n = 1
        root = square_root(covariance(phi_MxM, mixing, 1))
        noise = jnp.zeros_like(phi_MxM).at[upper].set(root.T @ z_MxM[upper])
        noise = noise + jnp.triu(noise, 1).T
        return phi_MxM + drift(phi_MxM, mixing, 1) * dt + jnp.sqrt(dt) * noise


FACTOR = Factor()


@in_float64
def predict(
    key: jax.Array,
    phi0: jax.Array,
    tau: float | jax.Array,
    paths: int,
    steps: int,
    times: Sequence[float] | np.ndarray | None = None,
    mixing: Mixing = UNMASKED,
    width: int | None = None,
    solver: Factor | Euler = FACTOR,
) -> jax.Array:
    """Samples paths of Phi from the covariance SDE.

    A path that overflows has inf or nan entries in the result. Outside of jit a warning reports
    how many paths did; `overflowed` counts them.

    Args:
        key: PRNG key.
        phi0: covariance of the input tokens, (m, m).
        tau: end of the paths, depth divided by width.
        paths: number of paths.
        steps: number of steps of size tau/steps. A requested time between two steps splits one.
        times: increasing times in [0, tau] to return; only `tau` by default.
        mixing: variant of MixiT.
        width: n, needed if the scale of `mixing` is a number.
        solver: `Factor` or `Euler`.

    Returns:
        Phi at tau, (paths, m, m), or at `times`, (paths, len(times), m, m).

    Example:
        >>> phi0 = jnp.array([[1.0, 0.5], [0.5, 1.0]])
        >>> predict(jax.random.key(0), phi0, tau=0.5, paths=1000, steps=50).shape
        (1000, 2, 2)
    """
    phi0 = check_covariance("phi0", phi0)
    check_range("tau", tau, 0.0)
    check_count("paths", paths)
    check_count("steps", steps)
    kappa = mixing.kappa(phi0.shape[-1], width)
    step_sizes, stops = _time_grid(tau, steps, times)
    phi = _solve(key, phi0, step_sizes, stops, kappa, paths, mixing.without_scale(), solver)
    if is_concrete(phi) and (count := int(overflowed(phi))):
        warnings.warn(
            f"{count} of {paths} paths overflowed (inf or nan) before tau = {float(tau):g}. "
            "The result contains them: exclude them from averages.",
            RuntimeWarning,
            stacklevel=3,  # the caller of `in_float64`
        )
    return phi[:, 0] if times is None else phi


def overflowed(phi: jax.Array) -> jax.Array:
    """Returns the number of paths (the leading axis) with an inf or a nan."""
    return (~jnp.isfinite(phi)).any(axis=tuple(range(1, jnp.ndim(phi)))).sum()


@in_float64
def log_trace(phi: jax.Array) -> jax.Array:
    """Returns log(Tr(Phi)/m)."""
    return jnp.log(jnp.trace(phi, axis1=-2, axis2=-1) / phi.shape[-1])


@in_float64
def correlation(phi: jax.Array, a: int = 0, b: int = 1) -> jax.Array:
    """Returns the correlation Phi^ab / sqrt(Phi^aa Phi^bb) of tokens a and b."""
    return phi[..., a, b] / jnp.sqrt(phi[..., a, a] * phi[..., b, b])


@functools.partial(jax.jit, static_argnums=(5, 6, 7))
def _solve(key, phi0, step_sizes, stops, kappa, paths, mixing: Mixing, solver: Factor | Euler):
    m = phi0.shape[-1]

    def advance(k, state_PxMxM):
        normals = _two_normals(jax.random.fold_in(key, k), (paths, m, m), phi0.dtype)
        step = jax.vmap(lambda x, w, z: solver.step(x, w, z, step_sizes[k], mixing, kappa))
        return step(state_PxMxM, *normals)

    start_PxMxM = jnp.broadcast_to(solver.start(phi0)[None], (paths, m, m))
    # Store the requested times only: 300 states of 1,000 paths at m = 64 need 10 GB.
    saved_SxPxMxM = states_at(stops, advance, start_PxMxM, lambda state_PxMxM: state_PxMxM)
    return solver.read(jnp.swapaxes(saved_SxPxMxM, 0, 1))


def _two_normals(key, shape, dtype) -> tuple[jax.Array, jax.Array]:
    """Returns two arrays of N(0, 1), drawn in float32 and cast to `dtype`.

    Noise is most of the cost of a step. One block of the generator has bits for two float32 draws,
    of which jax.random.normal uses one. Using both takes 0.55 of its CPU time, and a fifth of the
    time of float64 draws.
    """
    if dtype != jnp.float64:
        return tuple(jax.random.normal(key, (2, *shape), dtype))
    bits = jax.random.bits(key, shape, jnp.uint64)
    halves = (bits >> 32).astype(jnp.uint32), bits.astype(jnp.uint32)

    # 23 bits of mantissa select the midpoint of one of 2^23 cells of (-1, 1).
    def normal(half):
        exponent_one = (half >> 9) | jnp.uint32(0x3F800000)
        in_1_to_2 = jax.lax.bitcast_convert_type(exponent_one, jnp.float32)
        cells = 2 * (in_1_to_2 - 1) - jnp.float32(1 - 2**-23)
        return (jnp.sqrt(jnp.float32(2)) * jax.lax.erf_inv(cells)).astype(dtype)

    return normal(halves[0]), normal(halves[1])


def _time_grid(tau, steps: int, times) -> tuple[jax.Array, jax.Array]:
    """Returns the step sizes, and for each requested time the number of steps that lead to it."""
    if times is None:
        return jnp.full((steps,), tau / steps), jnp.array([steps])
    if not (is_concrete(times) and is_concrete(tau)):
        raise UserError("times and tau must be numbers, not traced arrays: they set the steps.")
    times = np.asarray(times, float)
    if times.ndim != 1 or not len(times) or (np.diff(times) <= 0).any():
        raise UserError(f"times must be an increasing list of numbers, got {times.tolist()}.")
    check_range("times", times, 0.0, float(tau))
    uniform = np.linspace(0.0, float(tau), steps + 1)
    # A requested time that equals a grid point up to round-off adds no step of size 1e-17.
    nearest = np.abs(uniform[:, None] - times[None, :]).min(-1)
    grid = np.union1d(uniform[nearest > 1e-9 * float(tau)], np.append(times, 0.0))
    grid = grid[grid <= times[-1]]
    return jnp.asarray(np.diff(grid)), jnp.asarray(np.searchsorted(grid, times))
