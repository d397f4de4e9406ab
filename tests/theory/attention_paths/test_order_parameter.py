"""The minimum of the action: reference numbers, saddle-point equations and limits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.helpers import failures
from theory import attention_paths
from theory.attention_paths import bartlett
from theory.attention_paths.kernel import (
    compress_coordinates,
    energy,
    energy_gradient,
    kernel_alignment,
    kernel_of_factor,
    kernel_task_overlap,
    store_compressed_examples,
    store_examples,
)
from theory.attention_paths.predictor import psd_factor

T = 0.01


def solve(example, width, heads=(2, 2), **kwargs):
    return attention_paths.order_parameter(
        example.attentioned, example.labels, width, T, heads, **kwargs
    )


@pytest.mark.parametrize("name", ["tiny", pytest.param("paper", marks=pytest.mark.slow)])
def test_reference_numbers(name, request):
    example = request.getfixturevalue(name)
    widths = {"tiny": (5, 20, 200), "paper": (10, 100, 1000)}[name]
    assert not failures(check_reference, [(example, N) for N in widths])


def check_reference(example, N):
    golden = example.golden[f"N{N}"]
    solution = solve(example, N)
    np.testing.assert_allclose(solution.action, golden["action"], rtol=1e-10)
    np.testing.assert_allclose(solution.U, golden["U1"], atol=1e-8)
    np.testing.assert_allclose(solution.chain[1], golden["U2"], atol=1e-8)
    np.testing.assert_allclose(solution.chain[0], golden["u"], atol=1e-8)
    assert solution.gradient_norm < 1e-10 and stationarity(solution, example) < 1e-8
    mean, variance = attention_paths.predict(
        solution, example.attentioned, example.labels, example.attentioned_test
    )
    np.testing.assert_allclose(mean[:3], golden["mean3"], rtol=1e-8)
    np.testing.assert_allclose(variance[:3], golden["var3"], rtol=1e-8)
    assert np.mean(np.sign(mean) == example.labels_test) == pytest.approx(golden["acc"], abs=2e-3)


def stationarity(solution, example):
    """Returns max |G - N_1 (U^-1 - Ut^-1)|, which is 0 at the saddle point of U."""
    G = gradient(solution.U, example)
    prior = np.eye(1)
    if solution.heads:
        prior = np.kron(np.eye(solution.heads[0]), np.atleast_2d(solution.chain[-2]))
    inverses = np.linalg.inv(solution.U) - np.linalg.inv(prior)
    return np.abs(G - solution.width[0] * inverses).max()


def gradient(U, example):
    def of(xi, labels, U):
        return energy_gradient(store_examples(xi), labels, T, psd_factor(U))

    return np.asarray(jax.jit(of)(example.attentioned, example.labels, U))


def test_gp_limit_of_the_reference(tiny):
    golden = tiny.golden["GP"]
    args = (tiny.attentioned, tiny.labels, T, tiny.attentioned_test)
    mean, variance = attention_paths.predict_at(np.eye(4), *args)
    np.testing.assert_allclose(mean[:3], golden["mean3"], rtol=1e-10)
    np.testing.assert_allclose(variance[:3], golden["var3"], rtol=1e-10)
    result = jax.jit(lambda xi, y: energy(store_examples(xi), y, T, jnp.eye(4)))(*args[:2])
    np.testing.assert_allclose(result, golden["energy"], rtol=1e-10)


@pytest.mark.parametrize(
    ("name", "N"), [("tiny", 5), pytest.param("paper", 10, marks=pytest.mark.slow)]
)
def test_same_minimum_from_random_starts(name, N, request):
    example = request.getfixturevalue(name)
    rng = np.random.default_rng(0)
    for _ in range(8):
        solution = solve(example, N, start=0.7 * rng.standard_normal(14))
        np.testing.assert_allclose(solution.U, example.golden[f"N{N}"]["U1"], atol=1e-8)


def test_wide_networks_approach_the_gp_limit_as_one_over_N(tiny):
    gaps = [np.abs(np.asarray(solve(tiny, N).U) - np.eye(4)).max() for N in (1e4, 1e5, 1e6)]
    np.testing.assert_allclose([gaps[0] / gaps[1], gaps[1] / gaps[2]], 10, rtol=0.02)


def test_permuted_heads_permute_the_order_parameter(tiny):
    swapped = [2, 3, 0, 1]  # the two heads of the first layer, h_1 slowest
    other = tiny._replace(attentioned=tiny.attentioned[:, swapped])
    expected = np.asarray(solve(tiny, 5).U)[np.ix_(swapped, swapped)]
    np.testing.assert_allclose(solve(other, 5).U, expected, atol=1e-8)


def test_scalar_in_closed_form_and_one_head(tiny):
    """u = [-(H-1) + sqrt((H-1)^2 + 4 Tr U^(L))] / 2; with one head a layer u^(L+1) = U."""
    solution = solve(tiny, 5)
    trace = np.trace(solution.chain[1])
    np.testing.assert_allclose(solution.chain[0], (-1 + (1 + 4 * trace) ** 0.5) / 2, rtol=1e-9)
    alone = solve(tiny._replace(attentioned=tiny.attentioned[:, :1]), 5, heads=(1, 1))
    u, U2, U = (np.asarray(U).item() for U in alone.chain)
    np.testing.assert_allclose([u**3, U2**1.5], [U, U], rtol=1e-9)


def test_unequal_heads_and_widths(tiny):
    example = tiny._replace(attentioned=tiny.attentioned[:, :3])
    solution = solve(example, (6, 9, 4), heads=(3, 1))
    assert stationarity(solution, example) < 1e-8
    layout, ratios = bartlett.full_layout((3, 1)), (6 / 9, 1, 4 / 9)

    @jax.jit
    def action_of(chain, U, xi, labels):
        fit = energy(store_examples(xi), labels, T, psd_factor(U))
        return bartlett.neg_entropy(layout, bartlett.coordinates(layout, chain), ratios) + fit / 9

    expected = action_of(solution.chain, solution.U, example.attentioned, example.labels)
    np.testing.assert_allclose(solution.action, expected, rtol=1e-10)


def test_no_attention_is_bayesian_linear_regression(tiny):
    """One hidden layer without heads is linear regression on x / sqrt(n) with prior variance u."""
    x, x_test = tiny.attentioned[:, 0], tiny.attentioned_test[:, 0]
    example = tiny._replace(attentioned=x[:, None])
    solution = attention_paths.order_parameter(x[:, None], tiny.labels, 50, T, ())
    assert stationarity(solution, example) < 1e-8
    mean, variance = attention_paths.predict(solution, x[:, None], tiny.labels, x_test[:, None])
    expected = linear_regression(x, tiny.labels, x_test, float(solution.U[0, 0]))
    np.testing.assert_allclose(mean, expected[0], rtol=1e-8)
    np.testing.assert_allclose(variance, expected[1], rtol=1e-8)


def test_one_wide_path_is_bayesian_linear_regression(tiny):
    x, x_test = tiny.attentioned[:, 0], tiny.attentioned_test[:, 0]
    solution = attention_paths.order_parameter(x[:, None], tiny.labels, 1e9, T, (1, 1))
    mean, _ = attention_paths.predict(solution, x[:, None], tiny.labels, x_test[:, None])
    expected, _, evidence = linear_regression(x, tiny.labels, x_test, 1.0)
    np.testing.assert_allclose(mean, expected, atol=1e-6)
    found_evidence = attention_paths.log_evidence(solution, len(x))
    np.testing.assert_allclose(found_evidence, evidence, rtol=1e-4)


def linear_regression(x, y, x_test, variance):
    """Returns mean, variance and log evidence for w ~ N(0, variance / n), y = x w + noise."""
    n = x.shape[1]
    precision = x.T @ x / T + n / variance * np.eye(n)
    w = np.linalg.solve(precision, x.T @ y / T)
    noisy = x @ x.T * variance / n + T * np.eye(len(x))
    log_det = np.linalg.slogdet(noisy)[1] + len(x) * np.log(2 * np.pi)
    evidence = -0.5 * (log_det + y @ np.linalg.solve(noisy, y))
    spread = np.einsum("bn,nb->b", x_test, np.linalg.solve(precision, x_test.T))
    return x_test @ w, spread, evidence


def test_forms_of_the_kernel_agree_with_the_definition(tiny):
    """K, its energy and G = dE/dU against the dense tensor C, which the package never builds."""
    xi, labels = jnp.asarray(tiny.attentioned), jnp.asarray(tiny.labels)
    root = np.random.default_rng(0).standard_normal((4, 4))
    U = root @ root.T

    def dense(U):
        C = jnp.einsum("pan,qbn->abpq", xi, xi) / xi.shape[2]
        noisy = jnp.einsum("ab,abpq->pq", U, C) / 4 + T * jnp.eye(len(xi))
        return jnp.linalg.slogdet(noisy)[1] + labels @ jnp.linalg.solve(noisy, labels), noisy

    (expected, noisy), slope = jax.jit(jax.value_and_grad(dense, has_aux=True))(U)
    slope = np.asarray(slope + slope.T) / 2

    def by_factor(root, form):
        kernel = store_examples(xi, form)
        both = jax.value_and_grad(lambda root: energy(kernel, labels, T, root))(root)
        return kernel_of_factor(kernel, root), both, energy_gradient(kernel, labels, T, root)

    for form in ("packed", "features"):
        K, (value, by_root), G = jax.jit(by_factor, static_argnums=1)(root, form)
        np.testing.assert_allclose(K + T * np.eye(len(xi)), noisy, atol=1e-10)
        np.testing.assert_allclose(value, expected, rtol=1e-11)
        np.testing.assert_allclose(by_root, 2 * slope @ root, rtol=1e-8)
        np.testing.assert_allclose(G, slope, rtol=1e-8)


def test_compression_drops_only_empty_coordinates(tiny):
    """Inner products are equal up to rounding, and full-rank inputs keep all coordinates."""
    rng, (P, _, n) = np.random.default_rng(0), tiny.attentioned.shape
    coordinates = rng.standard_normal((P, 9, 5)) * [1, 1, 1e-2, 1e-5, 1e-9]
    mixed, _ = np.linalg.qr(rng.standard_normal((n + 8, n + 8)))
    xi = coordinates @ mixed[:5]
    few = compress_coordinates(xi)
    assert few.shape == (P, 9, 4)
    product = np.einsum("pan,qbn->pqab", few, few) / few.shape[2]
    expected = np.einsum("pan,qbn->pqab", xi, xi) / xi.shape[2]
    np.testing.assert_allclose(product, expected, atol=1e-13 * expected.max())
    assert compress_coordinates(xi + rng.standard_normal(xi.shape)).shape == xi.shape
    root = rng.standard_normal((9, 9))
    K, short = (
        kernel_of_factor(store_examples(xi), root),
        kernel_of_factor(store_compressed_examples(xi), root),
    )
    np.testing.assert_allclose(short, K, atol=1e-12 * np.abs(K).max())


@pytest.mark.slow  # another solver to compile
def test_many_paths_give_the_same_order_parameter(tiny):
    """Above MAX_PACKED_PATHS features are stored. Equal heads have equal entries of U."""
    xi = tiny.attentioned[:, [0, 1, 2, 3, 0, 1, 2, 3, 0]]
    solution = attention_paths.order_parameter(xi, tiny.labels, 20, T, (9,))
    assert stationarity(solution, tiny._replace(attentioned=xi)) < 1e-8
    swapped = np.array([4, 1, 2, 3, 0, 5, 6, 7, 8])
    U = np.asarray(solution.U)
    np.testing.assert_allclose(U[0], U[4][swapped], atol=1e-7)


def test_grams_and_the_exact_correction(tiny):
    solution, n = solve(tiny, 5), tiny.attentioned.shape[2]
    U = np.asarray(solution.U)
    expected = U - U @ gradient(U, tiny) @ U / n
    np.testing.assert_allclose(attention_paths.gram_effective(solution, n), expected, rtol=1e-7)


def test_head_scores_and_pruning_by_enumeration():
    heads, U = (2, 3), np.random.default_rng(0).standard_normal((6, 6))
    paths = [(a, b) for a in range(2) for b in range(3)]
    raw = [
        [
            sum(
                abs(U[i, j])
                for i, p in enumerate(paths)
                for j, q in enumerate(paths)
                if h in (p[l], q[l])
            )
            for h in range(heads[l])
        ]
        for l in range(2)
    ]
    top = max(map(max, raw))
    for found, expected in zip(attention_paths.head_scores(U, heads), raw):
        np.testing.assert_allclose(found, np.array(expected) / top, rtol=1e-12)
    pruned = np.asarray(attention_paths.prune(U, heads, 1, 2))
    gone = np.array([path[1] == 2 for path in paths])
    assert not pruned[gone].any() and not pruned[:, gone].any()
    assert (pruned[np.ix_(~gone, ~gone)] == U[np.ix_(~gone, ~gone)]).all()


def test_overlap_and_alignment_follow_from_the_eigenvectors(tiny):
    def both(xi, labels):
        kernel = kernel_of_factor(store_examples(xi), jnp.eye(4))
        return kernel, kernel_task_overlap(kernel, labels), kernel_alignment(kernel, labels)

    kernel, overlaps, alignment = map(np.asarray, jax.jit(both)(tiny.attentioned, tiny.labels))
    np.testing.assert_allclose((overlaps**2).sum(), 1, rtol=1e-12)
    values, vectors = np.linalg.eigh(kernel)
    np.testing.assert_allclose(overlaps[0], abs(vectors[:, -1] @ tiny.labels) / 40**0.5, rtol=1e-9)
    expected = (values * (vectors.T @ tiny.labels) ** 2).sum() / 40 / (values**2).sum() ** 0.5
    np.testing.assert_allclose(alignment, expected, rtol=1e-9)


@pytest.mark.slow  # compiles a batched solver
def test_vmap_over_widths_and_temperatures(tiny):
    def U(width, temperature):
        args = (tiny.attentioned[:, :1], tiny.labels)
        return attention_paths.order_parameter(*args, width, temperature, ()).U[0, 0]

    widths, temperatures = np.array([5.0, 50.0]), np.array([0.01, 0.1])
    result = jax.jit(jax.vmap(U))(widths, temperatures)
    expected = [U(float(w), float(t)) for w, t in zip(widths, temperatures)]
    np.testing.assert_allclose(result, expected, rtol=1e-8)
