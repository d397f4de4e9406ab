"""Gradient flow of the linear associative memory, and its low-rank approximations: Theorem 3.

**Setting** (arXiv 2406.03068, Assumptions G.1 and G.2). The input x is uniform over n values. The
label y is x with probability 1 - alpha, and the noise label n + 1 otherwise. The logits of x are
u W e_x with orthonormal embeddings. W starts at zero and follows dW/dt = -grad of the mean
cross-entropy.

**Reduction.** By symmetry two numbers describe W: a is the logit of a wrong label and b the logit
of the noise, both minus the logit of the correct label. With S = 1 + (n-1) e^a + e^b the flow of W
is

    kind "weights":       n a' = [1 - e^a]/S - (1 - alpha)
                          n b' = [1 - e^b]/S - (1 - 2 alpha).

The paper's (44) and (45) are the flow of the coordinates of W = beta1 B1 + beta2 B2, for n = 2:

    kind "coordinates":   a' =  2 [(alpha - 2) e^a + (alpha - 1) e^b + alpha]/S
                          b' = 10 [(alpha - 1/5) e^a + (alpha - 1) e^b + alpha]/S.

This flow differs from the flow of W: the squared norms of B1 and B2 are 4 and 12, so the relative
speed of the coordinates is wrong by a factor 3.

**Late times.** b approaches log(alpha/(1-alpha)) quasi-statically, and e^a ~ C/t. Lemma H.3 sets
(alpha-1) e^b + alpha to 0, but this term is of the order of e^a. The constant is therefore

    weights      C = 2n/((n+1)(1-alpha))
    coordinates  C = 5/(18 (1-alpha))

and not the paper's 1/((1-alpha)(4 - 2 alpha)).

**Singular values of W.** sigma_signal = -a occurs n - 1 times, and
sigma_noise = |n b - (n-1) a|/sqrt(n+1) once. For n >= 4 the noise is the largest at late times,
because n - 1 > sqrt(n + 1); the paper's extension of Theorem 3 to any n fails there. To first order
the noise becomes the largest at t = C exp(n |b|/(n - 1 - sqrt(n + 1))), where
b = log(alpha/(1-alpha)).

diffrax is a dependency because the flow is stiff: it needs an implicit solver that jit and vmap
accept, and SciPy's solvers accept neither.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError, unknown
from theory.numerics import Numbers, check_count, check_range, in_float64, is_concrete

KINDS = ("weights", "coordinates")


class Flow(NamedTuple):
    """Logits of a wrong label (a) and of the noise (b), minus the logit of the correct label."""

    a: jax.Array
    b: jax.Array


class Memory(NamedTuple):
    """The memory along the flow; each field has shape (*alpha, *times).

    a, b: logits as in `Flow`. sigma_signal, sigma_noise: singular values of W. correct, noise:
    probabilities of the correct and of the noise label. truncated_correct, truncated_noise: the
    same after truncation of W to a low rank.

    A truncation that keeps some of the n - 1 equal signal directions depends on their basis. Then
    `predict` returns nan, and `measure` the mean over inputs for the basis that its SVD returned.
    """

    a: jax.Array
    b: jax.Array
    sigma_signal: jax.Array
    sigma_noise: jax.Array
    correct: jax.Array
    noise: jax.Array
    truncated_correct: jax.Array
    truncated_noise: jax.Array


@in_float64
def gradient_flow(
    alpha: Numbers, times: Numbers | Sequence[float], n: int = 2, kind: str = "weights"
) -> Flow:
    """Solves the reduced flow with an implicit solver in log(1 + t).

    Args:
        alpha: probabilities of the noise label, of any shape.
        times: times of the flow, of any shape and order. One unit of time is a step of gradient
            descent with learning rate 1.
        n: number of inputs, at least 2.
        kind: "weights" (the flow of W) or "coordinates" (the paper's (45), n = 2 only).

    Returns:
        a(t) and b(t), (*alpha.shape, *times.shape) each.

    Example:
        >>> a, b = gradient_flow(0.3, [1e4, 1e6])
        >>> jnp.exp(a) * jnp.array([1e4, 1e6])  # 4/(3 (1 - alpha)) = 1.9048
        Array([1.90642436, 1.90479244], dtype=float64)
    """
    _check_arguments(alpha, times, n, kind)
    alpha, times = jnp.asarray(alpha, float), jnp.asarray(times, float)
    flat = _solve_logits(alpha.reshape(-1), times.reshape(-1), n, kind == "weights")
    return Flow(*(x.reshape(alpha.shape + times.shape) for x in flat))


@in_float64
def predict(
    alpha: Numbers,
    times: Numbers | Sequence[float],
    n: int = 2,
    rank: int | None = None,
    kind: str = "weights",
) -> Memory:
    """Returns the memory from the reduced flow and closed forms of its truncation.

    Args:
        alpha, times, n, kind: as in `gradient_flow`.
        rank: rank of the truncation, n - 1 by default.
    """
    rank = _checked_rank(rank, n)
    a, b = gradient_flow(alpha, times, n, kind)
    signal, noise = singular_values(a, b, n)
    return Memory(a, b, signal, noise, *probabilities(a, b, n), *truncated(a, b, n, rank))


@in_float64
def measure(
    key: jax.Array,
    alpha: Numbers,
    times: Numbers | Sequence[float],
    n: int = 2,
    rank: int | None = None,
    kind: str = "weights",
) -> Memory:
    """Returns the memory from the flow of the whole matrix W, by automatic differentiation and SVD.

    The embeddings are random orthonormal vectors in dimension n + 2, drawn from `key`. The kind
    "coordinates" follows (beta1, beta2) instead of W. Other arguments as in `predict`.
    """
    rank = _checked_rank(rank, n)
    _check_arguments(alpha, times, n, kind)
    alpha, times = jnp.asarray(alpha, float), jnp.asarray(times, float)
    flat = _solve_matrix(key, alpha.reshape(-1), times.reshape(-1), n, rank, kind)
    return Memory(*(x.reshape(alpha.shape + times.shape) for x in flat))


@in_float64
def asymptotic_constant(alpha: Numbers, n: int = 2, kind: str = "weights") -> jax.Array:
    """Returns C of e^a ~ C/t at late times. Args as in `gradient_flow`."""
    _check_arguments(alpha, 0.0, n, kind)
    constant = 2 * n / (n + 1) if kind == "weights" else 5 / 18
    return constant / (1 - jnp.asarray(alpha, float))


@in_float64
def singular_values(a: Numbers, b: Numbers, n: int) -> tuple[jax.Array, jax.Array]:
    """Returns the singular values sigma_signal (n - 1 times) and sigma_noise (once) of W.

    Args:
        a, b: logits of a wrong label and of the noise, as in `Flow`.
        n: the number of inputs, and of labels without the noise.
    """
    return -jnp.asarray(a), jnp.abs(n * b - (n - 1) * a) / (n + 1) ** 0.5


@in_float64
def probabilities(a: Numbers, b: Numbers, n: int) -> tuple[jax.Array, jax.Array]:
    """Returns the probabilities of the correct and of the noise label for the whole W."""
    total = 1 + (n - 1) * jnp.exp(a) + jnp.exp(b)
    return 1 / total, jnp.exp(b) / total


@in_float64
def truncated(a: Numbers, b: Numbers, n: int, rank: int) -> tuple[jax.Array, jax.Array]:
    """Returns P(correct) and P(noise) after truncation of W to `rank`.

    Rank 0 removes all of W, and rank n or more keeps all of it. At ranks between them, the results
    are nan if they depend on the basis of the equal signal directions. Two cases do not:

    * rank n - 1 and sigma_noise the smallest: the signal alone remains. The logits are -a (1 - 1/n)
      for the correct label, a/n for a wrong one and 0 for the noise.
    * rank 1 and sigma_noise the largest: the noise alone remains. The logits are
      z = (n b - (n-1) a)/(n+1) for the noise and -z/n for all others.

    Args:
        a, b: logits of a wrong label and of the noise, as in `Flow`.
        n: the number of inputs, and of labels without the noise.
        rank: the number of singular values of W that are kept.
    """
    zero = jnp.zeros_like(a)
    if rank == 0:
        return probabilities(zero, zero, n)
    if rank >= n:
        return probabilities(a, b, n)
    signal, noise = singular_values(a, b, n)
    z = (n * b - (n - 1) * a) / (n + 1)
    undefined = (jnp.full_like(a, jnp.nan),) * 2
    if_noise_largest = probabilities(zero, z * (1 + 1 / n), n) if rank == 1 else undefined
    if_noise_smallest = probabilities(a, a * (1 - 1 / n), n) if rank == n - 1 else undefined
    p_correct, p_noise = (
        jnp.where(noise > signal, x, y) for x, y in zip(if_noise_largest, if_noise_smallest)
    )
    return p_correct, p_noise


@in_float64
def cross_entropy(logits_JxN: jax.Array, alpha: Numbers) -> jax.Array:
    """Returns the mean over inputs of -sum_y p(y|x) log softmax.

    The columns of the logits are inputs. Row i is the correct label of input i, the last row is the
    noise.
    """
    log_p = jax.nn.log_softmax(logits_JxN, axis=0)
    return -((1 - alpha) * jnp.diagonal(log_p) + alpha * log_p[-1]).mean()


def _speeds(state: Flow, alpha, n, of_weights) -> Flow:
    """Returns (a', b') of the module's equations, without the cancellation in 1/S - (1 - alpha)."""
    wrong, noise = jnp.exp(state.a), jnp.exp(state.b)
    total = 1 + (n - 1) * wrong + noise
    a_weights = (alpha - (1 - alpha) * ((n - 1) * wrong + noise) - wrong) / n
    b_weights = (2 * alpha - (1 - 2 * alpha) * ((n - 1) * wrong + noise) - noise) / n
    a_coordinates = 2 * ((alpha - 2) * wrong + (alpha - 1) * noise + alpha)
    b_coordinates = 10 * ((alpha - 0.2) * wrong + (alpha - 1) * noise + alpha)
    return Flow(
        jnp.where(of_weights, a_weights, a_coordinates) / total,
        jnp.where(of_weights, b_weights, b_coordinates) / total,
    )


def _implicit_flow(speed, start, times):
    """Solves dy/dt = speed(y) at `times` in s = log(1 + t), in which the late flow is smooth."""
    import diffrax

    order = jnp.argsort(times)
    log_times = jnp.log1p(times[order])

    def in_log_time(s, y, args):
        return jax.tree.map(lambda x: jnp.exp(s) * x, speed(y))

    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(in_log_time),
        diffrax.Kvaerno5(),
        t0=0.0,
        t1=log_times[-1],
        dt0=1e-4,
        y0=start,
        saveat=diffrax.SaveAt(ts=log_times),
        stepsize_controller=diffrax.PIDController(rtol=1e-8, atol=1e-10),
        max_steps=100_000,
    )
    return jax.tree.map(lambda x: x[jnp.argsort(order)], solution.ys)


# n and `of_weights` are traced, so that they share one program: compiling the solver takes seconds.
@jax.jit
def _solve_logits(alpha, times, n, of_weights):
    def solve(alpha):
        start = Flow(jnp.zeros(()), jnp.zeros(()))
        return _implicit_flow(lambda y: _speeds(y, alpha, n, of_weights), start, times)

    return jax.vmap(solve)(alpha)


@functools.partial(jax.jit, static_argnums=(3, 4, 5))
def _solve_matrix(key, alpha, times, n, rank, kind):
    d = n + 2
    key_e, key_u = jax.random.split(key)
    e_DxN = jax.random.orthogonal(key_e, d)[:, :n]
    u_JxD = jax.random.orthogonal(key_u, d)[: n + 1]
    # B1 and B2 of (43) in these embeddings, for kind "coordinates" (n = 2).
    ones_JxN = jnp.pad(jnp.ones((n, n)), ((0, 1), (0, 0)))  # 0 in the row of the noise label
    b1 = u_JxD.T @ (jnp.eye(n + 1, n) * 2 - ones_JxN) @ e_DxN.T
    last_J = jnp.ones(n + 1).at[-1].set(-float(n))
    b2 = u_JxD.T @ jnp.outer(last_J, jnp.ones(n)) @ e_DxN.T

    def matrix(state):
        return state if kind == "weights" else state[0] * b1 + state[1] * b2

    def solve(alpha):
        def loss(state):
            return cross_entropy(u_JxD @ matrix(state) @ e_DxN, alpha)

        start = jnp.zeros((d, d)) if kind == "weights" else jnp.zeros(2)
        states = _implicit_flow(lambda y: -jax.grad(loss)(y), start, times)
        return jax.vmap(memory_of)(states)

    def memory_of(state):
        w_DxD = matrix(state)
        logits = u_JxD @ w_DxD @ e_DxN
        left, sigma, right = jnp.linalg.svd(w_DxD)
        truncated_DxD = (left[:, :rank] * sigma[None, :rank]) @ right[:rank]
        # Right singular vectors of W: the sum of all inputs (noise), a difference of two (signal).
        noise_sigma = jnp.linalg.norm(w_DxD @ e_DxN.sum(1)) / n**0.5
        signal_sigma = jnp.linalg.norm(w_DxD @ (e_DxN[:, 0] - e_DxN[:, 1])) / 2**0.5
        a, b = logits[1, 0] - logits[0, 0], logits[n, 0] - logits[0, 0]
        means = []
        for logits_JxN in (logits, u_JxD @ truncated_DxD @ e_DxN):
            p_JxN = jax.nn.softmax(logits_JxN, 0)
            means += [jnp.diagonal(p_JxN).mean(), p_JxN[n].mean()]
        return Memory(a, b, signal_sigma, noise_sigma, *means)

    return jax.vmap(solve)(alpha)


def _checked_rank(rank: int | None, n: int) -> int:
    rank = n - 1 if rank is None else rank
    check_count("rank", rank, 0)
    return rank


def _check_arguments(alpha, times, n: int, kind: str) -> None:
    check_count("n", n, 2)
    check_range("alpha", alpha, 0.0, 1.0)
    check_range("times", times, 0.0)
    if kind not in KINDS:
        raise unknown("kind of flow", kind, KINDS)
    if kind == "coordinates" and n != 2:
        raise UserError(f"kind 'coordinates' is the paper's n = 2 flow (45), got n = {n}.")
    if is_concrete(times) and not np.size(times):
        raise UserError("times must hold at least one time, got none.")
