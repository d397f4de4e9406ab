"""One gradient step of the simplified model (2) from zero: Theorem 1 and its corrections.

    x_t = E(z_t) [+ E~(z_{t-1})],  xi = U W_V sum_t a_t x_t + U W_F x_T,  a = softmax(x_T W_QK x_t)

All W start at zero, the embeddings are orthonormal (one-hot here, U = 1), E~(z_0) = 0. With the
residual r_i = e_{y_i} - 1/(N+1) and xbar_i the mean of the x_{i,t},

    -grad W_F = mean_i r_i x_{i,T}^T,    -grad W_V = mean_i r_i xbar_i^T,    grad W_QK = 0.

inputs "current" is x_t = E(z_t), which the proof of Theorem 1 uses; "current_and_previous" is (2)
as stated, and there the attention margin is twice the theorem's: the E~ half contributes the same
again. The margin is xi_tau - max_{j <= N} xi_j on fresh sequences, over the step size.
The lemmas behind are in `trigger_process`, Theorem 2 and B.3 in `attention_ordering`.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from jaxformer.core.errors import unknown
from theory.numerics import Numbers, check_count
from theory.one_step.trigger_process import check_process, pair_moments, sample

INPUTS = ("current", "current_and_previous")


class Margins(NamedTuple):
    """Margin of the noise token after one step, over the step size."""

    feed_forward: Numbers
    attention: Numbers


class Weights(NamedTuple):
    W_F: jax.Array  # (N + 1, d)
    W_V: jax.Array  # (N + 1, d)
    W_QK: jax.Array  # (d, d)


def margins(
    key: jax.Array,
    N: int,
    T: int,
    samples: int,
    alpha: float,
    inputs: str = "current_and_previous",
    trials: int = 8,
) -> tuple[Margins, Margins]:
    """Predicted margins, and measured ones of shape (trials,)."""
    setting = (N, T, samples, alpha, inputs)
    return predict(*setting), measure(key, *setting, trials)


def predict(N: int, T: int, samples: int, alpha: float, inputs: str = INPUTS[1]) -> Margins:
    """Mean margins over samples and fresh sequences, to leading order in 1/N.

    Feed-forward: alpha - E[max_j c_j]/m, c_j the number of samples with y = j, taken as N
    independent Binomial(m, (1-alpha)/N): for m -> inf this is alpha - (1-alpha)/N, and at finite m
    the maximum over N noisy logits accounts for nearly all of the gap. E~(z_{T-1}) adds 1/N.
    Attention: the same with each sample weighed by g = <xbar_i, xbar_test>: kappa = E g is close to
    1/N (2/N with E~), its variance widens the counts; both are exact, by dynamic programming.
    """
    _check(N, T, samples, inputs)
    check_process(N, T, alpha)
    return _predict(N, T, samples, alpha, inputs)


def measure(
    key: jax.Array,
    N: int,
    T: int,
    samples: int,
    alpha: float,
    inputs: str = INPUTS[1],
    trials: int = 8,
    tests: int = 256,
) -> Margins:
    """Margins of `trials` independent steps on `samples` sequences, each a mean over `tests`."""
    _check(N, T, samples, inputs)
    check_process(N, T, alpha)
    check_count("trials", trials)
    keys = jax.random.split(key, trials)
    return _measure(keys, alpha, N, T, samples, tests, inputs == INPUTS[1])


def theorem_1(N: int, alpha: Numbers, noise_fraction: Numbers, inputs: str = INPUTS[1]) -> Margins:
    """Theorem 1 corrected, N, T, m -> inf: alpha - (1-alpha)/N, and alpha_hat/N or, for (2) as
    stated, 2 alpha_hat/N, with alpha_hat = alpha^2 qhat + alpha (1 - qhat), qhat the fraction of
    noise tokens in the test sequence."""
    _check(N, 3, 1, inputs)
    alpha_hat = alpha**2 * noise_fraction + alpha * (1 - noise_fraction)
    return Margins(alpha - (1 - alpha) / N, (1 + INPUTS.index(inputs)) * alpha_hat / N)


def embed(tokens_BxT: jax.Array, N: int, inputs: str) -> jax.Array:
    """x_t, one-hot, (B, T, d): d = N + 1, or 2(N + 1) with the previous token."""
    x_BxTxD = jax.nn.one_hot(tokens_BxT, N + 1, dtype=float)
    if inputs == "current":
        return x_BxTxD
    previous = jnp.pad(x_BxTxD, ((0, 0), (1, 0), (0, 0)))[:, :-1]
    return jnp.concatenate([x_BxTxD, previous], axis=-1)


def loss(weights: Weights, x_BxTxD: jax.Array, y_B: jax.Array) -> jax.Array:
    """Mean cross-entropy of model (2)."""
    last = x_BxTxD[:, -1]
    scores = jnp.einsum("bd,de,bte->bt", last, weights.W_QK, x_BxTxD)
    mixed = jnp.einsum("bt,btd->bd", jax.nn.softmax(scores, -1), x_BxTxD)
    logits = mixed @ weights.W_V.T + last @ weights.W_F.T
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), y_B[:, None], 1).mean()


def negative_gradients(x_BxTxD: jax.Array, y_B: jax.Array, N: int) -> Weights:
    """The closed forms above, at zero weights."""
    residual = jax.nn.one_hot(y_B, N + 1, dtype=float) - 1 / (N + 1)
    count, d = len(y_B), x_BxTxD.shape[-1]
    w_f = residual.T @ x_BxTxD[:, -1] / count
    w_v = residual.T @ x_BxTxD.mean(1) / count
    return Weights(w_f, w_v, jnp.zeros((d, d)))


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 4))
def _predict(N, T, samples, alpha, inputs):
    at_trigger, at_token = pair_moments(N, T, alpha, 0), pair_moments(N, T, alpha, 1)
    kappa, variance = _overlap(at_trigger, at_token, N, T, inputs)
    share = 1.0 + (1 / N if inputs == INPUTS[1] else 0.0)
    feed_forward = share * (alpha - _largest_count(samples, (1 - alpha) / N, N) / samples)
    # A sum of weights g is about a count times E g^2/E g, of m (E g)^2/E g^2 samples.
    unit = kappa + variance / kappa
    largest = unit * _largest_count(samples, (1 - alpha) / N, N, kappa / unit)
    return Margins(feed_forward, alpha * kappa - largest / samples)


def _largest_count(samples: int, p, N: int, share: float | jax.Array = 1.0) -> jax.Array:
    """E max of N independent Binomial(share * samples, p) = sum_k 1 - F(k)^N, share in (0, 1]."""
    k = jnp.arange(samples + 1, dtype=float)
    left = share * samples - k
    cdf = jax.scipy.special.betainc(jnp.maximum(left, 1e-9), k + 1, 1 - p)
    return jnp.where(left > 0, 1 - cdf**N, 0).sum()


def _overlap(at_trigger, at_token, N: int, T: int, inputs: str):
    """Mean and variance over i of <xbar_i, xbar_test>, averaged over the test sequence."""
    mean = (at_trigger.mean + (N - 1) * _symmetric(at_token.mean, N)) / N
    second = (at_trigger.second + (N - 1) * _symmetric_pairs(at_token.second, N)) / N
    e_q = jnp.zeros(N + 1).at[0].set(1)
    halves = [(mean, second)]
    if inputs == INPUTS[1]:  # the counts of z_1 .. z_{T-1} have one trigger less
        less = second - e_q[:, None] * mean[None] - mean[:, None] * e_q[None]
        halves.append((mean - e_q, less + e_q[:, None] * e_q[None]))
    kappa = sum((first**2).sum() for first, _ in halves) / T**2
    # The two halves of a sequence are nearly the same counts: their variances add as deviations.
    deviations = [
        jnp.sqrt(((pair - first[:, None] * first[None]) * pair).sum()) / T**2
        for first, pair in halves
    ]
    return kappa, sum(deviations) ** 2


def _symmetric(mean, N: int):
    """A mean given ybar = 1, averaged over ybar in 1 .. N-1."""
    return mean.at[1:N].set(mean[1:N].mean())


def _symmetric_pairs(second, N: int):
    """The same for pairs: by symmetry only diagonal, off-diagonal and (q | tau) entries differ."""
    block = second[1:N, 1:N]
    diagonal = jnp.trace(block) / (N - 1)
    rest = (block.sum() - jnp.trace(block)) / ((N - 1) * (N - 2))
    identity = jnp.eye(N - 1)
    second = second.at[1:N, 1:N].set(diagonal * identity + rest * (1 - identity))
    for other in (0, N):
        average = second[other, 1:N].mean()
        second = second.at[other, 1:N].set(average).at[1:N, other].set(average)
    return second


@functools.partial(jax.jit, static_argnums=(2, 3, 4, 5, 6))
def _measure(keys, alpha, N, T, samples, tests, with_previous):
    def counts(tokens, y, ybar):
        rows = jnp.arange(len(y))[:, None]
        zero = jnp.zeros((len(y), N + 1))
        xbar = zero.at[rows, tokens].add(1 / T)
        last = jnp.zeros((len(y), N + 1)).at[:, 0].set(1.0)
        if with_previous:
            before = zero.at[rows, tokens[:, :-1]].add(1 / T)
            xbar = jnp.concatenate([xbar, before], -1)
            last = jnp.concatenate([last, jax.nn.one_hot(tokens[:, -2], N + 1, dtype=float)], -1)
        return xbar, last

    def one(key):
        key_train, key_test = jax.random.split(key)
        train = sample(key_train, N, T, alpha, samples)
        residual = jax.nn.one_hot(train.y, N + 1, dtype=float) - 1 / (N + 1)
        xbar, last = counts(*train)
        xbar_test, last_test = counts(*sample(key_test, N, T, alpha, tests))
        margins = []
        for inputs, inputs_test in ((last, last_test), (xbar, xbar_test)):
            logits = inputs_test @ (inputs.T @ residual) / samples
            margins.append((logits[:, N] - logits[:, :N].max(-1)).mean())
        return Margins(*margins)

    return jax.lax.map(one, keys)


def _check(N: int, T: int, samples: int, inputs: str) -> None:
    check_count("N", N, 3)
    check_count("T", T, 3)
    check_count("samples", samples)
    if inputs not in INPUTS:
        raise unknown("inputs", inputs, INPUTS)
