"""Bartlett coordinates against the matrices themselves and the distribution of real weights."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.theory.attention_paths.prior_draws import draw_prior
from theory.attention_paths import bartlett

HEADS, WIDTHS = (2, 3), (9, 7, 8)


@pytest.fixture
def theta():
    layout = bartlett.full_layout(HEADS)
    return layout, 0.4 * np.random.default_rng(0).standard_normal((2, layout.size))


def test_the_coordinates_are_counted_for_full_and_singular_matrices():
    for heads, size in [((2, 2), 14), ((4, 4), 147), ((3, 3, 3), 430), ((8, 8), 2117), ((), 1)]:
        assert bartlett.full_layout(heads).size == size
    # Singular matrices have sum_l [H r_{l+1} r_l - r_l (r_l - 1)/2] coordinates.
    assert bartlett.ranked_layout((2, 2), (3, 3, 3)).size == 1 + (4 - 1) + (4 * 3 - 3)


def test_coordinates_and_matrices_have_the_same_entropy(theta):
    layout, (first, _) = theta
    ratios = [w / 9 for w in WIDTHS]

    @jax.jit
    def all_of(theta):
        chain = bartlett.order_parameters(layout, theta)
        expected = matrix_neg_entropy(HEADS, chain, ratios)
        value = bartlett.neg_entropy(layout, theta, ratios)
        return chain, expected, value, bartlett.coordinates(layout, chain)

    chain, expected, value, back = all_of(first)
    assert [np.shape(U) for U in chain] == [(), (3, 3), (6, 6)]
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    np.testing.assert_allclose(back, first, atol=1e-12)
    identity = all_of(np.zeros(layout.size))[2]
    np.testing.assert_allclose(identity, ratios[0] * 6 + ratios[1] * 3 + ratios[2], rtol=1e-12)


def matrix_neg_entropy(heads: Sequence[int], chain: Sequence, width_ratios: Sequence) -> jax.Array:
    """Returns sum_l (N_l/N) [-ln det U + ln det Ut + Tr Ut^-1 U] from the matrices."""
    total = 0.0
    for head_count, ratio, above, U in zip(
        (1, *heads[::-1]),
        width_ratios[::-1],
        (jnp.eye(len(jnp.atleast_2d(chain[0]))), *chain),
        chain,
    ):
        U, above = (jnp.atleast_2d(jnp.asarray(x)) for x in (U, above))
        prior = jnp.kron(jnp.eye(head_count, dtype=U.dtype), above)
        log_dets = jnp.linalg.slogdet(prior)[1] - jnp.linalg.slogdet(U)[1]
        total += ratio * (log_dets + jnp.trace(jnp.linalg.solve(prior, U)))
    return jnp.asarray(total)


def log_density(heads, chain, widths):
    """Returns ln p(chain) with respect to dU from the Wishart densities, up to a constant."""
    total = 0.0
    for U in map(jnp.atleast_2d, chain):
        total -= (len(U) + 1) / 2 * jnp.linalg.slogdet(U)[1]
    return total - matrix_neg_entropy(heads, chain, [width / 2 for width in widths])


def test_log_prior_is_the_wishart_density_with_its_jacobian(theta):
    layout, thetas = theta

    def log_jacobian(t):
        def vech(x):
            chain = bartlett.order_parameters(layout, x)
            return jnp.concatenate([U[np.triu_indices(len(U))] for U in map(jnp.atleast_2d, chain)])

        return jnp.linalg.slogdet(jax.jacfwd(vech)(t))[1]

    def both(t):
        density = log_density(HEADS, bartlett.order_parameters(layout, t), WIDTHS)
        return bartlett.log_prior(layout, t, WIDTHS), density + log_jacobian(t)

    (ours, expected) = jax.jit(jax.vmap(both))(thetas)
    np.testing.assert_allclose(ours[1] - ours[0], expected[1] - expected[0], rtol=1e-10)


# The density of invertible matrices is tested above.
@pytest.mark.parametrize("N", [2, pytest.param(6, marks=pytest.mark.slow)])
def test_prior_moments(N):
    """Moments are exact at every width, also below the number of paths, where U is singular."""
    layout, draws = bartlett.ranked_layout((2, 2), (N,) * 3), 40_000
    keys = jax.random.split(jax.random.key(N), draws)

    def first(key):
        theta = draw_prior(key, layout, (N,) * 3)
        return bartlett.order_parameters(layout, theta)[-1]

    U = np.asarray(jax.jit(jax.vmap(first))(keys))
    assert np.linalg.matrix_rank(U[0], tol=1e-9) == min(N, 4)
    a = 1 + 2 / N
    expected_squares = {
        (0, 0): a**3,
        (3, 3): a**3,
        (0, 2): a**2 / N,  # differ in h_1 only
        (0, 1): a * (2 + 1 / N) / N,  # differ in h_2 only
    }
    assert_within(U, np.eye(4), 4.5)
    for (i, j), value in expected_squares.items():
        assert_within(U[:, i, j] ** 2, value, 4)


def assert_within(draws, expected, errors):
    error = draws.std(0) / len(draws) ** 0.5
    assert (np.abs(draws.mean(0) - expected) < errors * error).all()
