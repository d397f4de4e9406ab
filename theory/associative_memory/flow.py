"""Linear associative memory with noise (Theorem 3): gradient flow and what a low rank keeps.

x is uniform on n inputs, y = x with probability 1 - alpha and n + 1 (the noise) otherwise; the
logits are U W E e_x with orthonormal embeddings (Assumption G.1), W(0) = 0 (G.2), and t is the time
of dW/dt = -grad of the MEAN cross-entropy. By symmetry three logits remain; a is that of a wrong
label and b that of the noise, both minus that of the correct one. With S = 1 + (n-1) e^a + e^b,

    weights:      n a' = [1 - e^a]/S - (1 - alpha),    n b' = [1 - e^b]/S - (1 - 2 alpha)
    coordinates:    a' = 2 [(alpha - 2) e^a + (alpha - 1) e^b + alpha]/S                    (45)
     (n = 2)        b' = 10 [(alpha - 1/5) e^a + (alpha - 1) e^b + alpha]/S

The paper's (44), (45) are the flow in the coordinates (beta1, beta2) of W = beta1 B1 + beta2 B2,
not of W: the squared norms 4 and 12 of B1 and B2 make the relative speed wrong by 3. In both, b
goes to log(alpha/(1-alpha)) quasi-statically: (alpha-1) e^b + alpha is of the order of e^a and not
0 as in Lemma H.3, so that the constant of e^a ~ C/t is not its 1/((1-alpha)(4-2 alpha)) but

    weights: C = 2n/((n+1)(1-alpha)), 4/(3(1-alpha)) at n = 2;   coordinates: C = 5/(18(1-alpha)).

Singular values of W: sigma_signal = -a, n - 1 times, and sigma_noise = |n b - (n-1) a|/sqrt(n+1),
once. For n >= 4 the noise ends up first (n - 1 > sqrt(n + 1)): "easy to extend to any N > 2" fails.
To first order it overtakes at t = C exp(n |b|/(n - 1 - sqrt(n + 1))), b = log(alpha/(1-alpha)).
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.core.errors import UserError, unknown
from theory.numerics import Numbers, check_count, check_range, is_concrete

KINDS = ("weights", "coordinates")


class Flow(NamedTuple):
    """Logit of a wrong label (a) and of the noise (b), minus that of the correct label."""

    a: jax.Array
    b: jax.Array


class Memory(NamedTuple):
    """Along the flow: logits, singular values, probabilities of the full and the truncated W.

    A truncation that cuts through the n - 1 equal signal directions depends on the basis: nan in
    `predict`; `measure` gives the mean over inputs of whatever its SVD chose.
    """

    a: jax.Array
    b: jax.Array
    sigma_signal: jax.Array
    sigma_noise: jax.Array
    correct: jax.Array
    noise: jax.Array
    truncated_correct: jax.Array
    truncated_noise: jax.Array


def gradient_flow(
    alpha: Numbers, times: Numbers | Sequence[float], n: int = 2, kind: str = "weights"
) -> Flow:
    """a(t), b(t) of shape (*alpha, *times); the flow is stiff: an implicit solver in log time."""
    _check(alpha, times, n, kind)
    alpha, times = jnp.asarray(alpha, float), jnp.asarray(times, float)
    flat = _solve_logits(alpha.reshape(-1), times.reshape(-1), n, kind == "weights")
    return Flow(*(x.reshape(alpha.shape + times.shape) for x in flat))


def predict(
    alpha: Numbers,
    times: Numbers | Sequence[float],
    n: int = 2,
    rank: int | None = None,
    kind: str = "weights",
) -> Memory:
    """The reduced flow and the closed forms of W's best approximation of `rank` (default n - 1)."""
    rank = n - 1 if rank is None else rank
    check_count("rank", rank, 0)
    a, b = gradient_flow(alpha, times, n, kind)
    signal, noise = singular_values(a, b, n)
    return Memory(a, b, signal, noise, *probabilities(a, b, n), *truncated(a, b, n, rank))


def measure(
    key: jax.Array,
    alpha: Numbers,
    times: Numbers | Sequence[float],
    n: int = 2,
    rank: int | None = None,
    kind: str = "weights",
) -> Memory:
    """The same from the matrix itself: autodiff of the cross-entropy, SVD, random orthonormal
    embeddings in dimension n + 2; kind "coordinates" flows in (beta1, beta2)."""
    rank = n - 1 if rank is None else rank
    check_count("rank", rank, 0)
    _check(alpha, times, n, kind)
    alpha, times = jnp.asarray(alpha, float), jnp.asarray(times, float)
    flat = _solve_matrix(key, alpha.reshape(-1), times.reshape(-1), n, rank, kind)
    return Memory(*(x.reshape(alpha.shape + times.shape) for x in flat))


def asymptotic_constant(alpha: Numbers, n: int = 2, kind: str = "weights") -> jax.Array:
    """C of e^a ~ C/t: 2n/((n+1)(1-alpha)), or 5/(18(1-alpha)) for the paper's coordinates."""
    _check(alpha, 0.0, n, kind)
    constant = 2 * n / (n + 1) if kind == "weights" else 5 / 18
    return constant / (1 - jnp.asarray(alpha, float))


def singular_values(a: Numbers, b: Numbers, n: int) -> tuple[jax.Array, jax.Array]:
    """sigma_signal (n - 1 times) and sigma_noise (once) of W."""
    return -jnp.asarray(a), jnp.abs(n * b - (n - 1) * a) / (n + 1) ** 0.5


def probabilities(a: Numbers, b: Numbers, n: int) -> tuple[jax.Array, jax.Array]:
    """P(correct) and P(noise) of the full W."""
    total = 1 + (n - 1) * jnp.exp(a) + jnp.exp(b)
    return 1 / total, jnp.exp(b) / total


def truncated(a: Numbers, b: Numbers, n: int, rank: int) -> tuple[jax.Array, jax.Array]:
    """P(correct) and P(noise) after truncation to `rank`; nan where it depends on the basis.

    Signal alone (rank n - 1, noise last): logits -a (1 - 1/n), a/n, .., and 0 for the noise.
    Noise alone (rank 1, noise first): logits z for the noise and -z/n, z = (n b - (n-1) a)/(n+1).
    """
    signal, noise = singular_values(a, b, n)
    zero = jnp.zeros_like(a)
    alone_signal = probabilities(a, a * (1 - 1 / n), n)
    z = (n * b - (n - 1) * a) / (n + 1)
    alone_noise = probabilities(zero, z * (1 + 1 / n), n)
    nowhere = (jnp.full_like(a, jnp.nan),) * 2
    if rank == 0:
        return probabilities(zero, zero, n)
    if rank >= n:
        return probabilities(a, b, n)
    first = alone_noise if rank == 1 else nowhere
    last = alone_signal if rank == n - 1 else nowhere
    correct, wrong = (jnp.where(noise > signal, x, y) for x, y in zip(first, last))
    return correct, wrong


def cross_entropy(logits_JxN: jax.Array, alpha: Numbers) -> jax.Array:
    """Mean over inputs of -sum_y p(y|x) log softmax."""
    log_p = jax.nn.log_softmax(logits_JxN, axis=0)
    return -((1 - alpha) * jnp.diagonal(log_p) + alpha * log_p[-1]).mean()


def _speeds(state: Flow, alpha, n, of_weights) -> Flow:
    """(a', b') as in the module's equations, without the cancellation of 1/S - (1 - alpha)."""
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
    """y(times) of dy/dt = speed(y), solved in s = log(1 + t), where the slow flow is smooth."""
    import diffrax

    order = jnp.argsort(times)
    log_times = jnp.log1p(times[order])

    def in_log_time(s, y, args):
        return jax.tree.map(lambda x: jnp.exp(s) * x, speed(y))

    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(in_log_time),
        diffrax.Kvaerno5(),
        0.0,
        log_times[-1],
        1e-4,
        start,
        saveat=diffrax.SaveAt(ts=log_times),
        stepsize_controller=diffrax.PIDController(rtol=1e-8, atol=1e-10),
        max_steps=100_000,
    )
    return jax.tree.map(lambda x: x[jnp.argsort(order)], solution.ys)


@jax.jit  # n and the kind are traced: an implicit solver takes seconds to compile
def _solve_logits(alpha, times, n, of_weights):
    def one(alpha):
        start = Flow(jnp.zeros(()), jnp.zeros(()))
        return _implicit_flow(lambda y: _speeds(y, alpha, n, of_weights), start, times)

    return jax.vmap(one)(alpha)


@functools.partial(jax.jit, static_argnums=(3, 4, 5))
def _solve_matrix(key, alpha, times, n, rank, kind):
    d = n + 2
    key_e, key_u = jax.random.split(key)
    e_DxN = jax.random.orthogonal(key_e, d)[:, :n]
    u_JxD = jax.random.orthogonal(key_u, d)[: n + 1]
    # (43) in the given embeddings; used by kind "coordinates" only, where n = 2.
    b1 = u_JxD.T @ (jnp.eye(n + 1, n) * 2 - jnp.pad(jnp.ones((n, n)), ((0, 1), (0, 0)))) @ e_DxN.T
    last_J = jnp.ones(n + 1).at[-1].set(-float(n))
    b2 = u_JxD.T @ jnp.outer(last_J, jnp.ones(n)) @ e_DxN.T

    def matrix(state):
        return state if kind == "weights" else state[0] * b1 + state[1] * b2

    def one(alpha):
        def loss(state):
            return cross_entropy(u_JxD @ matrix(state) @ e_DxN, alpha)

        start = jnp.zeros((d, d)) if kind == "weights" else jnp.zeros(2)
        states = _implicit_flow(lambda y: -jax.grad(loss)(y), start, times)
        return jax.vmap(describe)(states)

    def describe(state):
        w_DxD = matrix(state)
        logits = u_JxD @ w_DxD @ e_DxN
        left, sigma, right = jnp.linalg.svd(w_DxD)
        low = (left[:, :rank] * sigma[None, :rank]) @ right[:rank]
        # The noise direction is the one that answers the sum of all inputs.
        noise_sigma = jnp.linalg.norm(w_DxD @ e_DxN.sum(1)) / n**0.5
        signal_sigma = jnp.linalg.norm(w_DxD @ (e_DxN[:, 0] - e_DxN[:, 1])) / 2**0.5
        full, cut = jax.nn.softmax(logits, 0), jax.nn.softmax(u_JxD @ low @ e_DxN, 0)
        gaps = logits[1, 0] - logits[0, 0], logits[n, 0] - logits[0, 0]
        means = [x for p in (full, cut) for x in (jnp.diagonal(p).mean(), p[n].mean())]
        return Memory(*gaps, signal_sigma, noise_sigma, *means)

    return jax.vmap(one)(alpha)


def _check(alpha, times, n: int, kind: str) -> None:
    check_count("n", n, 2)
    check_range("alpha", alpha, 0.0, 1.0)
    check_range("times", times, 0.0)
    if kind not in KINDS:
        raise unknown("kind of flow", kind, KINDS)
    if kind == "coordinates" and n != 2:
        raise UserError(f"kind 'coordinates' is the paper's n = 2 flow (45), got n = {n}.")
    if is_concrete(times) and not np.size(times):
        raise UserError("times must hold at least one time, got none.")
