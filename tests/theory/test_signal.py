"""Signal propagation: reference rows, fixed points, critical alpha, gradients at the corners."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.theory.commands import wrong_errors
from theory import signal
from theory.activation_moments import second_moments
from theory.activations import relu_cosine
from theory.numerics import normal_nodes
from theory.signal import Block

REFERENCE = json.loads(
    (Path(__file__).parents[1] / "reference" / "signal_propagation.json").read_text()
)
PAPER = Block(0.02, 1.0, 1.0, 0.2, 0.2, 4e-4)


def test_reference_blocks():
    for T in (None, 128, 512):
        rows = [r for r in REFERENCE["blocks"] if r["T"] == T]
        column = lambda name: np.array([r[name] for r in rows])  # noqa: B023, E731
        names = ("beta", "alpha_SA", "alpha_mlp", "sV2", "sw2", "sb2")
        cosines = signal.propagate(0.0, Block(*(column(n) for n in names)), 60, T)
        assert cosines.shape == (61, len(rows))
        expected = np.stack([column("rho1"), column("rho12"), column("rho60")])
        np.testing.assert_allclose(cosines[np.array([1, 12, 60])], expected, atol=1e-6)
        assert not jnp.any(cosines[0])


def test_reference_critical_alpha():
    for T, depth in ((None, 60), (64, 12), (512, 60)):
        rows = [r for r in REFERENCE["alpha_crit"] if (r["T"], r["L"]) == (T, depth)]
        beta, epsilon, alpha = (np.array([r[k] for r in rows]) for k in ("beta", "eps", "alpha_c"))
        assert len(rows) > 2
        result = signal.critical_alpha(beta, PAPER, depth, T, epsilon)
        np.testing.assert_allclose(result, alpha, atol=2e-4)


def test_other_reference_numbers_are_reproduced():
    for row in REFERENCE["relu_f"]:
        assert float(relu_cosine(row["rho"])) == pytest.approx(row["f"], abs=1e-12)
    rows = REFERENCE["noresid_figC3"]
    beta, sw2, sb2, rho = (
        np.array([r[k] for r in rows]) for k in ("beta", "sw2", "sb2", "rho1_inf")
    )
    cosines = signal.propagate(0.0, Block(beta, 0.0, 0.0, sw2, sw2, sb2), 1)
    np.testing.assert_allclose(cosines[1], rho, atol=1e-9)
    expected = REFERENCE["beta_eff"]
    assert float(signal.effective_beta(0.02, 768, 512)) == pytest.approx(
        expected["correct_d768_T512"]
    )
    paper = signal.effective_beta_paper(0.02, 64, 512)
    assert float(paper) == pytest.approx(expected["paper_formula_dH64_T512"])


def tanh_fixed_point(nodes, weights, sigma_w, sv2):
    """The map of figure 5 by a product rule in the plane, iterated to its fixed point."""
    q1, rho = sigma_w**2 + 0.1, 0.0
    phi = lambda x: np.tanh(np.sqrt(q1) * x)  # noqa: E731
    q2 = sigma_w**2 * (phi(nodes) ** 2 @ weights) + 0.1
    for _ in range(200):
        r0 = (sv2 * rho + 36 * rho) / (sv2 * rho + 36)
        c = (sigma_w**2 * r0 + 0.1) / q1
        second = c * nodes[:, None] + np.sqrt(1 - c**2) * nodes[None]
        p2 = sigma_w**2 * (weights * phi(nodes)) @ phi(second) @ weights + 0.1
        rho = (p2 + r0) / (q2 + 1)
    return rho


def test_tanh_fixed_points():
    for row in REFERENCE["tanh_fig5"]:
        sigma_w, sv2 = row["sigma_w"], row["sV2"]
        block = Block(0.0, 6.0, 1.0, sv2, sigma_w**2, 0.1, "tanh")
        end = float(signal.propagate(0.0, block, 200)[-1])
        result = signal.fixed_points(block)
        if sigma_w == 1.0:
            assert end == pytest.approx(row["rho200"], abs=1e-6)
            assert result.rho.tolist() == [1.0] and result.slope[0] == pytest.approx(
                0.932, abs=1e-3
            )
            continue
        # The reference's 64-point Gauss-Hermite rule is off by 2e-3 at sigma_w = 2.5: the same
        # rule gives its numbers, a dense rule ours.
        z, w = np.polynomial.hermite_e.hermegauss(64)
        coarse = tanh_fixed_point(z, w / w.sum(), sigma_w, sv2)
        assert coarse == pytest.approx(row["fixed"], abs=1e-6)
        dense = tanh_fixed_point(*normal_nodes(241, 9.0), sigma_w, sv2)
        assert end == pytest.approx(dense, abs=1e-7)
        assert result.rho[0] == pytest.approx(dense, abs=1e-7)
        assert result.stable.tolist() == [True, False]


def test_an_activation_given_as_a_function_has_its_moments():
    q = jnp.asarray(1.7)
    exact_square, exact = second_moments("relu", q, jnp)
    square, series = second_moments(jax.nn.relu, q, jnp)
    assert float(square) == pytest.approx(float(exact_square), rel=1e-3)  # a kink, not smooth
    c = jnp.linspace(0, 1, 11)
    np.testing.assert_allclose(series(c), exact(c), atol=1e-3)
    square, linear = second_moments("linear", q, jnp)
    np.testing.assert_allclose(linear(c), q * c, atol=1e-12)
    # MLP and second matrix scale separately.
    one = signal.propagate(0.0, PAPER.replace(sigma_b2=0.0), 3, 64)
    two = signal.propagate(0.0, PAPER.replace(sigma_b2=0.0, sigma_w2=0.1, sigma_u2=0.4), 3, 64)
    np.testing.assert_allclose(one, two, rtol=1e-12)


def test_critical_alpha_is_the_threshold():
    alpha = signal.critical_alpha(1.0, PAPER, 24, 64, 0.05)
    end = signal.propagate(0.0, PAPER.replace(beta=1.0, alpha_sa=alpha), 24, 64)[-1]
    assert float(end) == pytest.approx(0.95, abs=1e-9)
    result = lambda beta: signal.critical_alpha(beta, PAPER, 24, 64, 0.05)  # noqa: E731
    secant = (result(1.0001) - result(0.9999)) / 2e-4
    assert float(jax.jit(jax.grad(result))(1.0)) == pytest.approx(float(secant), rel=1e-5)
    # No alpha helps without the MLP's residual, and in the entropy-collapsed phase none is needed.
    assert float(signal.critical_alpha(0.02, PAPER.replace(alpha_mlp=0.0), 60)) == np.inf
    assert float(signal.critical_alpha(2.5, PAPER, 2)) == 0
    # sigma_V = 1 would make the paper's own trainable settings collapse.
    ends = signal.propagate(0.0, PAPER.replace(sigma_v2=1.0, alpha_sa=np.array([1.5, 2.0])), 60)[-1]
    assert np.all(np.asarray(ends) > 0.9999)


@pytest.mark.parametrize(
    "activation, T, overlaps",
    [
        ("relu", 64, "exact"),
        ("relu", 64, "heuristic"),
        ("relu", None, "limit"),
        ("tanh", None, "limit"),
    ],
)
def test_gradients_are_finite(activation, T, overlaps):
    @jax.jit
    def end(x):
        block = Block(x[1], x[2], x[3], x[4], x[5], x[6], activation)
        return signal.propagate(x[0], block, 6, T, overlaps)[-1]

    corners = jnp.array(
        [
            [rho, beta, alpha, alpha_mlp, 0.2, 0.2, bias]
            for rho in (0.0, 0.5, 1.0)
            for beta in (0.0, 1.8)
            for alpha in (0.0, 1.0)
            for alpha_mlp, bias in ((0.0, 0.0), (1.0, 0.1))
        ]
    )
    inside, h = jnp.array([0.1, 2.1, 0.9, 1.0, 0.2, 0.3, 0.01]), 1e-6
    points = jnp.concatenate([corners, inside[None]])
    value, gradient = jax.jit(jax.vmap(jax.value_and_grad(end)))(points)
    assert bool(jnp.all(jnp.isfinite(value))) and bool(jnp.all(jnp.isfinite(gradient)))
    secant = [(end(inside.at[i].add(h)) - end(inside.at[i].add(-h))) / (2 * h) for i in range(7)]
    np.testing.assert_allclose(gradient[-1], jnp.stack(secant), rtol=1e-5, atol=1e-8)


def test_wrong_arguments_are_one_line_errors():
    cases = [
        (lambda: signal.propagate(0.0, PAPER, 0), "depth must be"),
        (lambda: signal.propagate(1.5, PAPER, 2), "rho0 must be in"),
        (lambda: signal.propagate(0.0, PAPER.replace(beta=-1.0), 2), "beta must be"),
        (lambda: signal.propagate(0.0, PAPER.replace(alpha_sa=-1.0), 2), "alpha_sa must be"),
        (lambda: signal.propagate(0.0, PAPER.replace(sigma_w2=np.inf), 2), "sigma_w2 must be"),
        (lambda: signal.propagate(0.0, PAPER, 2, 1), "T must be"),
        (lambda: signal.propagate(0.0, PAPER, 2, overlaps="exact"), "needs the number of tokens"),
        (lambda: signal.propagate(0.0, PAPER, 2, 64, "exakt"), "Did you mean 'exact'"),
        (lambda: signal.propagate(0.0, PAPER.replace(activation="relo"), 2), "Did you mean 'relu'"),
        (lambda: signal.propagate(np.zeros(3), PAPER.replace(beta=np.ones(2)), 2), "broadcast"),
        (lambda: signal.critical_alpha(1.0, PAPER, 2, epsilon=2.0), "epsilon must be in"),
        (lambda: signal.effective_beta(-0.1, 64, 64), "init_std must be"),
    ]
    assert wrong_errors(cases) == []
