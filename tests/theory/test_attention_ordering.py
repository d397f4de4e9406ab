"""Theorem 2 (which token the attention learns to prefer) and Appendix B.3."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from theory import one_step

GOLDEN = json.loads((Path(__file__).parents[1] / "reference/associations.json").read_text())


@pytest.mark.parametrize("exclude", [False, True])
def test_attention_logits_equal_the_sampled_gradient(exclude):
    N, T, alpha = 5, 10, 0.3
    for values in ("paper", "exact"):
        sizes = (2 / N**2, 1 / N**2) if values == "paper" else (1.0, 0.5)
        setting = one_step.Setting(values, sizes, exclude)
        exact = one_step.attention_logits(N, T, alpha, setting)
        measured, error = one_step.measure_attention_logits(
            jax.random.key(1), N, T, alpha, 30_000, setting
        )
        for formula, value, bar in zip(exact, measured, error):
            assert abs(formula - value) < 4 * bar
            assert bar < 0.2 * abs(exact.after_trigger)


@pytest.mark.parametrize("values", ["paper", "exact"])
def test_signs_of_theorem_2(values):
    """(3) holds. (4) has the claimed sign if the trigger is never a target or alpha is large."""
    N, T = 64, 1024
    sizes = (2 / N**2, 1 / N**2) if values == "paper" else (1.0, 1.0)
    any_target, no_trigger = (one_step.Setting(values, sizes, x) for x in (False, True))
    negative = {"paper": {0.1, 0.3}, "exact": {0.1, 0.3, 0.5}}[values]
    for alpha in (0.1, 0.3, 0.5):
        included = one_step.attention_logits(N, T, alpha, any_target)
        excluded = one_step.attention_logits(N, T, alpha, no_trigger)
        assert included.after_trigger > 0 and excluded.after_trigger > 0
        assert (included.over_noise < 0) == (alpha in negative)
        assert excluded.over_noise > 0
        limit = one_step.attention_logits_limit(N, alpha, no_trigger)
        np.testing.assert_allclose(excluded.over_noise, limit.over_noise, rtol=0.12)
        np.testing.assert_allclose(excluded.after_trigger, limit.after_trigger, rtol=0.07)


@pytest.mark.slow
@pytest.mark.parametrize("values", ["paper", "exact"])
@pytest.mark.parametrize("exclude", [False, True])
def test_theorem_2_against_the_reference(values, exclude):
    N, T, golden = 256, 2048, GOLDEN["theorem2"]
    sizes = (2 / N**2, 1 / N**2) if values == "paper" else (1.0, 1.0)
    name = f"{values}_values{'_excluded' if exclude else ''}"
    for alpha, value in zip(golden["alpha"], golden[name]):
        out = one_step.attention_logits(N, T, alpha, one_step.Setting(values, sizes, exclude))
        np.testing.assert_allclose(out.over_noise * N**4, value, rtol=0.01)


@pytest.mark.slow  # one more program
def test_both_phases_write_the_same_diagonal():
    """The diagonal is (1-alpha)^2/N^2 in both phases and halves, unlike (27) and (28)."""
    from theory.one_step.attention_ordering import value_matrix

    N, T, alpha = 128, 1024, 0.3
    for sizes in ((1.0, 0.0), (0.0, 1.0)):
        for half in value_matrix(N, T, alpha, one_step.Setting(sizes=sizes)):
            signal = half[2, 2] - half[2, 3]
            np.testing.assert_allclose(signal, (1 - alpha) ** 2 / N**2, rtol=0.02)


def test_the_noise_matrices_have_their_orders_in_the_number_of_tokens():
    alpha = 0.3
    out = {N: one_step.noise_matrices(N, 16 * N, alpha) for N in (32, 96)}
    for N, x in out.items():
        np.testing.assert_allclose([x.A_noise, x.A_token], [-x.B_noise / N, -x.B_token / N])
        assert x.B_noise < 0 < x.B_token
    orders = [np.log(np.abs(a / b)) / np.log(3) for a, b in zip(out[32], out[96])]
    np.testing.assert_allclose(orders, [3, 4, 2, 3], atol=0.4)


@pytest.mark.slow
def test_noise_matrices_have_the_stated_constants():
    alpha, N = 0.3, 128
    x, c = one_step.noise_matrices(N, 200 * N, alpha), (alpha - 1 / (N + 1)) / N
    np.testing.assert_allclose(x.B_noise, c * (alpha - 1) * alpha / N, rtol=0.04)
    np.testing.assert_allclose(x.B_token, c * (1 - alpha) * alpha / N**2, rtol=0.1)


def test_the_noise_recursion_converges_and_overshoots_at_large_rates():
    N = 1000
    for alpha, rate, overshoot in ((0.3, 1.0, 0.0), (0.5, 1.0, 0.0), (0.3, 0.5, 0.0)):
        path, fixed = one_step.noise_recursion(rate / (alpha * (1 - alpha)), alpha, N, 300)
        np.testing.assert_allclose(path[-1], np.log(N * alpha / (1 - alpha)), rtol=1e-6)
        assert path.max() <= fixed + overshoot + 1e-12
    alphas = jnp.array([0.3, 0.5, 0.7])
    path, fixed = one_step.noise_recursion(1.1 / (alphas * (1 - alphas)), alphas, N, 300)
    above = (path - fixed[None]).max(0)
    assert 0.003 < above[0] < 0.005 and 0.03 < above[1] < 0.05
    path, fixed = one_step.noise_recursion(1 / 0.21, 0.7, N, 300)
    golden = GOLDEN["recursion_overshoot"]["alpha07"]
    np.testing.assert_allclose(path.max() - fixed, golden, atol=5e-3)
    path, fixed = one_step.noise_recursion(2.5 / 0.21, 0.3, N, 300)
    assert abs(path[-1] - path[-2]) > 0.5  # a limit cycle
