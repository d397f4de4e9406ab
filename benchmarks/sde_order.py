"""Weak and strong order of the covariance SDE's solver, with the same noise at five step sizes.

    python benchmarks/sde_order.py        about 6 minutes on one core

The noise of a coarse step is the sum of the noises of its fine steps over sqrt(their number).
Differences between step sizes therefore have a much smaller error than the values. The order is p:

    weak    f(dt) is a number of Phi solved with steps dt, and f(dt) - f(dt/2) has the mean
            K (1 - 2^-p) dt^p with a constant K. A weighted fit of its logarithm gives p and its
            error. It uses differences of at least three standard errors.
    strong  the same for E|Phi(dt) - Phi(dt/2)|_F

Phi is the covariance of m tokens at TAU = depth / width.

The last lines compare with two solvers of diffrax on the same equation, written with the square
root of the full covariance: Euler (Ito) and EulerHeun, which takes the equation as Stratonovich.
"""

import functools
import os

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import diffrax
import jax
import jax.numpy as jnp
import numpy as np

from theory import covariance_sde as cs

TAU, FINEST, CHUNK = 1.0, 128, 50_000  # FINEST: steps at ratio 1; CHUNK: paths of a call
RATIOS = (1, 2, 4, 8, 16)  # fine steps per step: dt = TAU * ratio / FINEST
# Phi at tau = 0.
START = np.array([[1.0, 0.8, 0.3], [0.8, 1.0, 0.5], [0.3, 0.5, 1.0]])


@functools.partial(jax.jit, static_argnums=1)
def solve(key: jax.Array, ratio: int) -> jax.Array:
    """Returns Phi(TAU), (CHUNK, m, m). Equal keys have equal Brownian paths at every ratio.

    The solver advances the factor h of Phi = h^T h by two noises: w of the mixing, z of the values.
    P is the axis of paths, M that of tokens.
    """
    m = len(START)
    h = jnp.broadcast_to(cs.square_root(jnp.asarray(START))[None], (CHUNK, m, m))

    def step(h_PxMxM, k):
        def add(i, total):
            return total + jax.random.normal(jax.random.fold_in(key, k * ratio + i), total.shape)

        total = jax.lax.fori_loop(0, ratio, add, jnp.zeros((2, CHUNK, m, m)))
        w_PxMxM, z_PxMxM = total / ratio**0.5
        dt = TAU * ratio / FINEST
        advance = jax.vmap(lambda h, w, z: cs.factor_step(h, w, z, dt))
        return advance(h_PxMxM, w_PxMxM, z_PxMxM), None

    h, _ = jax.lax.scan(step, h, jnp.arange(FINEST // ratio))
    return jnp.swapaxes(h, -1, -2) @ h


def fit(dt: np.ndarray, value: np.ndarray, error: np.ndarray) -> tuple[float, float]:
    """Returns the exponent p of value ~ dt^p and its standard error."""
    is_clear = np.abs(value) > 3 * error
    if is_clear.sum() < 2:
        return np.nan, np.nan
    x = np.log(dt[is_clear])
    y = np.log(np.abs(value[is_clear]))
    weight = (value / error)[is_clear] ** 2
    x = x - (weight * x).sum() / weight.sum()
    spread = (weight * x**2).sum()
    return (weight * x * y).sum() / spread, spread**-0.5


def main(chunks: int = 16) -> None:
    quantities = {
        "weak, log-trace": lambda fine, coarse: cs.log_trace(coarse) - cs.log_trace(fine),
        "weak, rho_12": lambda fine, coarse: cs.correlation(coarse) - cs.correlation(fine),
        "strong": lambda fine, coarse: jnp.linalg.norm(coarse - fine, axis=(-2, -1)),
    }
    gaps = {name: [[] for _ in RATIOS[1:]] for name in quantities}
    for chunk in range(chunks):
        solutions = [solve(jax.random.key(chunk), ratio) for ratio in RATIOS]
        for name, gap in quantities.items():
            for i in range(len(RATIOS) - 1):
                gaps[name][i].append(np.asarray(gap(solutions[i], solutions[i + 1])))
    dt = TAU * np.array(RATIOS[1:]) / FINEST
    print("f(dt) - f(dt/2), with standard errors; dt =", *dt)
    for name, rows in gaps.items():
        samples = [np.concatenate(row) for row in rows]  # all chunks, for each step size
        value = np.array([sample.mean() for sample in samples])
        error = np.array([sample.std() / len(sample) ** 0.5 for sample in samples])
        order, order_error = fit(dt, value, error)
        cells = "  ".join(f"{v:+.5f}({e:.5f})" for v, e in zip(value, error))
        print(f"{name:16s} {cells}   order {order:.2f} +- {order_error:.2f}")
    cross_check()


def cross_check(paths: int = 20_000, tau: float = 0.25, steps: int = 50) -> None:
    """Prints E[Tr/m] and E[log-trace] of this solver, diffrax.Euler and diffrax.EulerHeun."""
    m, upper = len(START), np.triu_indices(len(START))
    p = len(upper[0])  # independent entries of Phi; y_p has them as a vector

    def matrix(y_p):
        phi = jnp.zeros((m, m)).at[upper].set(y_p)
        return phi + jnp.triu(phi, 1).T

    # The square root of the covariance of the noise in y_p.
    def root(t, y_p, args):
        return cs.square_root(cs.covariance(matrix(y_p))).T

    def solve_path(key, solver):
        path = diffrax.VirtualBrownianTree(0.0, tau, 1e-3, (p,), key)
        drift = diffrax.ODETerm(lambda t, y, args: cs.drift(matrix(y))[upper])
        terms = diffrax.MultiTerm(drift, diffrax.ControlTerm(root, path))
        start = jnp.asarray(START)[upper]
        out = diffrax.diffeqsolve(terms, solver, 0.0, tau, tau / steps, start, max_steps=steps + 1)
        return matrix(out.ys[-1])

    keys = jax.random.split(jax.random.key(1), paths)
    ours = cs.predict(jax.random.key(0), START, tau, paths, steps)
    exact = float(cs.mean_trace(START, tau)[0])
    print(f"\ntau = {tau}, {steps} steps: E[Tr/m], exact {exact:.4f}, and E[log-trace]")
    solutions = {"factor step": ours}
    for solver in (diffrax.Euler(), diffrax.EulerHeun()):
        name = f"diffrax.{type(solver).__name__}"
        solutions[name] = jax.jit(jax.vmap(lambda key, s=solver: solve_path(key, s)))(keys)
    for name, phi in solutions.items():
        trace = np.asarray(jnp.trace(phi, axis1=1, axis2=2)) / m
        log = np.log(trace[trace > 0])
        cells = [f"{x.mean():.4f} +- {x.std() / len(x) ** 0.5:.4f}" for x in (trace, log)]
        print(f"{name:20s} {cells[0]:>18s} {cells[1]:>20s}")


if __name__ == "__main__":
    with jax.enable_x64(True):
        main()
