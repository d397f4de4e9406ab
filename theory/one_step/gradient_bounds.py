"""Error bounds of the first gradient over m samples: Lemmas D.1 and D.2 as printed.

With probability 1 - delta the gradient Gamma of m samples is within

    |Gamma - mu| <= sqrt(4 sigma^2 L / m) + 4 R L / m

of its mean mu. For a single sample sigma^2 is the variance, and R bounds the distance from mu. The
two lemmas differ in Gamma and L:

    D.1, feed-forward    Gamma(k)   = U_k^T grad W_F E(q)    L = ln(N+1) + ln(2/delta)
    D.2, values          Gamma(j,k) = U_j^T grad W_V E(k)    L = 2 ln(N+1) + ln(2/delta)

U_j is the output embedding of token j and E(k) the input embedding of token k; q is the trigger and
tau = N the noise token. mu and sigma^2 of D.2 are listed in Table 3. Theorem 1 takes its error from
both lemmas: a margin is the difference of two such numbers (`margin_errors`).
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from theory.numerics import Numbers, check_count, check_range, in_float64
from theory.one_step.gradient_step import Margins
from theory.one_step.trigger_process import (
    TABLE_3,
    check_process,
    first_step_table_limit,
    sample,
)

RANGES = (0.5, 1.0, 1.0, 0.5, 1.0, 1.0, 1 / 3, 0.5, 1.0, 1.0)  # R of the rows of TABLE_3


class Printed(NamedTuple):
    """mu, sigma^2 and R of one lemma as printed, an entry for each case."""

    mean: jax.Array
    variance: jax.Array
    range: jax.Array


@in_float64
def lemma_d1(N: int, alpha: Numbers) -> Printed:
    """Returns mu, sigma^2 and R of Lemma D.1 for the noise token and for an ordinary token."""
    a = jnp.asarray(alpha, float)
    mean = jnp.stack([-a, 1 / (N + 1) - (1 - a) / N])
    variance = jnp.stack([a * (1 - a), (1 - a) / N])
    return Printed(mean, variance, jnp.stack([jnp.maximum(a, 1 - a), jnp.ones_like(a)]))


@in_float64
def lemma_d2(N: int, T: int, alpha: Numbers) -> Printed:
    """Returns mu, sigma^2 and R of Lemma D.2 for the cases of `TABLE_3`."""
    table = first_step_table_limit(N, T, alpha, printed=True)
    return Printed(table.mean, table.variance, jnp.asarray(RANGES))


def allowed(printed: Printed, N: int, samples: int, delta: Numbers, indices: int) -> jax.Array:
    """Returns the largest error that a lemma allows, an entry for each case.

    Args:
        printed: constants of the lemma.
        N: number of ordinary tokens.
        samples: number m of sequences in the gradient.
        delta: probability that the bound fails.
        indices: number of token indices of Gamma: 1 in Lemma D.1, 2 in Lemma D.2.
    """
    check_range("delta", delta, 0.0, 1.0)
    log = indices * jnp.log(N + 1) + jnp.log(2 / jnp.asarray(delta, float))
    return jnp.sqrt(4 * printed.variance * log / samples) + 4 * printed.range * log / samples


@in_float64
def margin_errors(N: int, T: int, samples: int, alpha: Numbers, delta: Numbers) -> Margins:
    """Returns the error that the proof of Theorem 1 gives each margin.

    It is the sum of the bound for the noise token and the bound for an ordinary token. Args as
    in `allowed`; T is the length of a sequence, and alpha the probability of the noise.
    """
    feed_forward = allowed(lemma_d1(N, alpha), N, samples, delta, 1)
    values = allowed(lemma_d2(N, T, alpha), N, samples, delta, 2)
    # Gamma(j, k) has j = tau in the first three cases of `TABLE_3`, an ordinary j in the others.
    return Margins(feed_forward.sum(), values[:3].max() + values[3:].max())


@in_float64
def measure_first_gradients(
    key: jax.Array, N: int, T: int, alpha: Numbers, samples: int, trials: int
) -> tuple[jax.Array, jax.Array]:
    """Returns the first gradients of sampled sequences, in the cases of Lemmas D.1 and D.2.

    Token 0 stands for q, token 2 for j and token 3 for k. As in Table 3 the trigger at the end of
    a sequence is not counted.

    Args:
        key: PRNG key.
        N: number of ordinary tokens, at least 5.
        T: number of tokens that are counted.
        alpha: probability of the noise after a trigger.
        samples: number of sequences in each gradient.
        trials: number of independent gradients.

    Returns:
        Gamma(k), (trials, 2), and Gamma(j,k), (trials, len(TABLE_3)).
    """
    check_process(N, T, alpha, least_N=5)
    check_count("samples", samples)
    check_count("trials", trials)
    return _measure(jax.random.split(key, trials), jnp.asarray(alpha, float), N, T, samples)


@functools.partial(jax.jit, static_argnums=(2, 3, 4))
def _measure(keys, alpha, N, T, samples):
    token_of = {"q": 0, "tau": N, "j": 2, "k": 3}

    def one_gradient(key):
        data = sample(key, N, T + 1, alpha, samples)
        tokens_BxT = data.tokens[:, :-1]
        share = {name: (tokens_BxT == token).mean(1) for name, token in token_of.items()}
        residual = {name: 1 / (N + 1) - (data.y == token) for name, token in token_of.items()}
        cases = [case.split(",") for case in TABLE_3]
        values = jnp.stack([(residual[j] * share[k]).mean() for j, k in cases])
        feed_forward = jnp.stack([residual[name].mean() for name in ("tau", "j")])
        return feed_forward, values

    return jax.lax.map(one_gradient, keys)
