"""The covariance SDE: coefficients, exact one-step moments, solver and finite networks."""

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.models.attention import mixing_matrix, mixing_std
from theory import covariance_sde as cs
from theory.covariance_sde import Mixing
from theory.covariance_sde.solver import centre

VARIANTS = {
    "unmasked": Mixing(),
    "causal": Mixing(causal=True),
    "heads": Mixing(heads=2, scale="head"),
    "projection": Mixing(causal=True, output_projection=True),
    "number": Mixing(scale=0.2),
}
ALL_VARIANTS = Mixing(causal=True, heads=2, output_projection=True, scale="head")


def some_phi(m: int, seed: int = 0) -> np.ndarray:
    x = np.random.default_rng(seed).normal(size=(m, m + 2))
    return x @ x.T / (m + 2)


def z_scores(samples, mean, covariance) -> tuple[float, float]:
    """Returns the largest |z| of the means and the root mean square z of the covariances."""
    upper = np.triu_indices(mean.shape[-1])
    x = np.asarray(samples)[:, upper[0], upper[1]]
    z_mean = (x.mean(0) - np.asarray(mean)[upper]) / (x.std(0) / len(x) ** 0.5)
    centred = x - x.mean(0)
    second, fourth = centred.T @ centred, (centred**2).T @ (centred**2)
    cov = second / len(x)
    error = np.sqrt((fourth / len(x) - cov**2) / len(x))
    z_cov = ((cov - np.asarray(covariance)) / error)[np.triu_indices(len(cov))]
    return np.abs(z_mean).max(), np.sqrt((z_cov**2).mean())


def test_drift_is_b_times_the_identity():
    phi = some_phi(5)
    b = np.trace(phi) / 5 - phi.sum() / 25
    np.testing.assert_allclose(cs.drift(phi), b * np.eye(5), rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(cs.drift(phi, Mixing(heads=4, scale="head")), 4 * b * np.eye(5))
    # Identical tokens have no drift, and a batch has the drifts of its members.
    np.testing.assert_allclose(cs.drift(np.ones((3, 3))), 0, atol=1e-15)
    both = np.stack([phi, some_phi(5, 1)])
    np.testing.assert_allclose(cs.drift(both)[1], cs.drift(both[1]))


def test_the_causal_drift_of_a_token_is_that_of_the_tokens_before_it():
    phi = some_phi(5)
    drift = np.diag(cs.drift(phi, Mixing(causal=True)))
    for g in range(1, 6):
        seen = phi[:g, :g]
        np.testing.assert_allclose(drift[g - 1], (np.trace(seen) - seen.sum() / g) / 5, atol=1e-14)
    assert abs(drift[0]) < 1e-15
    np.testing.assert_allclose(drift[-1], cs.drift(phi)[0, 0])


def test_covariance_against_the_printed_sums():
    m, phi = 3, some_phi(3)

    def c(b, d):
        return phi[:, b] @ phi[:, d] / m - phi[:, b].mean() * phi[:, d].mean()

    for (i, (a, b)), (j, (k, d)) in _index_pairs(m):
        value = phi[a, k] * phi[b, d] + phi[a, d] * phi[b, k]
        mixing = (a == k) * c(b, d) + (a == d) * c(b, k) + (b == k) * c(a, d) + (b == d) * c(a, k)
        np.testing.assert_allclose(cs.covariance(phi)[i, j], value + mixing, rtol=1e-12)


def _index_pairs(m):
    upper = list(enumerate(zip(*np.triu_indices(m), strict=True)))
    return [(first, second) for first in upper for second in upper]


def test_covariance_variants_are_positive_and_scale():
    phi = some_phi(4)
    unmasked = cs.covariance(phi)
    value = cs.covariance(phi, Mixing(output_projection=True)) - unmasked  # one more Sigma^v
    a, b = np.triu_indices(4)
    np.testing.assert_allclose(np.diag(value), phi[a, a] * phi[b, b] + phi[a, b] ** 2, rtol=1e-12)
    np.testing.assert_allclose(cs.covariance(phi, Mixing(heads=4)) - value, (unmasked - value) / 4)
    np.testing.assert_allclose(cs.covariance(phi, Mixing(heads=4, scale="head")), unmasked)
    for mixing in VARIANTS.values():
        assert np.linalg.eigvalsh(cs.covariance(phi, mixing, width=20)).min() > -1e-12


def test_exact_covariance_tends_to_the_sde():
    phi = some_phi(4)
    for name in ("unmasked", "causal", "heads", "projection"):
        mixing = VARIANTS[name]
        limit = cs.covariance(phi, mixing)
        gaps = [
            float(jnp.abs(n * cs.one_step_covariance(phi, n, mixing) - limit).max())
            for n in (100, 1000)
        ]
        assert 9 < gaps[0] / gaps[1] < 11


def test_mixing_rate_is_that_of_the_model():
    n, m, heads = 48, 6, 4
    for scale in ("theory", "head", 0.05):
        std = mixing_std(jax.random.key(0), scale, heads, m, n)[0]
        np.testing.assert_allclose(
            Mixing(heads=heads, scale=scale).kappa(m, n), m * n * std**2, rtol=1e-12
        )


def test_the_steps_mixing_is_that_of_the_model_transposed():
    key, identity = jax.random.key(0), np.eye(5)
    w = jax.random.normal(key, (1, 5, 5))[0]
    for causal in (False, True):
        a = centre(w.T, causal) + identity
        np.testing.assert_allclose(a.T, mixing_matrix(key, 1, 5, 1.0, causal)[0], atol=1e-14)
        np.testing.assert_allclose(a.sum(0), 1, atol=1e-14)


def test_mean_in_closed_form():
    phi, tau = some_phi(5), 0.7
    t, overlap = cs.mean_trace(phi, tau)
    mean = cs.mean(phi, tau)
    np.testing.assert_allclose([jnp.trace(mean) / 5, mean.mean()], [t, overlap], rtol=1e-12)
    # Many small steps of the exact one-layer mean, unmasked and causal.
    for causal in (False, True):
        layered, n = jnp.asarray(phi), 4000
        layer = functools.partial(cs.one_step_mean, width=n, mixing=Mixing(causal))
        layered = jax.lax.fori_loop(0, int(tau * n), lambda _, x, f=layer: f(x), layered)
        np.testing.assert_allclose(layered, cs.mean(phi, tau, Mixing(causal)), rtol=3e-4)
    layered = cs.one_step_mean(cs.one_step_mean(phi, 10), 10)
    t, overlap = cs.mean_trace(phi, 0.2, width=10)
    np.testing.assert_allclose([jnp.trace(layered) / 5, layered.mean()], [t, overlap], rtol=1e-12)


@pytest.mark.parametrize(
    "mixing",
    [
        Mixing(),
        *(pytest.param(v, marks=pytest.mark.slow) for v in VARIANTS.values() if v != Mixing()),
        pytest.param(ALL_VARIANTS, marks=pytest.mark.slow),
    ],
)
def test_one_layer_has_the_exact_moments(mixing):
    phi, n = some_phi(4), 20
    samples = cs.measure(jax.random.key(1), phi, n, 1, 40_000, mixing=mixing)
    mean = cs.one_step_mean(phi, n, mixing)
    worst, rms = z_scores(samples, mean, cs.one_step_covariance(phi, n, mixing))
    assert worst < 4 and 0.5 < rms < 1.5


def test_the_literal_recursion_has_the_exact_moments():
    phi, n = some_phi(4), 8
    network = {"mixing": ALL_VARIANTS, "network": cs.Network()}
    samples = cs.measure(jax.random.key(2), phi, n, 1, 40_000, **network)
    mean = cs.one_step_mean(phi, n, ALL_VARIANTS)
    worst, rms = z_scores(samples, mean, cs.one_step_covariance(phi, n, ALL_VARIANTS))
    assert worst < 4 and 0.5 < rms < 1.5


def test_a_decoder_without_skips_norms_and_mlps_is_the_recursion():
    phi, n, layers = some_phi(4), 8, [0, 1, 2]
    key, decoder = jax.random.key(3), cs.Decoder()
    samples = cs.measure(key, phi, n, 2, 8_000, layers, ALL_VARIANTS, decoder)
    np.testing.assert_allclose(samples[:, 0], np.broadcast_to(phi, (8_000, 4, 4)), atol=1e-12)
    mean = cs.one_step_mean(phi, n, ALL_VARIANTS)
    worst, rms = z_scores(samples[:, 1], mean, cs.one_step_covariance(phi, n, ALL_VARIANTS))
    assert worst < 4 and 0.5 < rms < 1.5
    recursion = cs.measure(jax.random.key(4), phi, n, 2, 8_000, mixing=ALL_VARIANTS)
    for statistic in (cs.log_trace, cs.correlation):
        x, y = np.asarray(statistic(samples[:, 2])), np.asarray(statistic(recursion))
        assert abs(x.mean() - y.mean()) < 4 * (x.var() / len(x) + y.var() / len(y)) ** 0.5


def test_residuals_norms_and_mlps_change_the_decoder():
    phi, decoder = some_phi(4), cs.Decoder(2.0, branch_scale=0.0, use_norm=True, use_mlp=True)
    networks = {"mixing": ALL_VARIANTS, "network": decoder}
    doubled = cs.measure(jax.random.key(5), phi, 8, 1, 3, **networks)
    np.testing.assert_allclose(doubled, np.broadcast_to(16 * phi, (3, 4, 4)), atol=1e-12)


def test_a_width_below_m_is_allowed():
    phi, n = some_phi(4), 2
    samples = cs.measure(jax.random.key(3), phi, n, 1, 40_000)
    worst, rms = z_scores(samples, cs.one_step_mean(phi, n), cs.one_step_covariance(phi, n))
    assert worst < 4 and 0.5 < rms < 1.5
    assert np.linalg.matrix_rank(np.asarray(samples[:5])).max() == n


@pytest.mark.parametrize("causal", [False, True])
def test_one_step_of_the_solver_is_one_layer_of_width_one_over_dt(causal):
    phi, n = some_phi(4), 20
    mixing = Mixing(causal)
    samples = cs.predict(jax.random.key(4), phi, 1 / n, 40_000, 1, mixing=mixing)
    mean = cs.one_step_mean(phi, n, mixing)
    worst, rms = z_scores(samples, mean, cs.one_step_covariance(phi, n, mixing))
    assert worst < 4 and 0.5 < rms < 1.5


@pytest.mark.parametrize("variant", ["heads", "projection"])
def test_one_small_step_of_the_variants(variant):
    phi, n, mixing = some_phi(4), 1000, VARIANTS[variant]
    samples = cs.predict(jax.random.key(5), phi, 1 / n, 40_000, 1, mixing=mixing)
    mean = cs.one_step_mean(phi, n, mixing)
    worst, rms = z_scores(samples, mean, cs.covariance(phi, mixing) / n)
    assert worst < 4 and 0.5 < rms < 1.5


def test_paths_are_positive_and_have_the_exact_means():
    phi, times = some_phi(3), [0.1, 0.5]
    for mixing in (Mixing(), Mixing(causal=True, heads=2, scale="head")):
        paths = cs.predict(jax.random.key(6), phi, 0.5, 4000, 20, times, mixing)
        eigenvalues = np.linalg.eigvalsh(paths)
        assert (eigenvalues[..., 0] > -1e-12 * eigenvalues[..., -1]).all()
        for i, tau in enumerate(times):
            error = paths[:, i].std(0) / 4000**0.5
            assert (jnp.abs(paths[:, i].mean(0) - cs.mean(phi, tau, mixing)) < 4 * error).all()


def test_euler_agrees_but_leaves_the_positive_cone():
    phi, n = 0.5 * np.eye(3) + 0.5, 1000
    euler = {"mixing": Mixing(causal=True), "solver": cs.Euler()}
    samples = cs.predict(jax.random.key(7), phi, 1 / n, 40_000, 1, **euler)
    mean = cs.one_step_mean(phi, n, euler["mixing"])
    worst, rms = z_scores(samples, mean, cs.covariance(phi, euler["mixing"]) / n)
    assert worst < 4 and 0.5 < rms < 1.5
    rough = cs.predict(jax.random.key(7), phi, 1.0, 500, 20, solver=cs.Euler())
    assert np.linalg.eigvalsh(rough)[:, 0].min() < -1e-3


def test_saving_at_times_does_not_change_the_path():
    key, phi = jax.random.key(0), some_phi(3)
    end = cs.predict(key, phi, 0.4, 5, 8)
    on_grid = cs.predict(key, phi, 0.4, 5, 8, times=[0.0, 0.1, 0.3, 0.4])
    np.testing.assert_allclose(on_grid[:, 3], end, rtol=1e-12)  # saving does not change the path
    np.testing.assert_allclose(on_grid[:, 0], np.broadcast_to(phi, (5, 3, 3)), rtol=1e-12)
    off_grid = cs.predict(key, phi, 0.4, 5, 8, times=[0.33])
    assert off_grid.shape == (5, 1, 3, 3) and off_grid.dtype == jnp.float64
    root = cs.predict(key, phi, 0.4, 5, 8, solver=cs.Factor(keep_root=True))
    np.testing.assert_allclose(jnp.swapaxes(root, 1, 2) @ root, end, rtol=1e-10)


def test_jit_and_vmap():
    key, phi = jax.random.key(0), some_phi(3)
    direct = cs.predict(key, phi, 0.2, 4, 3)
    jitted = jax.jit(lambda k, x, tau: cs.predict(k, x, tau, 4, 3))(key, phi, 0.2)
    np.testing.assert_allclose(direct, jitted, rtol=1e-12)
    many = jax.vmap(lambda x: cs.predict(key, x, 0.2, 4, 3))(jnp.stack([phi, 2 * phi]))
    np.testing.assert_allclose(many[1], 2 * direct, rtol=1e-10)  # the SDE is homogeneous


@pytest.mark.slow
def test_saving_does_not_change_the_networks():
    key, phi = jax.random.key(0), some_phi(3)
    trajectory = cs.measure(key, phi, 10, 4, 3, layers=[0, 2, 4])
    np.testing.assert_allclose(trajectory[:, 2], cs.measure(key, phi, 10, 4, 3), rtol=1e-12)


def test_measured_layers_include_the_input():
    key, phi = jax.random.key(0), some_phi(3)
    trajectory = cs.measure(key, phi, 10, 4, 3, layers=[0, 2, 4])
    assert trajectory.shape == (3, 3, 3, 3)
    np.testing.assert_allclose(trajectory[:, 0], np.broadcast_to(phi, (3, 3, 3)), rtol=1e-12)


def test_overflow_is_reported():
    with pytest.warns(RuntimeWarning, match="of 3 paths overflowed"):
        paths = cs.predict(jax.random.key(0), 1.5e308 * np.eye(2), 0.1, 3, 4)
    assert paths.shape == (3, 2, 2) and int(cs.overflowed(paths)) > 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert int(cs.overflowed(cs.predict(jax.random.key(0), np.eye(2), 0.5, 3, 4))) == 0


@pytest.mark.slow
@pytest.mark.parametrize(("m", "n", "causal"), [(4, 20, False), (6, 50, True), (8, 50, False)])
def test_one_step_moments_of_a_million_samples(m, n, causal):
    phi = some_phi(m)
    samples = np.concatenate(
        [cs.measure(jax.random.key(i), phi, n, 1, 250_000, mixing=Mixing(causal)) for i in range(4)]
    )
    covariance = cs.one_step_covariance(phi, n, Mixing(causal))
    worst, rms = z_scores(samples, cs.one_step_mean(phi, n, Mixing(causal)), covariance)
    assert worst < 4 and 0.6 < rms < 1.4
