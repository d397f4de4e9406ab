"""Theorem 2 and Appendix B.3: which tokens the attention learns to look at first, and which not.

W_QK = 0 and W_V given; the prediction is frozen at phat = p(y) (Assumption F.1). Then
xi_{k->l} = E(q)^T (-grad W_QK) (E~(k) + E(l)) is, with v_j(t) = V_{j,z_t} + V~_{j,z_{t-1}},

    E sum_j (1{y=j} - phat_j) (1/T) sum_t v_j(t) [1{z_t=l} - n_l/T + 1{z_{t-1}=k} - n~_k/T].

Exact by dynamic programming over pairs of counts. The paper drops the terms k != b_1 as o(T/N),
but N of them are summed, and the event ybar = q enters at the same order, so that the sign of (4)
is another than claimed. With W_V diagonal, (beta1, beta2) on E and E~ ("paper"), or s1 and s2 steps
of the exact gradients of phases 1 and 2 ("exact"), to leading order in 1/N

    xi_{q->j} - xi_{k->l}                          (1-alpha)^2 beta1/N              (3) holds
    xi_{q->j} - xi_{q->tau}
        "paper", ybar ~ U[N]          (1-alpha)^2 [alpha beta1 - (1-alpha) beta2]/N^2
        "paper", ybar != q            alpha (1-alpha)^2 (beta1 + beta2)/N^2
        "exact", ybar ~ U[N]          -(1-alpha)^5 (s1+s2) (1+2 alpha)/alpha /N^4
        "exact", ybar != q            2 alpha (1-alpha)^4 (s1+s2)/N^4

so (4) holds at this order only without the trigger as a target (or at large alpha).
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxformer.core.errors import UserError, unknown
from theory.numerics import Numbers, check_count, check_range
from theory.one_step.trigger_process import check_process, pair_moments, sample

VALUES = ("paper", "exact")


class Setting(NamedTuple):
    """A row of the module's table: what W_V is, its two sizes, and whether ybar may be q.

    `sizes` are (beta1, beta2) with values "paper", (s1, s2) with "exact".
    """

    values: str = "exact"
    sizes: tuple[float, float] = (1.0, 1.0)
    exclude_trigger: bool = False


class Ordering(NamedTuple):
    after_trigger: jax.Array  # xi_{q->j} - xi_{k->l}, Equation (3)
    over_noise: jax.Array  # xi_{q->j} - xi_{q->tau}, Equation (4)


class NoiseMatrices(NamedTuple):
    """Projections of A (mean over k <= N) and B of (7) on E(tau) and on a token's E, times E(q)."""

    A_noise: jax.Array
    A_token: jax.Array
    B_noise: jax.Array
    B_token: jax.Array


def attention_logits(N: int, T: int, alpha: float, setting: Setting) -> Ordering:
    """The exact population gradient."""
    _check(N, T, alpha, setting)
    return _attention_logits(N, T, alpha, *setting)


@functools.partial(jax.jit, static_argnums=(0, 1, 3, 5))  # the sizes are traced
def _attention_logits(N, T, alpha, values, sizes, exclude_trigger):
    moments = _both(N, T, alpha)
    V, V_previous = value_matrix(N, T, alpha, Setting(values, sizes, exclude_trigger))
    phat = _target_probabilities(N, alpha, exclude_trigger)
    current, previous = [], []
    for ybar, pair in enumerate(moments):
        residual = jnp.zeros(N + 1).at[N].set(alpha).at[ybar].add(1 - alpha) - phat
        weight_k, weight_previous_k = residual @ V, residual @ V_previous
        e_q = jnp.zeros(N + 1).at[0].set(1)
        before = pair.mean - e_q  # counts of z_1 .. z_{T-1}
        cross = pair.second - e_q[:, None] * pair.mean[None]  # E n~_k n_b
        both = cross - before[:, None] * e_q[None]  # E n~_k n~_b
        current.append(
            weight_k @ (jnp.diag(pair.mean) / T - pair.second / T**2)
            + weight_previous_k @ (pair.follow / T - cross / T**2)
        )
        previous.append(
            weight_k @ (pair.follow.T / T - cross.T / T**2)
            + weight_previous_k @ (jnp.diag(before) / T - both / T**2)
        )
    g = _over_targets(current, N, exclude_trigger)
    g_previous = _over_targets(previous, N, exclude_trigger)
    # j, l and k are tokens other than q, and xi_{k->l} = g(l) + g~(k).
    return Ordering(g_previous.trigger - g_previous.token, g.token - g.noise)


def attention_logits_limit(N: int, alpha: float, setting: Setting) -> Ordering:
    """The leading orders in the module's table."""
    _check(N, 3, alpha, setting)
    values, sizes, exclude_trigger = setting
    first, second = (jnp.asarray(size, float) for size in sizes)
    keep = 1 - alpha
    if values == "paper":
        after = keep**2 * first / N
        if exclude_trigger:
            return Ordering(after, alpha * keep**2 * (first + second) / N**2)
        return Ordering(after, keep**2 * (alpha * first - keep * second) / N**2)
    after = keep**4 * (first + second) / N**3
    if exclude_trigger:
        return Ordering(after, 2 * alpha * keep**4 * (first + second) / N**4)
    return Ordering(after, -(keep**5) * (first + second) * (1 + 2 * alpha) / alpha / N**4)


def measure_attention_logits(
    key: jax.Array, N: int, T: int, alpha: float, samples: int, setting: Setting
) -> tuple[Ordering, Ordering]:
    """The same by automatic differentiation over sampled sequences: means and standard errors."""
    _check(N, T, alpha, setting)
    check_count("samples", samples, 2)
    V, V_previous = value_matrix(N, T, alpha, setting)
    phat = _target_probabilities(N, alpha, setting.exclude_trigger)
    data = sample(key, N, T, alpha, samples, setting.exclude_trigger)
    each = _sampled_logits(data.tokens, data.y, jnp.concatenate([V, V_previous], 1), phat)
    return Ordering(*(x.mean() for x in each)), Ordering(*(x.std() / samples**0.5 for x in each))


@jax.jit
def _sampled_logits(tokens, y, w_v, phat) -> Ordering:
    N = len(phat) - 1

    def one(tokens, y):
        x = jax.nn.one_hot(tokens, N + 1, dtype=float)
        x_TxD = jnp.concatenate([x, jnp.pad(x, ((1, 0), (0, 0)))[:-1]], 1)
        residual = jax.nn.one_hot(y, N + 1, dtype=float) - phat

        def gain(w_qk):  # minus the loss with its prediction frozen at phat
            weights = jax.nn.softmax(x_TxD[-1] @ w_qk @ x_TxD.T)
            return residual @ (w_v @ (weights @ x_TxD))

        logits = jax.grad(gain)(jnp.zeros((2 * N + 2, 2 * N + 2)))[0]
        token, trigger = logits[1:N].mean(), logits[N + 1]
        return Ordering(trigger - logits[N + 2 : 2 * N + 1].mean(), token - logits[N])

    return jax.lax.map(lambda row: one(*row), (tokens, y), batch_size=1024)


def value_matrix(N: int, T: int, alpha: float, setting: Setting) -> tuple[jax.Array, jax.Array]:
    """V = U^T W_V E and V~ = U^T W_V E~, (N+1, N+1) each.

    "exact": s1 times -grad W_V at the uniform prediction (phase 1) plus s2 times that at
    phat = p(y) (phase 2). Its diagonal is (1-alpha)^2/N^2 in both phases and both halves; (27)
    says 1/N^2, and (28) beta2 < beta1.
    """
    values, (first, second), exclude_trigger = setting
    if values == "paper":
        diagonal = jnp.eye(N + 1).at[N, N].set(0)
        return first * diagonal, second * diagonal
    pairs = _both(N, T, alpha)
    e_q = jnp.zeros(N + 1).at[0].set(1)
    ybar = _ybar_probabilities(N, exclude_trigger)
    y_given_YxJ = (1 - alpha) * jnp.eye(N, N + 1) + alpha * jnp.eye(N + 1)[N][None]
    uniform = jnp.full(N + 1, 1 / (N + 1))
    phat = _target_probabilities(N, alpha, exclude_trigger)
    residual_YxJ = first * (y_given_YxJ - uniform[None]) + second * (y_given_YxJ - phat[None])
    halves = []
    for at_trigger, at_token in ([p.mean for p in pairs], [p.mean - e_q for p in pairs]):
        # By symmetry: the mean counts for ybar = j are those for ybar = 1 with 1 and j swapped.
        other = jnp.full(N - 1, at_token[2])
        tokens = other[None] + (at_token[1] - at_token[2]) * jnp.eye(N - 1)
        ends = [jnp.full((N - 1, 1), at_token[i]) for i in (0, N)]
        mean_YxK = jnp.concatenate([at_trigger[None], jnp.hstack([ends[0], tokens, ends[1]])])
        halves.append((ybar[:, None] * residual_YxJ).T @ mean_YxK / T)
    return halves[0], halves[1]


def noise_matrices(N: int, T: int, alpha: float) -> NoiseMatrices:
    """A and B of (7) after one step of W_V from zero, exact (the E half of x_t, as in B.3).

    For T >> N >> 1, with c = (alpha - 1/(N+1))/N, B_tau ~ c (alpha-1)(alpha/N)(1 - alpha/N) < 0 and
    B_k ~ c (1-alpha) alpha/N^2 > 0 (the forced z_T = q takes c/(T N) from it). The residuals of (7)
    sum to zero over all N + 1 outputs, hence A = -B/N exactly for the mean over k <= N: of order
    1/N^3 on tau and 1/N^4 on a token.
    """
    check_process(N, T, alpha, least=4)
    return _noise_matrices(N, T, alpha)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _noise_matrices(N, T, alpha):
    V, _ = value_matrix(N, T, alpha, Setting(sizes=(1.0, 0.0)))
    maps = [jnp.diag(pair.mean) / T - pair.second / T**2 for pair in _both(N, T, alpha)]
    A, B = (_over_targets([row @ x for x in maps], N, False) for row in (V[:N].mean(0), V[N]))
    return NoiseMatrices(A.noise, A.token, B.noise, B.token)


def noise_recursion(
    eta: Numbers, alpha: Numbers, N: int, steps: int
) -> tuple[jax.Array, jax.Array]:
    """B.3: xi_{t+1} = xi_t + eta (alpha - e^xi/(N + e^xi)) from xi_1 = 0 (the paper prints xi_t on
    both sides), (steps + 1, *shape), and its fixed point xi* = log N + log(alpha/(1-alpha)).

    No overshoot for eta <= 1/(alpha(1-alpha)) when alpha <= 1/2; for larger alpha the bound fails.
    """
    check_count("N", N, 2)
    check_count("steps", steps)
    check_range("alpha", alpha, 0.0, 1.0)
    check_range("eta", eta, 0.0)
    eta, alpha = jnp.broadcast_arrays(jnp.asarray(eta, float), jnp.asarray(alpha, float))

    def step(xi, _):
        xi = xi + eta * (alpha - jax.nn.sigmoid(xi - jnp.log(N)))
        return xi, xi

    start = jnp.zeros_like(eta)
    _, path = jax.lax.scan(step, start, None, length=steps)
    return jnp.concatenate([start[None], path]), jnp.log(N) + jnp.log(alpha / (1 - alpha))


class _Targets(NamedTuple):
    trigger: jax.Array
    token: jax.Array
    noise: jax.Array


def _over_targets(vectors: list, N: int, exclude_trigger: bool) -> _Targets:
    """Mean over ybar of a vector over b, from ybar = 0 and ybar = 1: at b = q, a token, tau."""
    at_trigger, at_token = vectors

    def mean(b, tokens):  # the sum over the N - 1 targets other than q is `tokens`
        return tokens / (N - 1) if exclude_trigger else (at_trigger[b] + tokens) / N

    ordinary = at_token[1] + (N - 2) * at_token[2]
    trigger, noise = (mean(b, (N - 1) * at_token[b]) for b in (0, N))
    return _Targets(trigger, mean(1, ordinary), noise)


def _both(N: int, T: int, alpha: float):
    return pair_moments(N, T, alpha, 0), pair_moments(N, T, alpha, 1)


def _ybar_probabilities(N: int, exclude_trigger: bool) -> jax.Array:
    if exclude_trigger:
        return jnp.full(N, 1 / (N - 1)).at[0].set(0)
    return jnp.full(N, 1 / N)


def _target_probabilities(N: int, alpha: float, exclude_trigger: bool) -> jax.Array:
    return jnp.append((1 - alpha) * _ybar_probabilities(N, exclude_trigger), alpha)


def _check(N: int, T: int, alpha, setting: Setting) -> None:
    check_process(N, T, alpha, least=4)
    if setting.values not in VALUES:
        raise unknown("values", setting.values, VALUES)
    if not isinstance(N, int):
        raise UserError(f"N must be a whole number, got {N!r}.")
