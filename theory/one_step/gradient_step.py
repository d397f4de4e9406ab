"""Margins of the noise token after one gradient step: Theorem 1 and its corrections.

Model (2) of the paper (arXiv 2406.03068), with orthonormal embeddings and U = 1:

    x_t = E(z_t) + E~(z_{t-1}),   E~(z_0) = 0
    a   = softmax_t(x_T^T W_QK x_t)
    xi  = W_V sum_t a_t x_t + W_F x_T

All weights start at zero. Then a_t = 1/T, and the prediction is uniform over the S = N + 1 tokens.
Sequence i of m has the target y_i, the mean input xbar_i = (1/T) sum_t x_{i,t} and the residual
r_i = e_{y_i} - 1/(N+1). The first gradients are

    -grad W_F = (1/m) sum_i r_i x_{i,T}^T
    -grad W_V = (1/m) sum_i r_i xbar_i^T
     grad W_QK = 0.

The margin of a fresh sequence x' is xi_tau - max_{j < N} xi_j after a step of W_F or of W_V alone,
divided by the step size. tau is token N and the trigger q is token 0.

**Feed-forward margin.** The logits after the step are

    xi_j = (1/m) sum_i r_{i,j} <x_{i,T}, x'_T>.

Every sequence ends with q, so <x_{i,T}, x'_T> is 1. With E~ the previous tokens add a match that
has probability about 1/N, so the mean is s = 1 + 1/N. Let c_j be the number of samples with
y_i = j. The constant 1/(N+1) cancels in the difference, and the number of samples with y = tau is
m alpha on average. Hence

    margin_F = s (alpha - E[max_j c_j] / m),     c_j ~ Binomial(m, (1-alpha)/N).

For m -> inf this is s (alpha - (1-alpha)/N). At finite m the maximum over N noisy counts is larger
than their mean, which explains nearly all of the difference from that limit.

**Attention margin.** The logits weigh each sample by the overlap of the two mean inputs:

    xi_j = (1/m) sum_i r_{i,j} g_i,     g_i = <xbar_i, xbar'>.

Let kappa = E[g] (about 1/N, or 2/N with E~) and v = Var[g]. The sum of g_i over the samples with
y_i = j is not a count. It has nearly the mean and the variance of `unit` times a count among
`share` m samples, if

    unit  = E[g^2] / E[g]   = kappa + v / kappa,
    share = E[g]^2 / E[g^2] = kappa / unit.

Hence

    margin_V = alpha kappa - unit E[max_j c'_j] / m,     c'_j ~ Binomial(share m, (1-alpha)/N).

kappa and v are computed exactly from `pair_moments`.

**Two variants.** inputs="current_and_previous" is the model as stated. inputs="current" has
x_t = E(z_t), which the proof of Theorem 1 uses. The attention margin of the stated model is twice
the theorem's, because E~ contributes as much as E.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxformer.core.errors import unknown
from theory.numerics import Numbers, check_count, in_float64
from theory.one_step.trigger_process import PairMoments, check_process, pair_moments, sample

INPUTS = ("current", "current_and_previous")


class Margins(NamedTuple):
    """Margins of the noise token after one step, divided by the step size."""

    feed_forward: Numbers
    attention: Numbers


class Weights(NamedTuple):
    """Weights of model (2), or their gradients. D is N + 1, or 2(N + 1) with previous tokens."""

    W_F: jax.Array  # (N + 1, D)
    W_V: jax.Array  # (N + 1, D)
    W_QK: jax.Array  # (D, D)


class Features(NamedTuple):
    """The two vectors of a sequence that enter the first gradients."""

    mean: jax.Array  # xbar, (B, D)
    last: jax.Array  # x_T, (B, D)


@in_float64
def margins(
    key: jax.Array,
    N: int,
    T: int,
    samples: int,
    alpha: float,
    inputs: str = "current_and_previous",
    trials: int = 8,
) -> tuple[Margins, Margins]:
    """Returns the predicted and the measured margins of Theorem 1.

    Args:
        key: PRNG key of the measurement.
        N: number of ordinary tokens, at least 3.
        T: length of a sequence, at least 3.
        samples: number m of training sequences of the step.
        alpha: probability of the noise after a trigger.
        inputs: "current_and_previous" (the model as stated) or "current" (as in the proof).
        trials: number of independent steps.

    Returns:
        Predicted margins (scalars) and measured margins, (trials,) each.

    Example:
        >>> predicted, measured = margins(jax.random.key(0), 32, 64, 512, alpha=0.5)
        >>> float(predicted.feed_forward), float(measured.feed_forward.mean())
        (0.4867886478174544, 0.49076652526855424)
    """
    setting = (N, T, samples, alpha, inputs)
    return predict(*setting), measure(key, *setting, trials)


@in_float64
def predict(
    N: int, T: int, samples: int, alpha: float, inputs: str = "current_and_previous"
) -> Margins:
    """Returns the mean margins over samples and fresh sequences, to leading order in 1/N.

    The module docstring derives them. Args as in `margins`.
    """
    _check_setting(N, T, samples, alpha, inputs)
    return _predict(N, T, samples, alpha, inputs)


@in_float64
def measure(
    key: jax.Array,
    N: int,
    T: int,
    samples: int,
    alpha: float,
    inputs: str = "current_and_previous",
    trials: int = 8,
    tests: int = 256,
) -> Margins:
    """Returns the margins of `trials` independent steps, each a mean over `tests` sequences.

    Other args as in `margins`. Both margins have shape (trials,).
    """
    _check_setting(N, T, samples, alpha, inputs)
    check_count("trials", trials)
    return _measure(jax.random.split(key, trials), alpha, N, T, samples, tests, inputs)


@in_float64
def theorem_1(
    N: int, alpha: Numbers, noise_fraction: Numbers, inputs: str = "current_and_previous"
) -> Margins:
    """Returns the corrected margins of Theorem 1 to leading order in 1/N, for large T and m:

        margin_F = alpha - (1-alpha)/N
        margin_V = c alpha_hat/N,     alpha_hat = alpha^2 qhat + alpha (1 - qhat)

    with c = 1 for "current" and c = 2 for "current_and_previous".

    Args:
        N: number of ordinary tokens.
        alpha: probability of the noise after a trigger.
        noise_fraction: qhat, the fraction of noise tokens in the test sequence.
        inputs: "current_and_previous" or "current".
    """
    _check_setting(N, T=3, samples=1, alpha=0.0, inputs=inputs)  # checks N and `inputs`
    alpha_hat = alpha**2 * noise_fraction + alpha * (1 - noise_fraction)
    return Margins(alpha - (1 - alpha) / N, (1 + INPUTS.index(inputs)) * alpha_hat / N)


def loss(weights: Weights, x_BxTxD: jax.Array, y_B: jax.Array) -> jax.Array:
    """Returns the mean cross-entropy of model (2) on embedded sequences and their targets.

    Args:
        weights: W_F, W_V and W_QK.
        x_BxTxD: the embedded sequences.
        y_B: their targets.
    """
    last_BxD = x_BxTxD[:, -1]
    scores_BxT = jnp.einsum("bd,de,bte->bt", last_BxD, weights.W_QK, x_BxTxD)
    mixed_BxD = jnp.einsum("bt,btd->bd", jax.nn.softmax(scores_BxT, -1), x_BxTxD)
    logits_BxS = mixed_BxD @ weights.W_V.T + last_BxD @ weights.W_F.T
    return -jnp.take_along_axis(jax.nn.log_softmax(logits_BxS), y_B[:, None], 1).mean()


def sequence_features(tokens_BxT: jax.Array, N: int, inputs: str) -> Features:
    """Returns xbar and x_T of each sequence in one-hot coordinates.

    They are computed from token counts, so that the (B, T, D) array of all x_t is never built.
    With previous tokens the first N + 1 coordinates refer to E and the others to E~.
    """
    count, T = tokens_BxT.shape
    rows_Bx1 = jnp.arange(count)[:, None]
    zero_BxS = jnp.zeros((count, N + 1))
    mean_BxD = zero_BxS.at[rows_Bx1, tokens_BxT].add(1 / T)
    last_BxD = jax.nn.one_hot(tokens_BxT[:, -1], N + 1, dtype=float)
    if inputs == "current_and_previous":
        previous_BxS = zero_BxS.at[rows_Bx1, tokens_BxT[:, :-1]].add(1 / T)
        mean_BxD = jnp.concatenate([mean_BxD, previous_BxS], -1)
        before_last_BxS = jax.nn.one_hot(tokens_BxT[:, -2], N + 1, dtype=float)
        last_BxD = jnp.concatenate([last_BxD, before_last_BxS], -1)
    return Features(mean_BxD, last_BxD)


def negative_gradients(features: Features, y_B: jax.Array, N: int) -> Weights:
    """Returns minus the gradients of `loss` at zero weights, in the module's closed form.

    Args:
        features: xbar and x_T of B sequences.
        y_B: their targets.
        N: number of ordinary tokens.
    """
    count, D = features.last.shape
    residual_BxS = jax.nn.one_hot(y_B, N + 1, dtype=float) - 1 / (N + 1)
    W_F, W_V = (residual_BxS.T @ x_BxD / count for x_BxD in (features.last, features.mean))
    return Weights(W_F, W_V, jnp.zeros((D, D)))


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 4))
def _predict(N, T, samples, alpha, inputs):
    kappa, variance = _overlap_moments(N, T, alpha, inputs)
    token_probability = (1 - alpha) / N
    match = 1.0 + (1 / N if inputs == "current_and_previous" else 0.0)
    largest_count = _expected_maximum(samples, token_probability, N)
    feed_forward = match * (alpha - largest_count / samples)
    unit = kappa + variance / kappa
    largest_sum = unit * _expected_maximum(samples, token_probability, N, kappa / unit)
    return Margins(feed_forward, alpha * kappa - largest_sum / samples)


def _expected_maximum(samples: int, p, N: int, share: float | jax.Array = 1.0) -> jax.Array:
    """Returns E[max] of N independent Binomial(share * samples, p): sum_k 1 - F(k)^N."""
    k = jnp.arange(samples + 1, dtype=float)
    remaining = share * samples - k
    cdf = jax.scipy.special.betainc(jnp.maximum(remaining, 1e-9), k + 1, 1 - p)
    return jnp.where(remaining > 0, 1 - cdf**N, 0).sum()


def _overlap_moments(N: int, T: int, alpha, inputs: str):
    """Returns kappa = E[g] and v = Var[g] of g = <xbar_i, xbar'>, exact for each half of x_t.

    With the counts n of sample i and n' of the test sequence, the half E gives

        E[g] = |E n|^2 / T^2,     E' Var_i[g] = sum_{k,b} Cov[n_k, n_b] E[n_k n_b] / T^4.

    E' averages over the test sequence, and Var_i is the variance over sample i. The half E~ has
    the counts n - e_q. The two halves are almost perfectly correlated, so their standard
    deviations add.
    """
    at_trigger, at_token = pair_moments(N, T, alpha, 0), pair_moments(N, T, alpha, 1)
    at_token = _average_over_tokens(at_token, N)
    mean_S = (at_trigger.mean + (N - 1) * at_token.mean) / N
    second_SxS = (at_trigger.second + (N - 1) * at_token.second) / N
    halves = [(mean_S, second_SxS)]
    if inputs == "current_and_previous":
        e_q = jnp.zeros(N + 1).at[0].set(1)
        cross_SxS = second_SxS - e_q[:, None] * mean_S[None] - mean_S[:, None] * e_q[None]
        halves.append((mean_S - e_q, cross_SxS + e_q[:, None] * e_q[None]))
    kappa = sum((mean**2).sum() for mean, _ in halves) / T**2
    deviations = [
        jnp.sqrt(((second - mean[:, None] * mean[None]) * second).sum()) / T**2
        for mean, second in halves
    ]
    return kappa, sum(deviations) ** 2


def _average_over_tokens(moments: PairMoments, N: int) -> PairMoments:
    """Averages moments that were computed for ybar = 1 over ybar = 1 .. N-1.

    By symmetry the mean has one value for all tokens. The second moment has one value on the
    diagonal, one off it, and one for each pair of a token with q or tau.
    """
    mean, second = moments.mean, moments.second
    mean = mean.at[1:N].set(mean[1:N].mean())
    block = second[1:N, 1:N]
    diagonal = jnp.trace(block) / (N - 1)
    off_diagonal = (block.sum() - jnp.trace(block)) / ((N - 1) * (N - 2))
    identity = jnp.eye(N - 1)
    second = second.at[1:N, 1:N].set(diagonal * identity + off_diagonal * (1 - identity))
    for q_or_tau in (0, N):
        average = second[q_or_tau, 1:N].mean()
        second = second.at[q_or_tau, 1:N].set(average).at[1:N, q_or_tau].set(average)
    return moments._replace(mean=mean, second=second)


@functools.partial(jax.jit, static_argnums=(2, 3, 4, 5, 6))
def _measure(keys, alpha, N, T, samples, tests, inputs):
    def one_step(key):
        key_train, key_test = jax.random.split(key)
        train = sample(key_train, N, T, alpha, samples)
        test = sample(key_test, N, T, alpha, tests)
        step = negative_gradients(sequence_features(train.tokens, N, inputs), train.y, N)
        features = sequence_features(test.tokens, N, inputs)
        return Margins(_margin(features.last @ step.W_F.T), _margin(features.mean @ step.W_V.T))

    return jax.lax.map(one_step, keys)


def _margin(logits_BxS: jax.Array) -> jax.Array:
    return (logits_BxS[:, -1] - logits_BxS[:, :-1].max(-1)).mean()


def _check_setting(N: int, T: int, samples: int, alpha: Numbers, inputs: str) -> None:
    check_process(N, T, alpha)
    check_count("samples", samples)
    if inputs not in INPUTS:
        raise unknown("inputs", inputs, INPUTS)
