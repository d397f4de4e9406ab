"""The linear associative memory: corrected flow, constants and low ranks."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.core.errors import UserError
from theory import associative_memory as memory
from theory.associative_memory import flow as equations
from theory.associative_memory.random_embedding import random_embedding

GOLDEN = json.loads((Path(__file__).parents[1] / "reference/associations.json").read_text())
ALPHAS = np.array(GOLDEN["asymptotic_constants"]["alpha"])
TIMES = np.array([1e4, 4e4, 1e6])


def at_alpha_03(out: memory.Memory, time: int) -> memory.Memory:
    return memory.Memory(*(x[3, time] for x in out))


@pytest.fixture(scope="module", params=memory.KINDS)
def flow(request):
    with jax.enable_x64(True):
        return request.param, memory.gradient_flow(ALPHAS, TIMES, kind=request.param)


def test_asymptotic_constants(flow):
    kind, (a, b) = flow
    assert a.shape == (5, 3)
    constant = {"weights": 4 / (3 * (1 - ALPHAS)), "coordinates": 5 / (18 * (1 - ALPHAS))}[kind]
    np.testing.assert_allclose(memory.asymptotic_constant(ALPHAS, kind=kind), constant)
    np.testing.assert_allclose(np.exp(a[:, 2]) * 1e6, constant, rtol=1e-4)
    np.testing.assert_allclose(b[:, 2], np.log(ALPHAS / (1 - ALPHAS)), atol=2e-5)


def test_the_flows_at_finite_times(flow):
    kind, (a, _) = flow
    column, name = {"coordinates": (0, "coordinates_1e4"), "weights": (1, "weights_4e4")}[kind]
    golden = GOLDEN["asymptotic_constants"]
    np.testing.assert_allclose(np.exp(a[:, column]) * TIMES[column], golden[name], rtol=1e-4)
    # The published constant is met at alpha = 0.2 only, and only by the coordinates.
    off = np.abs(np.exp(a[:, 2]) * 1e6 / np.array(golden["paper"]) - 1)
    assert (off > 0.04).sum() >= 4 and (off[2] < 1e-3) == (kind == "coordinates")


def test_the_constant_of_any_n():
    for n in (3, 4, 10):
        a, _ = memory.gradient_flow(ALPHAS, TIMES, n)
        constant = 2 * n / ((n + 1) * (1 - ALPHAS))
        np.testing.assert_allclose(np.exp(a[:, 2]) * 1e6, constant, rtol=1e-3)


@pytest.mark.parametrize("n", [2, 5])
def test_the_reduced_flow_is_the_gradient_of_the_cross_entropy(n):
    """Automatic differentiation at the W of (a, b), whose columns sum to zero along the flow."""
    alpha, a, b = 0.3, -1.3, -0.4
    correct = -((n - 1) * a + b) / (n + 1)
    w = jnp.full((n, n), correct + a) - a * jnp.eye(n)
    w = jnp.concatenate([w, jnp.full((1, n), correct + b)])
    np.testing.assert_allclose(w.sum(0), 0, atol=1e-12)
    targets = jnp.concatenate([(1 - alpha) * jnp.eye(n), jnp.full((1, n), alpha)])

    def cross_entropy(w):
        return -(targets * jax.nn.log_softmax(w, axis=0)).sum() / n

    speed = -jax.grad(cross_entropy)(w)
    flow = equations._speeds(memory.Flow(jnp.asarray(a), jnp.asarray(b)), alpha, n, True)
    result = [speed[1, 0] - speed[0, 0], speed[n, 0] - speed[0, 0]]
    np.testing.assert_allclose(result, flow, rtol=1e-10)
    sigma = jnp.linalg.svd(w, compute_uv=False)
    signal, noise = memory.singular_values(a, b, n)
    np.testing.assert_allclose(jnp.sort(sigma), jnp.sort(jnp.array([signal] * (n - 1) + [noise])))
    if n == 2:  # the paper's flow, in the coordinates of (43)
        b1 = jnp.array([[1.0, -1], [-1, 1], [0, 0]])
        b2 = jnp.array([[1.0, 1], [1, 1], [-2, -2]])
        beta = jnp.array([-a / 2, (a / 2 - b) / 3])
        np.testing.assert_allclose(beta[0] * b1 + beta[1] * b2, w, atol=1e-12)
        slow, fast = -jax.grad(lambda x: cross_entropy(x[0] * b1 + x[1] * b2))(beta)
        flow = equations._speeds(memory.Flow(jnp.asarray(a), jnp.asarray(b)), alpha, n, False)
        np.testing.assert_allclose([-2 * slow, -slow - 3 * fast], flow, rtol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 4])
def test_the_flow_of_the_matrix_agrees_with_the_reduced_flow(n):
    """`measure` differentiates the cross-entropy of W and takes its SVD."""
    alpha, times = np.array([0.1, 0.3]), np.array([0.0, 3.0, 8e4])
    rank = 1
    predicted = memory.predict(alpha, times, n, rank)
    measured = memory.measure(jax.random.key(0), alpha, times, n, rank)
    for name, formula, value in zip(memory.Memory._fields, predicted, measured):
        defined = ~np.isnan(formula)
        if n == 2:
            defined[:, 0] = True
            assert defined.all(), name
        np.testing.assert_allclose(value[defined], formula[defined], atol=1e-8, err_msg=name)


@pytest.mark.slow
def test_the_coordinates_follow_the_printed_flow():
    times = np.array([0.5, 30.0, 1e4])
    predicted = memory.predict(0.3, times, kind="coordinates")
    measured = memory.measure(jax.random.key(1), 0.3, times, kind="coordinates")
    for formula, value in zip(predicted, measured):
        np.testing.assert_allclose(value, formula, atol=1e-8)


def test_truncations_equal_those_of_the_svd():
    """Closed forms of each truncation that is independent of the basis, against the SVD of W."""
    for n, a, b in ((2, -5.0, -0.8), (4, -10.5, -0.85), (4, -2.9, -1.0), (3, -6.0, -0.9)):
        correct = -((n - 1) * a + b) / (n + 1)
        w = np.vstack([np.full((n, n), correct + a) - a * np.eye(n), np.full(n, correct + b)])
        left, sigma, right = np.linalg.svd(w, full_matrices=False)
        for rank in range(n + 1):
            p = np.exp((left[:, :rank] * sigma[:rank]) @ right[:rank])
            p /= p.sum(0)
            out = np.array(memory.truncated(jnp.asarray(a), jnp.asarray(b), n, rank))
            if not np.isnan(out).any():
                np.testing.assert_allclose(np.diagonal(p), out[0], rtol=1e-8)
                np.testing.assert_allclose(p[n], out[1], rtol=1e-8)
            elif rank in (0, n):
                raise AssertionError(f"rank {rank} of {n} must be defined")


def test_rank_one_removes_the_noise_for_two_inputs():
    golden = GOLDEN["rank"]["n2_alpha03_t4e4"]
    out = at_alpha_03(memory.predict(ALPHAS, TIMES), 1)
    np.testing.assert_allclose([out.correct, out.noise], [0.7, 0.3], atol=1e-4)
    np.testing.assert_allclose(out.truncated_correct, golden["rank1_correct"], atol=5e-5)
    root = golden["rank1_noise_times_sqrt_t"]
    np.testing.assert_allclose(out.truncated_noise * 200, root, atol=5e-4)


def test_rank_one_keeps_only_the_noise_for_four_inputs():
    golden = GOLDEN["rank"]["n4_alpha03_t8e4"]
    times = [1e4, 8e4, 1e6]
    out = at_alpha_03(memory.predict(ALPHAS, times, n=4, rank=1), 1)
    np.testing.assert_allclose(out.sigma_noise, golden["sigma_noise"], atol=0.05)
    np.testing.assert_allclose(out.sigma_signal, golden["sigma_signal"], atol=0.05)
    np.testing.assert_allclose(out.truncated_noise, golden["rank1_noise"], atol=5e-5)
    rank_three = at_alpha_03(memory.predict(ALPHAS, times, n=4), 1)
    assert np.isnan(rank_three.truncated_correct)  # it depends on the basis


def crossing_time(alpha, n):
    """Returns the last time at which sigma_noise overtakes sigma_signal; inf after t = 1e6."""
    times = jnp.geomspace(1e-2, 1e6, 4000)
    signal, noise = memory.singular_values(*memory.gradient_flow(alpha, times, n), n)
    lead = np.asarray(noise - signal)
    last = int(np.flatnonzero(lead <= 0)[-1])
    if last == len(times) - 1:
        return np.inf
    pair = slice(last, last + 2)
    return float(np.exp(np.interp(0.0, lead[pair], np.log(times[pair]))))


@pytest.mark.slow
def test_crossing_times_agree_with_the_first_order():
    """The first-order time is C exp(n |b|/(n - 1 - sqrt(n + 1))), b = log(alpha/(1-alpha))."""
    golden = GOLDEN["rank"]
    assert abs(crossing_time(0.3, 4) - golden["n4_alpha03_crossing"]) < 1
    constant, level = float(memory.asymptotic_constant(0.3, 4)), abs(np.log(0.3 / 0.7))
    first_order = constant * np.exp(4 * level / (3 - 5**0.5))
    assert abs(first_order - golden["n4_alpha03_first_order"]) < 0.5
    assert abs(crossing_time(0.03, 10) - golden["n10_alpha003_crossing"]) < 3
    assert crossing_time(0.3, 3) == np.inf


@pytest.mark.parametrize("dimension", [12, pytest.param(8, marks=pytest.mark.slow)])
def test_random_embeddings_have_the_losses_of_figure_18(dimension):
    keys = jax.random.split(jax.random.key(0), 20)
    losses = jax.vmap(lambda k: random_embedding(k, [2000], dimension=dimension))(keys)
    golden = GOLDEN["figure18"][f"d{dimension}"]
    np.testing.assert_allclose(np.median(losses[:, 0], axis=0), golden, rtol=0.02)
    assert (losses[:, 0, 1] < losses[:, 0, -1]).all()


@pytest.mark.slow
def test_flows_are_jit_and_vmap_safe():
    times = jnp.array([1.0, 100.0])
    direct = memory.gradient_flow(0.3, times)
    mapped = jax.vmap(lambda alpha: memory.gradient_flow(alpha, times))(jnp.array([0.3]))
    np.testing.assert_allclose(mapped.a[0], direct.a, rtol=1e-7)
    shuffled = memory.gradient_flow(0.3, times[::-1])
    np.testing.assert_allclose(shuffled.a[::-1], direct.a, rtol=1e-12)


def test_wrong_arguments_are_one_line_errors():
    bad = {
        r"alpha must be in \[0, 1\], got 1.5": {"alpha": 1.5},
        "times must be finite and at least 0": {"times": [-1.0]},
        "at least one time": {"times": []},
        "n must be a whole number of at least 2": {"n": 1},
        "Did you mean 'weights'": {"kind": "weight"},
        "n = 2 flow": {"kind": "coordinates", "n": 3},
    }
    for message, change in bad.items():
        with pytest.raises(UserError, match=message):
            memory.gradient_flow(**({"alpha": 0.3, "times": [1.0]} | change))
    with pytest.raises(UserError, match="rank must be"):
        memory.predict(0.3, [1.0], rank=-1)
    with pytest.raises(UserError, match="increasing list of steps"):
        random_embedding(jax.random.key(0), [5, 5])
