"""The first gradient of the attention: Theorem 2 and its correction.

**Setting.** W_QK = 0, W_V is given, and the prediction is frozen at phat = p(y) (Assumption F.1 of
arXiv 2406.03068). The attention logit of a token l that follows a token k is

    xi_{k->l} = E(q)^T (-grad W_QK) (E~(k) + E(l)).

**Derivation.** The residual is r_j = 1{y=j} - phat_j. The value of position t for output j is
v_j(t) = V_{j,z_t} + V~_{j,z_{t-1}} (`value_matrix`). At W_QK = 0 the attention is 1/T, and its
derivative is (1/T) x_T (x_t - xbar)^T. Hence xi_{k->l} = g(l) + g~(k) with

    g(l)  = E sum_j r_j (1/T) sum_t v_j(t) [1{z_t=l} - n_l/T]
    g~(k) = E sum_j r_j (1/T) sum_t v_j(t) [1{z_{t-1}=k} - n~_k/T].

Both g and g~ need only moments of pairs of counts, which `pair_moments` computes exactly.

**Claims of the theorem**, for tokens j, k, l other than q:

    (3)  xi_{q->j} - xi_{k->l}   = g~(q) - g~(k) > 0
    (4)  xi_{q->j} - xi_{q->tau} = g(j) - g(tau) > 0

By symmetry g(j) = g(l).

**Correction.** The proof keeps the term of its token b_1 and drops those of all other tokens k as
o(T/N), but there are N of them. The event ybar = q enters at the same order. To leading order in
1/N, (3) is (1-alpha)^2 beta1/N for "paper" and (1-alpha)^4 (s1+s2)/N^3 for "exact", and (4) is

    values   ybar                      xi_{q->j} - xi_{q->tau}
    paper    uniform over 0 .. N-1     (1-alpha)^2 [alpha beta1 - (1-alpha) beta2]/N^2
    paper    never q                   alpha (1-alpha)^2 (beta1 + beta2)/N^2
    exact    uniform over 0 .. N-1     -(1-alpha)^5 (s1+s2) (1+2 alpha)/alpha /N^4
    exact    never q                   2 alpha (1-alpha)^4 (s1+s2)/N^4

"paper" is a diagonal W_V with the sizes beta1 on E and beta2 on E~. "exact" is s1 times the exact
gradient step of phase 1 plus s2 times that of phase 2 (`value_matrix`). So (4) holds at this order
if the trigger is never a target. If the trigger may be a target, (4) fails for the exact W_V at
every alpha. For the paper's W_V it then holds only where alpha beta1 > (1-alpha) beta2.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxformer.core.errors import UserError, unknown
from theory.numerics import check_count, in_float64
from theory.one_step.trigger_process import PairMoments, check_process, pair_moments, sample

VALUES = ("paper", "exact")


class Setting(NamedTuple):
    """A row of the module's table.

    values: "paper" or "exact" W_V. sizes: (beta1, beta2) of "paper", (s1, s2) of "exact".
    exclude_trigger: whether ybar is never the trigger.
    """

    values: str = "exact"
    sizes: tuple[float, float] = (1.0, 1.0)
    exclude_trigger: bool = False


class Ordering(NamedTuple):
    """The two differences of attention logits that Theorem 2 claims to be positive."""

    after_trigger: jax.Array  # xi_{q->j} - xi_{k->l}, Equation (3)
    over_noise: jax.Array  # xi_{q->j} - xi_{q->tau}, Equation (4)


@in_float64
def attention_logits(N: int, T: int, alpha: float, setting: Setting) -> Ordering:
    """Returns the two differences of Theorem 2 from the exact population gradient.

    Args:
        N: number of ordinary tokens, at least 4.
        T: length of a sequence.
        alpha: probability of the noise after a trigger.
        setting: the value matrix and the targets.

    Example:
        >>> attention_logits(64, 1024, 0.3, Setting(exclude_trigger=True)).over_noise > 0
        Array(True, dtype=bool)
    """
    _check(N, T, alpha, setting)
    return _attention_logits(N, T, alpha, *setting)


# alpha and the sizes are traced, so that new values need no compilation.
@functools.partial(jax.jit, static_argnums=(0, 1, 3, 5))
def _attention_logits(N, T, alpha, values, sizes, exclude_trigger):
    moments = moments_by_ybar(N, T, alpha)
    V, V_previous = value_matrix(N, T, alpha, Setting(values, sizes, exclude_trigger))
    phat = _target_probabilities(N, alpha, exclude_trigger)
    e_q = jnp.zeros(N + 1).at[0].set(1)
    current, previous = [], []
    for ybar, pair in enumerate(moments):  # ybar = q and ybar = 1
        residual = jnp.zeros(N + 1).at[N].set(alpha).at[ybar].add(1 - alpha) - phat
        weight, weight_previous = residual @ V, residual @ V_previous
        # Every sequence ends with q, so n~ = n - e_q.
        mean_previous = pair.mean - e_q  # E n~_k
        cross = pair.second - e_q[:, None] * pair.mean[None]  # E n~_k n_b
        second_previous = cross - mean_previous[:, None] * e_q[None]  # E n~_k n~_b
        current.append(
            weight @ (jnp.diag(pair.mean) / T - pair.second / T**2)
            + weight_previous @ (pair.follow / T - cross / T**2)
        )
        previous.append(
            weight @ (pair.follow.T / T - cross.T / T**2)
            + weight_previous @ (jnp.diag(mean_previous) / T - second_previous / T**2)
        )
    g = average_over_ybar(current, N, exclude_trigger)
    g_previous = average_over_ybar(previous, N, exclude_trigger)
    return Ordering(g_previous.trigger - g_previous.token, g.token - g.noise)


@in_float64
def attention_logits_limit(N: int, alpha: float, setting: Setting) -> Ordering:
    """Returns the leading orders in 1/N of the module's table. Args as in `attention_logits`."""
    _check(N, 3, alpha, setting)
    first, second = (jnp.asarray(size, float) for size in setting.sizes)
    not_noise, total = 1 - alpha, first + second
    if setting.values == "paper":
        after_trigger = not_noise**2 * first / N
        over_noise = not_noise**2 * (alpha * first - not_noise * second) / N**2
        over_noise_excluded = alpha * not_noise**2 * total / N**2
    else:
        after_trigger = not_noise**4 * total / float(N) ** 3
        over_noise = -(not_noise**5) * total * (1 + 2 * alpha) / alpha / float(N) ** 4
        over_noise_excluded = 2 * alpha * not_noise**4 * total / float(N) ** 4
    return Ordering(after_trigger, over_noise_excluded if setting.exclude_trigger else over_noise)


@in_float64
def measure_attention_logits(
    key: jax.Array, N: int, T: int, alpha: float, samples: int, setting: Setting
) -> tuple[Ordering, Ordering]:
    """Measures `attention_logits` by automatic differentiation over sampled sequences.

    Args:
        key: PRNG key.
        N: number of ordinary tokens, at least 4.
        T: length of a sequence.
        alpha: probability of the noise after a trigger.
        samples: number of sequences.
        setting: the value matrix and the targets.

    Returns:
        Means over the sequences and their standard errors.
    """
    _check(N, T, alpha, setting)
    check_count("samples", samples, 2)
    V, V_previous = value_matrix(N, T, alpha, setting)
    phat = _target_probabilities(N, alpha, setting.exclude_trigger)
    data = sample(key, N, T, alpha, samples, setting.exclude_trigger)
    by_sequence = _sampled_logits(data.tokens, data.y, jnp.concatenate([V, V_previous], 1), phat)
    errors = Ordering(*(x.std() / samples**0.5 for x in by_sequence))
    return Ordering(*(x.mean() for x in by_sequence)), errors


@jax.jit
def _sampled_logits(tokens, y, w_v, phat) -> Ordering:
    N = len(phat) - 1

    def of_sequence(tokens, y):
        x = jax.nn.one_hot(tokens, N + 1, dtype=float)
        x_TxD = jnp.concatenate([x, jnp.pad(x, ((1, 0), (0, 0)))[:-1]], 1)
        residual = jax.nn.one_hot(y, N + 1, dtype=float) - phat

        # Minus the loss, with the prediction frozen at phat.
        def gain(w_qk):
            weights = jax.nn.softmax(x_TxD[-1] @ w_qk @ x_TxD.T)
            return residual @ (w_v @ (weights @ x_TxD))

        # The row of E(q). Its entries 0 .. N belong to E(l), and N+1 .. 2N+1 to E~(k).
        logits = jax.grad(gain)(jnp.zeros((2 * N + 2, 2 * N + 2)))[0]
        g_j, g_tau = logits[1:N].mean(), logits[N]
        g_previous_q, g_previous_k = logits[N + 1], logits[N + 2 : 2 * N + 1].mean()
        return Ordering(g_previous_q - g_previous_k, g_j - g_tau)

    return jax.lax.map(lambda row: of_sequence(*row), (tokens, y), batch_size=1024)


def value_matrix(N: int, T: int, alpha: float, setting: Setting) -> tuple[jax.Array, jax.Array]:
    """Returns V = U^T W_V E and V~ = U^T W_V E~, (S, S) each.

    "exact" is s1 times -grad W_V at the uniform prediction (phase 1) plus s2 times -grad W_V at
    phat = p(y) (phase 2). Its diagonal is (1-alpha)^2/N^2 in both phases and for E and E~. The
    paper states the diagonal 1/N^2 in (27) and beta2 < beta1 in (28).

    Args:
        N: number of ordinary tokens; S = N + 1.
        T: the length.
        alpha: the probability of the noise after the trigger.
        setting: a row of the module's table.
    """
    values, (first, second), exclude_trigger = setting
    if values == "paper":
        diagonal = jnp.eye(N + 1).at[N, N].set(0)
        return first * diagonal, second * diagonal
    pairs = moments_by_ybar(N, T, alpha)
    e_q = jnp.zeros(N + 1).at[0].set(1)
    ybar = _ybar_probabilities(N, exclude_trigger)
    # p(y = j | ybar), with a row for each ybar and a column for each token j.
    y_given_YxJ = (1 - alpha) * jnp.eye(N, N + 1) + alpha * jnp.eye(N + 1)[N][None]
    uniform = jnp.full(N + 1, 1 / (N + 1))
    phat = _target_probabilities(N, alpha, exclude_trigger)
    residual_YxJ = first * (y_given_YxJ - uniform[None]) + second * (y_given_YxJ - phat[None])
    halves = []
    counts = [pair.mean for pair in pairs]  # E n_k for ybar = q and for ybar = 1
    counts_previous = [pair.mean - e_q for pair in pairs]  # E n~_k
    for at_trigger, at_token in (counts, counts_previous):
        # The mean counts for ybar = j are those for ybar = 1 with tokens 1 and j exchanged.
        other = jnp.full(N - 1, at_token[2])
        tokens = other[None] + (at_token[1] - at_token[2]) * jnp.eye(N - 1)
        ends = [jnp.full((N - 1, 1), at_token[i]) for i in (0, N)]
        mean_YxK = jnp.concatenate([at_trigger[None], jnp.hstack([ends[0], tokens, ends[1]])])
        halves.append((ybar[:, None] * residual_YxJ).T @ mean_YxK / T)
    return halves[0], halves[1]


class Entries(NamedTuple):
    """Entries of a vector at q, at an ordinary token and at tau."""

    trigger: jax.Array
    token: jax.Array
    noise: jax.Array


def average_over_ybar(by_ybar: list, N: int, exclude_trigger: bool) -> Entries:
    """Averages a vector over ybar and returns its entries at q, at an ordinary token and at tau.

    `by_ybar` has the vector for ybar = q and for ybar = 1. By symmetry the latter has the entries
    of every other ybar, with the tokens exchanged.
    """
    at_trigger, at_token = by_ybar

    def average(entry, sum_over_tokens):
        if exclude_trigger:
            return sum_over_tokens / (N - 1)
        return (at_trigger[entry] + sum_over_tokens) / N

    return Entries(
        average(0, (N - 1) * at_token[0]),
        average(1, at_token[1] + (N - 2) * at_token[2]),
        average(N, (N - 1) * at_token[N]),
    )


def moments_by_ybar(N: int, T: int, alpha: float) -> tuple[PairMoments, PairMoments]:
    """Returns the moments of pairs of counts for ybar = q and for ybar = 1."""
    return pair_moments(N, T, alpha, 0), pair_moments(N, T, alpha, 1)


def _ybar_probabilities(N: int, exclude_trigger: bool) -> jax.Array:
    if exclude_trigger:
        return jnp.full(N, 1 / (N - 1)).at[0].set(0)
    return jnp.full(N, 1 / N)


def _target_probabilities(N: int, alpha: float, exclude_trigger: bool) -> jax.Array:
    return jnp.append((1 - alpha) * _ybar_probabilities(N, exclude_trigger), alpha)


def _check(N: int, T: int, alpha, setting: Setting) -> None:
    check_process(N, T, alpha, least_N=4)
    if setting.values not in VALUES:
        raise unknown("values", setting.values, VALUES)
    if not isinstance(N, int):
        raise UserError(f"N must be a whole number, got {N!r}.")
