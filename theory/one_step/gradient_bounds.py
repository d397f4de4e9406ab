"""Lemmas D.1 and D.2: how far the first gradient of m samples lies from its mean, as printed.

    |Gamma - mu| <= sqrt(4 sigma^2 L / m) + 4 R L / m          with probability 1 - delta

Feed-forward: Gamma(k) = U_k^T grad W_F E(q), L = ln(N+1) + ln(2/delta). Values: Gamma(j,k) =
U_j^T grad W_V E(k), L = 2 ln(N+1) + ln(2/delta), mu and sigma^2 those of Table 3. Theorem 1 takes
its error from them: a margin is a difference of two such numbers (`margin_errors`).
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from theory.numerics import Numbers, check_count, check_range
from theory.one_step.gradient_step import Margins
from theory.one_step.trigger_process import (
    TABLE_3,
    check_process,
    first_step_table_limit,
    sample,
)

# R of Table 3, in the order of TABLE_3.
RANGES = (0.5, 1.0, 1.0, 0.5, 1.0, 1.0, 1 / 3, 0.5, 1.0, 1.0)


class Printed(NamedTuple):
    """mu, sigma^2 and R of one lemma, an entry a case."""

    mean: jax.Array
    variance: jax.Array
    range: jax.Array


def lemma_d1(N: int, alpha: Numbers) -> Printed:
    """Cases: the noise, a token."""
    a = jnp.asarray(alpha, float)
    mean = jnp.stack([-a, 1 / (N + 1) - (1 - a) / N])
    variance = jnp.stack([a * (1 - a), (1 - a) / N])
    return Printed(mean, variance, jnp.stack([jnp.maximum(a, 1 - a), jnp.ones_like(a)]))


def lemma_d2(N: int, T: int, alpha: Numbers) -> Printed:
    """Cases: those of Table 3."""
    table = first_step_table_limit(N, T, alpha, printed=True)
    return Printed(table.mean, table.second, jnp.asarray(RANGES))


def allowed(printed: Printed, N: int, samples: int, delta: Numbers, pairs: int) -> jax.Array:
    """The right-hand side; `pairs` is 1 in Lemma D.1 and 2 in Lemma D.2."""
    check_range("delta", delta, 0.0, 1.0)
    log = pairs * jnp.log(N + 1) + jnp.log(2 / jnp.asarray(delta, float))
    return jnp.sqrt(4 * printed.variance * log / samples) + 4 * printed.range * log / samples


def margin_errors(N: int, T: int, samples: int, alpha: Numbers, delta: Numbers) -> Margins:
    """The error that the proof of Theorem 1 gives each margin: the noise's and a token's bound."""
    feed_forward = allowed(lemma_d1(N, alpha), N, samples, delta, 1)
    values = allowed(lemma_d2(N, T, alpha), N, samples, delta, 2)
    return Margins(feed_forward.sum(), values[:3].max() + values[3:].max())


def measure_first_gradients(
    key: jax.Array, N: int, T: int, alpha: Numbers, samples: int, trials: int
) -> tuple[jax.Array, jax.Array]:
    """Gamma(k) (trials, 2) and Gamma(j,k) (trials, cases) of gradients over `samples` sequences.

    q = 0, j = 2 and k = 3 stand for their kinds. As in Table 3 the last trigger is not counted.
    """
    check_process(N, T, alpha, least=5)
    check_count("samples", samples)
    check_count("trials", trials)
    return _measure(jax.random.split(key, trials), jnp.asarray(alpha, float), N, T, samples)


@functools.partial(jax.jit, static_argnums=(2, 3, 4))
def _measure(keys, alpha, N, T, samples):
    named = {"q": 0, "tau": N, "j": 2, "k": 3}

    def one(key):
        data = sample(key, N, T + 1, alpha, samples)
        tokens_BxT = data.tokens[:, :-1]
        shares = {name: (tokens_BxT == token).mean(1) for name, token in named.items()}
        residual = {name: 1 / (N + 1) - (data.y == token) for name, token in named.items()}
        cases = [case.split(",") for case in TABLE_3]
        values = jnp.stack([(residual[j] * shares[k]).mean() for j, k in cases[:-1]])
        same = (residual["j"] * shares["j"]).mean()
        feed_forward = jnp.stack([residual[name].mean() for name in ("tau", "j")])
        return feed_forward, jnp.append(values, same)

    return jax.lax.map(one, keys)
