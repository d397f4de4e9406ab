"""Networks with real labels and several outputs, by exact symmetries and limits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.core.errors import UserError
from theory import attention_paths
from theory.attention_paths.diagnostics import monte_carlo_error

RNG = np.random.default_rng(0)
P, HEADS, n = 12, (2, 2), 5
XI, TESTS = RNG.standard_normal((P, 4, n)), RNG.standard_normal((7, 4, n))
Y = RNG.standard_normal((P, 2))


@pytest.fixture(scope="module", autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def solution():
    return attention_paths.order_parameter(XI, Y, 5, 0.5, HEADS)


@pytest.mark.slow  # two solvers to compile
def test_a_rotation_of_the_outputs_rotates_the_order_parameter(solution):
    """The prior of the readout vectors is invariant under rotations of the outputs."""
    angle = 0.7
    R = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    rotated = attention_paths.order_parameter(XI, Y @ R, 5, 0.5, HEADS)
    assert (
        solution.outputs == 2 and solution.U.shape == (8, 8) and solution.chain[0].shape == (2, 2)
    )
    np.testing.assert_allclose(rotated.action, solution.action, rtol=1e-9)
    rotation = np.kron(np.eye(4), R)
    np.testing.assert_allclose(rotated.U, rotation.T @ solution.U @ rotation, atol=1e-6)
    mean, variance = attention_paths.predict(solution, XI, Y, TESTS)
    rotated_mean, _ = attention_paths.predict(rotated, XI, Y @ R, TESTS)
    np.testing.assert_allclose(rotated_mean, mean @ R, atol=1e-7)
    assert mean.shape == variance.shape == (7, 2) and (np.asarray(variance) > 0).all()


def test_labels_of_one_output_may_have_an_output_axis():
    flat, column = (
        attention_paths.order_parameter(XI, labels, 5, 0.5, HEADS) for labels in (Y[:, 0], Y[:, :1])
    )
    np.testing.assert_array_equal(flat.U, column.U)
    means = [attention_paths.predict(flat, XI, y, TESTS)[0] for y in (Y[:, 0], Y[:, :1])]
    assert means[0].shape == (7,) and means[1].shape == (7, 1)
    np.testing.assert_allclose(means[0], means[1][:, 0], rtol=1e-12)


def test_wide_networks_learn_their_outputs_independently():
    eye = np.eye(8)
    mean, variance = attention_paths.predict_at(eye, XI, Y, 0.5, TESTS)
    K = np.einsum("pdn,qdn->pq", XI, XI) / (4 * n) + 0.5 * np.eye(P)
    k = np.einsum("pdn,qdn->pq", TESTS, XI) / (4 * n)
    np.testing.assert_allclose(mean, k @ np.linalg.solve(K, Y), rtol=1e-9)
    prior = np.einsum("pdn,pdn->p", TESTS, TESTS) / (4 * n)
    expected = prior - np.einsum("pq,qp->p", k, np.linalg.solve(K, k.T))
    np.testing.assert_allclose(variance, np.stack([expected] * 2, 1), rtol=1e-9)
    wide = attention_paths.order_parameter(XI, Y, 1e6, 0.5, HEADS)
    np.testing.assert_allclose(wide.U, eye, atol=1e-4)


def test_scores_and_pruning_are_over_all_outputs(solution):
    folded = np.abs(np.asarray(solution.U)).reshape(4, 2, 4, 2).sum((1, 3))
    scores = attention_paths.head_scores(solution.U, HEADS)
    for score, expected in zip(scores, attention_paths.head_scores(folded, HEADS), strict=True):
        np.testing.assert_allclose(score, expected)
    pruned = np.asarray(attention_paths.prune(solution.U, HEADS, 0, 1))
    assert not pruned[4:].any() and not pruned[:, 4:].any()
    np.testing.assert_array_equal(pruned[:4, :4], np.asarray(solution.U)[:4, :4])


@pytest.mark.slow
def test_draws_of_two_outputs_against_importance_sampling():
    """The reference weighs prior draws of all weights of one layer of two heads."""
    N, T, draws = 3, 1.0, 400_000
    xi, y, tests = XI[:4, :2], Y[:4], TESTS[:3, :2]
    posterior = attention_paths.sample(jax.random.key(0), xi, y, N, T, (2,), 6000, 500, 2)
    assert not posterior.doubts and posterior.U.shape == (6000, 4, 4)
    rng = np.random.default_rng(1)
    a = rng.standard_normal((draws, 2, N))
    v = np.einsum("scn,shnm->shcm", a, rng.standard_normal((draws, 2, N, N))) / N**0.5
    v = v.reshape(draws, 4, N)
    V_eff = np.einsum("sdm,smn->sdn", v, rng.standard_normal((draws, N, n))) / N**0.5
    V_eff = V_eff.reshape(draws, 2, 2, n)  # head, output

    def f(x):
        return np.einsum("shcn,phn->spc", V_eff, x) / (2 * n) ** 0.5

    logs = -((f(xi) - y) ** 2).sum((1, 2)) / (2 * T)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    predictions = f(tests)
    expected = np.einsum("s,spc->pc", weights, predictions)
    error = np.sqrt(np.einsum("s,spc->pc", weights**2, (predictions - expected) ** 2))
    expanded = attention_paths.multiple_outputs.expand(tests, 2)
    means = np.einsum("sdn,pdn->sp", posterior.linear, expanded)
    mc_error = monte_carlo_error(means.reshape(2, -1, 6)).reshape(3, 2)
    gap = np.abs(posterior.mean(tests) - expected)
    assert (gap < 4 * np.hypot(error, mc_error)).all()
    grams = np.einsum("sdm,sem->sde", v, v) / N
    U = np.einsum("s,sde->de", weights, grams)
    U_error = np.sqrt(np.einsum("s,sde->de", weights**2, (grams - U) ** 2))
    mc_error = monte_carlo_error(posterior.U.reshape(2, -1, 4, 4))
    assert (np.abs(posterior.U.mean(0) - U) < 4 * np.hypot(U_error, mc_error)).all()
    # The draws differ from those of a network whose outputs share nothing, for which U is 1.
    assert (np.abs(posterior.U.mean(0) - np.eye(4)) > 4 * mc_error).any()


def test_wrong_labels_are_one_line_errors():
    cases = [
        (np.where(np.arange(P) == 3, np.nan, Y[:, 0]), r"1 of 12 are not\. .* example 3"),
        (np.ones(P), "all labels are 1: there is one class"),
        (np.arange(P) % 2, r"\+1 or -1, got 0"),
        (Y[:, :0], r"or \(12, outputs\), got \(12, 0\)"),
        (Y[None], r"shape \(12,\)"),
    ]
    for labels, message in cases:
        with pytest.raises(UserError, match=message):
            attention_paths.order_parameter(XI, labels, 5, 0.5, HEADS)


def test_weights_are_sampled_for_one_output_only():
    with pytest.raises(UserError, match="networks of one output, got 2"):
        attention_paths.Sampler.build(XI, Y, 5, 0.5, HEADS, 10, 1, "weights")
    for width, size in ((10, 49), (5, 43)):  # with less than 8 hidden units U is singular
        sampler = attention_paths.Sampler.build(XI, Y, width, 0.5, HEADS, 10, 1)
        assert sampler.problem.layout.size == size
    assert jnp.asarray(Y).dtype == float
