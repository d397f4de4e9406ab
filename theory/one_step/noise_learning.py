"""The learning of the noise token: Equation (7) and Appendix B.3 of arXiv 2406.03068."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from theory.numerics import Numbers, check_count, check_range, in_float64
from theory.one_step.attention_ordering import (
    Setting,
    average_over_ybar,
    moments_by_ybar,
    value_matrix,
)
from theory.one_step.trigger_process import check_process


class NoiseMatrices(NamedTuple):
    """Entries of the matrices A and B of Equation (7), in the row of E(q).

    Both are mean derivatives of logits with respect to W_QK at W_QK = 0. A averages the logits of
    the tokens k < N, and B belongs to the logit of the noise. The column is E of the noise
    (`_noise`) or E of an ordinary token (`_token`).
    """

    A_noise: jax.Array
    A_token: jax.Array
    B_noise: jax.Array
    B_token: jax.Array


@in_float64
def noise_matrices(N: int, T: int, alpha: float) -> NoiseMatrices:
    """Returns A and B of Equation (7) after one step of W_V from zero, exact for x_t = E(z_t).

    For T >> N >> 1 and with c = (alpha - 1/(N+1))/N,

        B_tau ~ c (alpha-1) (alpha/N) (1 - alpha/N) < 0
        B_k   ~ c (1-alpha) alpha/N^2 > 0.

    The forced last token z_T = q subtracts c/(T N) from B_k. The residuals of (7) sum to zero over
    all outputs, so A = -B/N exactly. A is of order 1/N^3 on tau and 1/N^4 on a token.

    Args:
        N: number of ordinary tokens, at least 4.
        T: the length.
        alpha: the probability of the noise after the trigger.
    """
    check_process(N, T, alpha, least_N=4)
    return _noise_matrices(N, T, alpha)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _noise_matrices(N, T, alpha):
    V, _ = value_matrix(N, T, alpha, Setting(sizes=(1.0, 0.0)))
    # A row of V times one of these matrices is g(l) of `attention_ordering` without the residual.
    g_maps = [jnp.diag(pair.mean) / T - pair.second / T**2 for pair in moments_by_ybar(N, T, alpha)]

    def entries(row_of_V):
        return average_over_ybar([row_of_V @ g_map for g_map in g_maps], N, False)

    A, B = entries(V[:N].mean(0)), entries(V[N])
    return NoiseMatrices(A.noise, A.token, B.noise, B.token)


@in_float64
def noise_recursion(
    eta: Numbers, alpha: Numbers, N: int, steps: int
) -> tuple[jax.Array, jax.Array]:
    """Iterates the recursion of Appendix B.3 for the logit of the noise token.

        xi_{t+1} = xi_t + eta (alpha - e^{xi_t}/(N + e^{xi_t})),     xi_1 = 0

    The paper prints xi_t on both sides. For alpha <= 1/2 and eta <= 1/(alpha(1-alpha)) the path
    does not overshoot the fixed point. For larger alpha that bound on eta fails.

    Args:
        eta: step sizes; broadcast against alpha.
        alpha: probabilities of the noise after a trigger.
        N: number of ordinary tokens.
        steps: number of steps.

    Returns:
        The path, (steps + 1, *shape), and the fixed point log N + log(alpha/(1-alpha)), (*shape).
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
