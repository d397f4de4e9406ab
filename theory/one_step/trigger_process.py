"""The trigger process with uniform statistics: samples, exact moments and the lemmas' tables.

One sequence z_1 .. z_T with its target y (arXiv 2406.03068, Section 2):

    ybar     uniform over the tokens 0 .. N-1, or over those other than the trigger q = 0
    z_1      uniform over 0 .. N-1
    z_{t+1}  after z_t = q: tau = N with probability alpha, else ybar
             after any other token: uniform over 0 .. N-1
    z_T      q, whatever precedes it
    y        drawn like a token after the trigger

The moments of token counts are exact, by dynamic programming over t. The lemmas and Table 3 count
tokens of the chain whose last token is not forced to be q.

`jaxformer.tasks.recall.Recall` draws the same process with statistics="uniform", scored="last", one
trigger and a noise token outside the vocabulary of the text. `sample` uses this package's token
numbers, and tests/theory/test_one_step.py compares both samplers with the same exact probabilities.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from theory.numerics import Numbers, check_count, check_range, in_float64

TRIGGER = 0
# Cases (ybar, k) of Lemmas E.1 to E.7: "j" is a ybar other than q, "k" is a token other than ybar.
LEMMAS = ("q,q", "q,tau", "q,k", "j,q", "j,tau", "j,j", "j,k")
# Cases (j, k) of the first step's gradient Gamma(j, k), output token j and input token k, in the
# order of Table 3.
TABLE_3 = ("tau,tau", "tau,q", "tau,k", "q,tau", "q,q", "q,k", "j,tau", "j,q", "j,k", "j,j")


class Sequences(NamedTuple):
    """Sampled sequences with their targets and the tokens that follow the trigger."""

    tokens: jax.Array  # (B, T)
    y: jax.Array  # (B,)
    ybar: jax.Array  # (B,)


class CountMoments(NamedTuple):
    """E n_k and E n_k^2, an entry for each case of `LEMMAS`."""

    mean: jax.Array
    second: jax.Array


class GradientMoments(NamedTuple):
    """Mean and variance of Gamma(j, k), an entry for each case of `TABLE_3`."""

    mean: jax.Array
    variance: jax.Array


class PairMoments(NamedTuple):
    """Moments of the counts of S = N + 1 tokens in a sequence that ends with q, for one ybar."""

    mean: jax.Array  # E n_k, (S,)
    second: jax.Array  # E n_k n_b, (S, S)
    follow: jax.Array  # E #{t: z_{t-1} = k, z_t = b}, (S, S)


@functools.partial(jax.jit, static_argnums=(1, 2, 4, 5))
def sample(
    key: jax.Array, N: int, T: int, alpha: Numbers, count: int, exclude_trigger: bool = False
) -> Sequences:
    """Draws `count` sequences with their targets.

    Args:
        key: PRNG key.
        N: number of ordinary tokens.
        T: length of a sequence.
        alpha: probability of the noise after a trigger.
        count: number of sequences B.
        exclude_trigger: whether ybar is never the trigger.
    """
    key_bar, key_y, key_1, key_t = jax.random.split(key, 4)
    ybar = jax.random.randint(key_bar, (count,), int(exclude_trigger), N, jnp.int32)

    def after_trigger(key):
        return jnp.where(jax.random.uniform(key, (count,)) < alpha, N, ybar).astype(jnp.int32)

    def step(z, key):
        key_free, key_trigger = jax.random.split(key)
        free = jax.random.randint(key_free, (count,), 0, N, jnp.int32)
        z = jnp.where(z == TRIGGER, after_trigger(key_trigger), free)
        return z, z

    first = jax.random.randint(key_1, (count,), 0, N, jnp.int32)
    _, rest = jax.lax.scan(step, first, jax.random.split(key_t, T - 2))
    last = jnp.full((1, count), TRIGGER, jnp.int32)
    tokens = jnp.concatenate([first[None], rest, last]).T
    return Sequences(tokens, after_trigger(key_y), ybar)


def check_process(N: int, T: int, alpha: Numbers, least_N: int = 3) -> None:
    """Raises a UserError unless N >= least_N, T >= 3 and alpha is a probability."""
    check_count("N", N, least_N)
    check_count("T", T, 3)
    check_range("alpha", alpha, 0.0, 1.0)


@in_float64
def lemma_counts(N: int, T: int, alpha: Numbers) -> CountMoments:
    """Returns the exact moments of n_k = #{t <= T: z_t = k}, in the order of `LEMMAS`.

    The chain is lumped to five states: q, tau, j, k and all other tokens.

    Args:
        N: number of ordinary tokens, at least 4.
        T: the length.
        alpha: the probability of the noise after the trigger; a number or an array.
    """
    check_process(N, T, alpha, least_N=4)
    return _lemma_counts(jnp.asarray(N, float), jnp.asarray(alpha, float), T)


@in_float64
def lemma_counts_limit(N: int, T: int, alpha: Numbers, printed: bool = False) -> CountMoments:
    """Returns the moments of Lemmas E.1 to E.7 for N, T >> 1.

    Lemma E.1 is corrected. Runs of q are geometric and their number is Poisson, so with x = T/N

        E[n^2] = (x/alpha)(2/alpha - 1) + x^2/alpha^2.

    Args:
        N: number of ordinary tokens.
        T: length of a sequence.
        alpha: probability of the noise after a trigger.
        printed: whether to use the paper's 2/alpha^2 - 1 for 2/alpha - 1 in Lemma E.1.
    """
    alpha = jnp.asarray(alpha, float)
    x, one = T / N * jnp.ones_like(alpha), jnp.ones_like(alpha)
    mean = jnp.stack([1 / alpha, one, one, one, alpha, 2 - alpha, one]) * x[None]
    run_factor = 2 / alpha**2 - 1 if printed else 2 / alpha - 1
    variance = jnp.stack([run_factor] + 6 * [one]) * mean
    return CountMoments(mean, variance + mean**2)


@in_float64
def first_step_table(N: int, T: int, alpha: Numbers) -> GradientMoments:
    """Returns the exact mean and variance of Gamma(j,k) = (1/(N+1) - 1{y=j}) n_k/T (Table 3).

    They are sums over the classes q, j, k and "other" of ybar, and over y = tau or y = ybar.

    Args:
        N, T, alpha: as in `lemma_counts`.

    Returns:
        Means and variances in the order of `TABLE_3`.
    """
    counts = lemma_counts(N, T, alpha)
    means, variances = [], []
    for case in TABLE_3:
        j, k = case.split(",")
        # The values of ybar that need separate moments, and how many tokens each stands for.
        named = [name for name in dict.fromkeys(("q", j, k)) if name != "tau"]
        classes = dict.fromkeys(named, 1) | {"other": N - len(named)}
        first, second = 0.0, 0.0
        for ybar, size in classes.items():
            # The case of LEMMAS for this ybar and this k, whose names are "q", "tau", "j" and "k".
            ybar_case = "q" if ybar == "q" else "j"
            token_case = "j" if ybar == k else "k"
            if k in ("q", "tau"):
                token_case = k
            count = LEMMAS.index(f"{ybar_case},{token_case}")
            for y, probability in (("tau", alpha), (ybar, 1 - alpha)):
                factor = 1 / (N + 1) - float(y == j)
                weight = probability * size / N
                first += weight * factor * counts.mean[count] / T
                second += weight * factor**2 * counts.second[count] / T**2
        means.append(first)
        variances.append(second - first**2)
    return GradientMoments(jnp.stack(means), jnp.stack(variances))


@in_float64
def first_step_table_limit(
    N: int, T: int, alpha: Numbers, printed: bool = False
) -> GradientMoments:
    """Returns Table 3 for N, T >> 1, with two corrections or as printed.

    Rows 4 to 10 use E[(1/(N+1) - 1{y=j})^2 | y != j] = 1/(N+1)^2, where the paper has 1/(N+1).
    The mean of row (j,j) is (-alpha^2 + 3 alpha - 1)/N^2, where the paper negates the bracket.

    Args:
        N, T, alpha: as in `lemma_counts`.
        printed: whether the table is that of the paper, without corrections.
    """
    a = jnp.asarray(alpha, float)
    b = 1 / (T * N**2) + 1 / N**3
    mean = jnp.stack(
        [-(a**2) / N, -a / N, -a / N, (2 * a - 1) / N**2, (2 * a - 1) / (a * N**2), a / N**2]
        + [a**2 / N**2, a / N**2, a / N**2, (-(a**2) + 3 * a - 1) / N**2]
    )
    if printed:
        mean = mean.at[9].set(-(a**2 + 3 * a - 1) / N**2)
    # The variances follow, in the ten rows of Table 3.
    noise, rest = a / (T * N) + (a - a**2) / N**2, (1 - a) * b
    rows = [a**2 / (T * N) + (a**3 - a**4) / N**2, noise, noise]
    if printed:
        over_TN2, over_N3 = 1 / (T * N**2), 1 / N**3
        shared, not_noise = a**2 - a + 1, 1 - a
        rows += [over_TN2 + shared * over_N3]
        rows += [(a**3 - a**2 - a + 2) / a**3 * over_TN2 + shared / a**2 * over_N3]
        rows += [(2 - a) * b, (2 - a) * (a * over_TN2 + a**2 * over_N3), (2 - a) * b, (2 - a) * b]
        rows += [(1 + not_noise * (2 - a)) * over_TN2 + (1 + not_noise * (2 - a) ** 2) * over_N3]
        return GradientMoments(mean, jnp.stack(rows))
    rows += [rest, (1 - a) * ((2 / a - 1) / (a * T * N**2) + 1 / (a**2 * N**3)), rest]
    rows += [(1 - a) * (a / (T * N**2) + a**2 / N**3), rest, rest]
    rows += [(1 - a) * ((2 - a) / (T * N**2) + (2 - a) ** 2 / N**3)]
    return GradientMoments(mean, jnp.stack(rows))


@functools.partial(jax.jit, static_argnums=(0, 1))
def pair_moments(N: int, T: int, alpha: Numbers, ybar: int | jax.Array) -> PairMoments:
    """Returns the exact moments of all pairs of counts given ybar, for sequences with z_T = q.

    Args:
        N, T, alpha: as in `lemma_counts`.
        ybar: the correct token after the trigger.
    """
    free = jnp.ones(N + 1).at[N].set(0) / N
    trigger = jnp.zeros(N + 1).at[N].set(alpha).at[ybar].add(1 - alpha)

    # Multiplies by the transition matrix: all of its rows are uniform, except the trigger's.
    def forward(x):
        from_trigger = x[..., TRIGGER, None]
        row_shape = (1,) * (x.ndim - 1) + (N + 1,)
        from_others = x.sum(-1, keepdims=True) - from_trigger
        return from_others * free.reshape(row_shape) + from_trigger * trigger.reshape(row_shape)

    def step(carry, _):
        p, with_last, second, follow = carry
        pairs = forward(jnp.diag(p))
        return count_token(forward(p), forward(with_last), second, follow + pairs), None

    # Adds token z_t, distributed as p, to the counts. cross[k, b] is E[n_k 1{z_t = b}], where n_k
    # counts up to t - 1. In `with_last` n_k counts up to t. second[k, b] is E[n_k n_b].
    def count_token(p, cross, second, follow):
        return p, cross + jnp.diag(p), second + cross + cross.T + jnp.diag(p), follow

    start = (free, jnp.diag(free), jnp.diag(free), jnp.zeros((N + 1, N + 1)))
    carry, _ = jax.lax.scan(step, start, None, length=T - 2)
    p, with_last, second, follow = carry
    last = jnp.zeros(N + 1).at[TRIGGER].set(1)
    cross = with_last.sum(1)[:, None] * last[None]
    follow = follow + p[:, None] * last[None]
    p, with_last, second, follow = count_token(last, cross, second, follow)
    return PairMoments(with_last.sum(1), second, follow)


@functools.partial(jax.jit, static_argnums=2)
def _lemma_counts(N, alpha, T):
    one = jnp.ones(())
    free = jnp.stack([one, 0 * one, one, one, N - 3]) / N
    means, seconds = [], []
    # The states 0 .. 4 are q, tau, j, k and all others. `tracked` are the states that the cases of
    # `LEMMAS` count for this ybar (q or j), in the same order.
    for ybar_state, tracked in ((0, (0, 1, 3)), (2, (0, 1, 2, 3))):
        trigger = jnp.zeros(5).at[1].set(alpha).at[ybar_state].add(1 - alpha)
        transition = jnp.broadcast_to(free[None], (5, 5)).at[0].set(trigger)
        is_k_KxS = jnp.eye(5)[jnp.array(tracked)]  # one row for each counted state

        def step(carry, _, transition=transition, is_k_KxS=is_k_KxS):
            p, first, second = carry
            p, first, second = p @ transition, first @ transition, second @ transition
            p_KxS = is_k_KxS * p[None]
            return (p, first + p_KxS, second + 2 * is_k_KxS * first + p_KxS), None

        start = (free, is_k_KxS * free[None], is_k_KxS * free[None])
        (_, first, second), _ = jax.lax.scan(step, start, None, length=T - 1)
        means.append(first.sum(1))
        seconds.append(second.sum(1))
    return CountMoments(jnp.concatenate(means), jnp.concatenate(seconds))
