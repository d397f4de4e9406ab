"""The collapsed sampler against sampling all weights, importance sampling and exact identities."""

import functools
import pickle

import jax
import numpy as np
import pytest

from jaxformer.models.attention_paths import AttentionPaths, AttentionPathsSpec
from tests.optimised import optimised
from tests.theory.attention_paths.posterior_draws import (
    N,
    T,
    check_posteriors_agree,
    draw_posterior,
)
from tests.theory.attention_paths.prior_draws import draw_prior
from theory import attention_paths
from theory.attention_paths import bartlett
from theory.attention_paths.diagnostics import monte_carlo_error
from theory.attention_paths.nuts import potential, start
from theory.attention_paths.reconstruction import reconstruct


@pytest.fixture(scope="module")
def fast():
    """Compiles with all optimisations, which pays off for thousands of gradients."""
    with optimised():
        yield


@pytest.fixture(scope="module")
def collapsed(tiny):
    with optimised():
        return draw_posterior(tiny, 1600, 2, "collapsed")


@pytest.fixture(scope="module")
def weights(tiny):
    with optimised():
        return draw_posterior(tiny, 350, 1, "weights", warmup=150)


def test_the_two_log_densities(tiny):
    """The functions that NUTS samples from, against their definitions in NumPy."""
    xi, labels, rng = tiny.attentioned, tiny.labels, np.random.default_rng(0)
    differences, expected = [], []
    for method in ("collapsed", "weights"):
        args = (xi, labels, (6, 7, 8), T, (2, 2), 10, 1, method)
        sampler = attention_paths.Sampler.build(*args)
        spec, data = sampler._spec(), sampler._data()
        if method == "collapsed":
            z = list(rng.standard_normal((2, 14)))
        else:
            init = AttentionPaths(AttentionPathsSpec((2, 2), (6, 7, 8))).init
            shapes = jax.eval_shape(
                functools.partial(init, method="from_attentioned"), jax.random.key(0), xi
            )
            z = [jax.tree.map(lambda s: rng.standard_normal(s.shape), shapes) for _ in range(2)]
        value = jax.jit(lambda z, spec=spec, data=data: potential(spec, data, z))
        differences.append(float(value(z[1]) - value(z[0])))
        expected.append(np.subtract(*[potential_in_numpy(method, x, xi, labels) for x in z[::-1]]))
    np.testing.assert_allclose(differences, expected, rtol=1e-9)


def test_the_mass_matrix_is_dense_if_the_warmup_is_long_enough(tiny):
    problem = tiny.attentioned, tiny.labels, N, T, (2, 2)
    keys = jax.random.split(jax.random.key(0), 1)
    for warmup, shape in ((70, (1, 14, 14)), (69, (1, 14))):
        sampler = attention_paths.Sampler.build(*problem, warmup, 1)
        first_state = functools.partial(start, sampler._spec())
        state = jax.eval_shape(first_state, sampler._data(), np.zeros(14), keys)
        assert state.adapt_state.inverse_mass_matrix.shape == shape


def potential_in_numpy(method, z, xi, labels):
    widths = np.array([6, 7, 8])
    if method == "weights":
        p = z["params"]
        embed, a = p["embed"]["kernel"], p["readout"]["kernel"]
        V1, V2 = (p[f"block_{i}"]["attn"]["value"]["kernel"] for i in range(2))
        f = np.einsum(
            "pabn,ni,iaj,jbk,k->p", xi.reshape(40, 2, 2, 29), embed, V1, V2, a, optimize=True
        )
        f = f / (4 * 29 * widths.prod()) ** 0.5
        squares = sum((leaf**2).sum() for leaf in jax.tree.leaves(z))
        return squares / 2 + ((f - labels) ** 2).sum() / (2 * T)
    layout = bartlett.full_layout((2, 2))
    theta = z * np.asarray(bartlett.prior_scale(layout, widths))
    chain = jax.jit(lambda t: bartlett.order_parameters(layout, t))(theta)
    U = np.asarray(chain[-1])
    noisy = np.einsum("ab,pan,qbn->pq", U, xi, xi, optimize=True) / (4 * 29) + T * np.eye(40)
    likelihood = np.linalg.slogdet(noisy)[1] + labels @ np.linalg.solve(noisy, labels)
    return likelihood / 2 - float(bartlett.log_prior(layout, theta, widths))


@pytest.mark.slow
def test_collapsed_agrees_with_sampling_all_weights(collapsed, weights, tiny):
    check_posteriors_agree(collapsed, weights, tiny)
    assert collapsed.U.shape == (1600, 4, 4) and weights.U.shape == (350, 4, 4)


def check_diagnostics(posterior, depth, divergent):
    record = posterior.diagnostics
    assert record["divergences"] <= divergent * len(posterior.U)
    assert record["r_hat"] < 1.05 and record["ess"] > 40
    assert 1 < record["num_steps"] <= record["num_steps_max"] < 2 ** record["tree_depth_max"]
    assert record["tree_depth_max"] <= depth


@pytest.mark.slow  # 1,600 draws; importance sampling below judges the same sampler
def test_diagnostics(collapsed):
    check_diagnostics(collapsed, depth=7, divergent=0.01)


@pytest.mark.slow
def test_collapsed_trajectories_are_four_times_shorter(collapsed, weights):
    check_diagnostics(weights, depth=10, divergent=0.1)
    assert collapsed.diagnostics["num_steps"] * 4 < weights.diagnostics["num_steps"]


@pytest.mark.slow  # needs 1,600 draws
def test_ward_identities(collapsed):
    """E[G U] = N (I - E[Ut^-1 U]) and E[U G U] = (N + d + 1) E[U] - N E[U Ut^-1 U]."""
    U, G = collapsed.U, collapsed.gradients()
    prior = np.stack([np.kron(np.eye(2), U2) for U2 in collapsed.chain[1]])
    ratio = np.linalg.solve(prior, U)
    first = G @ U - N * (np.eye(4)[None] - ratio)
    second = U @ G @ U - (N + 4 + 1) * U + N * U @ ratio
    for gap in (first, second):
        gap = gap.reshape(2, -1, 4, 4)
        assert (np.abs(gap.mean((0, 1))) < 4 * monte_carlo_error(gap)).all()


@pytest.mark.slow  # needs 1,600 draws
def test_reconstructed_weights_have_the_order_parameter_of_the_draw(collapsed):
    params = collapsed.weights(jax.random.key(1), 7)
    model = AttentionPaths(AttentionPathsSpec((2, 2), N))
    v_DxN, _ = jax.jit(lambda p: model.apply(p, 29, method="path_weights"))(params)
    np.testing.assert_allclose(v_DxN @ v_DxN.T, collapsed.U[7], atol=1e-10)


@pytest.mark.slow
def test_reconstructed_weights_are_posterior_draws(fast, collapsed, tiny):
    """f is homogeneous of degree L + 2: E|w|^2 = #weights - (L + 2) / T E[(f - y) . f].

    The right side is exact given U, and the left side is a mean over reconstructed weights. The
    Gram matrix of V_eff and the mean squared residual are compared in the same way.
    """
    labels, model = tiny.labels, AttentionPaths(AttentionPathsSpec((2, 2), N))
    thetas = collapsed.theta[::2]
    keys = jax.random.split(jax.random.key(3), len(thetas))
    xi = np.asarray(tiny.attentioned)

    def rebuild(key, theta):
        layout = collapsed.problem.layout
        params = reconstruct(key, layout, theta, (N,) * 3, xi, labels, T)
        squares = sum((leaf**2).sum() for leaf in jax.tree.leaves(params))
        _, V_eff = model.apply(params, 29, method="path_weights")
        return squares, V_eff, model.apply(params, xi, method="from_attentioned")

    squares, V_eff, f = map(np.asarray, jax.jit(jax.vmap(rebuild))(keys, thetas))
    count = sum(np.prod(s) for s in [(29, N), (N, 2, N), (N, 2, N), (N,)])

    def given_U(U):
        K = np.einsum("ab,pan,qbn->pq", U, xi, xi, optimize=True) / (4 * 29)
        inverse = np.linalg.inv(K + T * np.eye(40))
        alpha = inverse @ labels
        trace = np.trace(inverse)
        fit = T**2 * alpha @ alpha + T * 40 - T**2 * trace - T * labels @ alpha
        return count - 4 / T * fit, T**2 * alpha @ alpha + T * 40 - T**2 * trace

    expected = np.array([given_U(U) for U in collapsed.U[::2]])
    residuals = ((f - labels[None]) ** 2).sum(1)
    for values, column in ((squares, 0), (residuals, 1)):
        gap = (values - expected[:, column])[None]
        assert abs(gap.mean()) < 4 * monte_carlo_error(gap)
    grams = np.einsum("sdn,sen->sde", V_eff, V_eff) / 29
    exact = collapsed.U - collapsed.U @ collapsed.gradients() @ collapsed.U / 29
    gap = (grams - exact[::2])[None]
    assert (np.abs(gap.mean((0, 1))) < 4 * monte_carlo_error(gap)).all()
    np.testing.assert_allclose(collapsed.gram_effective(), exact.mean(0), rtol=1e-10)


def test_reconstruction_at_any_heads_widths_and_rank():
    heads, widths = (3, 2), (4, 3, 2)  # six paths through a layer of four: U is singular
    layout = bartlett.ranked_layout(heads, widths)
    rng = np.random.default_rng(0)
    xi, labels = rng.standard_normal((6, int(np.prod(heads)), 8)), np.ones(6)
    model = AttentionPaths(AttentionPathsSpec(heads, widths))

    def both(key):
        theta = draw_prior(key, layout, widths)
        params = reconstruct(key, layout, theta, widths, xi, labels, 0.1)
        v_DxN, _ = model.apply(params, 8, method="path_weights")
        return v_DxN @ v_DxN.T, bartlett.order_parameters(layout, theta)[-1], params

    from_weights, expected, params = jax.jit(both)(jax.random.key(0))
    np.testing.assert_allclose(from_weights, expected, atol=1e-10)
    assert np.linalg.matrix_rank(expected) == layout.shapes[-1][1] == 4
    assert params["params"]["block_0"]["attn"]["value"]["kernel"].shape == (
        widths[0],
        heads[0],
        widths[1],
    )


@pytest.mark.slow
def test_singular_posterior_against_importance_sampling(fast):
    """N = 2 with four paths. NumPy draws weights from the prior and weighs them by the data.

    With four examples at T = 0.3 importance sampling has some thousand effective draws.
    """
    rng, width, temperature, samples = np.random.default_rng(0), 2, 0.3, 200_000
    xi, labels = rng.standard_normal((4, 4, 3)), np.array([1.0, 1.0, -1.0, -1.0])
    xi_test = rng.standard_normal((2, 4, 3))

    v = rng.standard_normal((samples, 1, width))  # a
    for _ in range(2):
        V = rng.standard_normal((samples, 2, width, width))
        v = (v[:, None] @ V).reshape(samples, -1, width) / width**0.5
    U = v @ v.swapaxes(1, 2) / width
    V_eff = v @ rng.standard_normal((samples, width, 3)) / width**0.5
    f = V_eff.reshape(samples, -1) @ np.concatenate([xi, xi_test]).reshape(6, -1).T / 12**0.5
    log_weight = -((f[:, :4] - labels) ** 2).sum(1) / (2 * temperature)
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()

    posterior = attention_paths.sample(
        jax.random.key(0), xi, labels, width, temperature, (2, 2), 3000, 500, 2,
        chain_method="vectorized",
    )  # fmt: skip
    assert posterior.diagnostics["r_hat"] < 1.02
    rows, columns = np.triu_indices(4)
    for prior_values, draws in (
        (U[:, rows, columns], posterior.U[:, rows, columns]),
        (f[:, 4:], np.einsum("sdn,bdn->sb", posterior.linear, xi_test)),
    ):
        mean = weight @ prior_values
        error = np.sqrt(weight**2 @ (prior_values - mean) ** 2)
        by_chain = draws.reshape(2, -1, draws.shape[1])
        gap = by_chain.mean((0, 1)) - mean
        assert (np.abs(gap) < 4 * np.hypot(error, monte_carlo_error(by_chain))).all()
    spread = weight @ f[:, 4:] ** 2 - (weight @ f[:, 4:]) ** 2
    np.testing.assert_allclose(posterior.variance(xi_test), spread, rtol=0.1)


@pytest.mark.slow  # tests/experiments/recipes/test_posterior.py kills the command that does this
def test_a_run_resumes_from_its_saved_state(fast, tiny):
    """A state saved in the warm-up or after it gives the same bits in a new sampler."""
    args = (tiny.attentioned, tiny.labels, N, T, (2, 2), 300, 2)
    whole = attention_paths.Sampler.build(*args)
    state, chunks = whole.start(jax.random.key(0)), []
    for _ in range(4):
        state, chunk = whole.advance(state, 90)
        chunks.append(chunk)
    assert [chunk["num_steps"].shape[1] for chunk in chunks] == [0, 0, 0, 60]
    saved, parts = whole.start(jax.random.key(0)), []
    for _ in range(4):
        fresh = attention_paths.Sampler.build(*args)
        saved, part = fresh.advance(pickle.loads(pickle.dumps(saved)), 90)
        parts.append(part)
    np.testing.assert_array_equal(whole.posterior(chunks).U, whole.posterior(parts).U)


@pytest.mark.slow
@pytest.mark.parametrize("width", [10, 100])
def test_paper_size_agreement(fast, width, paper):
    ours = draw_posterior(paper, 4000, 2, "collapsed", width=width, temperature=0.01)
    theirs = draw_posterior(paper, 200, 1, "weights", warmup=150, width=width, temperature=0.01)
    check_posteriors_agree(ours, theirs, paper)


@pytest.mark.slow
def test_a_narrow_network_of_paper_size_has_the_reference_means(fast, paper):
    """N = 3 with four paths has 13 coordinates; the reference means have errors."""
    ours = draw_posterior(paper, 8000, 2, "collapsed", width=3, temperature=0.01, target_accept=0.9)
    assert ours.theta.shape[1] == 13
    reference = {(0, 0): (25.01, 0.14), (2, 2): (10.49, 0.05), (0, 2): (-11.49, 0.09)}
    for (i, j), (mean, error) in reference.items():
        values = ours.U[:, i, j].reshape(2, -1)
        assert abs(values.mean() - mean) < 4 * np.hypot(error, monte_carlo_error(values))
    values = ours.energies().reshape(2, -1)
    assert abs(values.mean() + 34.78) < 4 * np.hypot(0.09, monte_carlo_error(values))
