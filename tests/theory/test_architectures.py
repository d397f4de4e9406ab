"""Tests the recursion: the paper's encoder as a special case, limits, real initialisations."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.core.errors import UserError
from jaxformer.models.activations import ACTIVATIONS
from jaxformer.models.transformer import BlockSpec
from theory import activation_moments, signal
from theory.activation_moments import PHI, moments, second_moments, slopes
from theory.signal.architecture import Architecture
from theory.signal.cells import cells_of
from theory.signal.recursion import forward, trace


def network(layers=6, width=64, heads=4, std=0.1, **changes):
    """Returns a network whose matrices and embeddings have one standard deviation."""
    names = ("std_q", "std_k", "std_v", "std_o", "std_1", "std_2", "std_embed", "std_position")
    head_width = width // heads
    sizes = {"head_width": head_width, "mlp_width": 4 * width, "score_scale": head_width**-0.5}
    given = dict.fromkeys(names, std) | sizes | changes
    return Architecture(layers=layers, width=width, heads=heads, **given)


def encoder_of(block, depth, T, width=600):
    """Returns the Architecture of a post-norm encoder block."""
    entry = lambda variance: (variance / width) ** 0.5  # noqa: E731
    score = entry(block.beta * np.log(T) ** 0.5)
    return network(
        depth,
        width,
        6,
        std_q=score,
        std_k=score,
        std_v=entry(block.sigma_v2),
        std_o=None,
        std_1=entry(block.sigma_w2),
        std_2=entry(block.sigma_w2),
        std_bias=block.sigma_b2**0.5,
        mlp_width=width,
        alpha_sa=block.alpha_sa,
        alpha_mlp=block.alpha_mlp,
        activation=block.activation,
        std_embed=1.0,
        std_position=0.0,
        norm="rms",
    )


def test_the_papers_encoder_is_a_special_case():
    block, rho0 = signal.Block(1.2, 0.7, 0.9, 0.2, 0.6, 0.01, "gelu"), 0.2
    expected = signal.predict(block, 12, 64, rho0)
    predicted = forward(encoder_of(block, 12, 64), 64, rho0)
    np.testing.assert_allclose(predicted.cosine, expected.cosine, atol=2e-7)
    np.testing.assert_allclose(predicted.self_overlap, expected.self_overlap, rtol=1e-6)
    np.testing.assert_allclose(predicted.entropy, expected.entropy, atol=1e-6)
    np.testing.assert_allclose(predicted.norm, 1, rtol=1e-12)


def test_berts_initialisation():
    # Measured once by an independent NumPy implementation: two networks, d = 768, T = 128.
    bert = network(48, 768, 12, 0.02, std_type=0.02, embed_norm=True, eps=1e-12)
    layers = np.array([0, 1, 6, 12, 24, 36, 48])
    measured = np.array([0.317, 0.351, 0.487, 0.601, 0.817, 0.923, 0.969])
    cosine = forward(bert, 128).cosine
    assert np.all(abs(cosine[layers] - measured) < 0.02)
    # Without the type vector that all tokens share the prediction is far off.
    assert abs(forward(bert.replace(std_type=0.0), 128).cosine[1] - 0.351) > 0.3
    # Pre-norm, bidirectional: one network.
    gpt = network(24, 768, 12, 0.02)
    layers = np.array([1, 2, 4, 8, 12, 24])
    measured = np.array([0.473, 0.612, 0.692, 0.757, 0.803, 0.835])
    assert np.all(abs(forward(gpt.replace(pre_norm=True), 128).cosine[layers] - measured) < 0.025)


def test_moments_match_the_models_activations():
    assert set(activation_moments.ACTIVATIONS) == set(ACTIVATIONS)
    x, q, c = np.linspace(-4, 4, 41), np.array([0.3, 1.7]), 0.6
    cross = c * np.sqrt(0.3 * 1.7)
    p = np.array([[0.3, cross], [cross, 1.7]])
    for name, phi in ACTIVATIONS.items():
        if name != "relu":
            np.testing.assert_allclose(PHI[name](x), phi(jnp.asarray(x)), atol=1e-14)
        square, kernel = moments(name, q, p)
        assert kernel[1, 1] == pytest.approx(square[1], rel=1e-12)
        # d E phi(u) phi(v) / dp = E phi'(u) phi'(v)
        h, up, down = 1e-5, p.copy(), p.copy()
        up[0, 1] += h
        down[0, 1] -= h
        secant = (moments(name, q, up)[1] - moments(name, q, down)[1])[0, 1] / (2 * h)
        assert slopes(name, q, p)[1][0, 1] == pytest.approx(secant, rel=1e-5)
    for name in ("relu", "silu"):
        expected, function = second_moments(name, jnp.asarray(1.7), jnp)
        square, kernel = moments(name, np.full(2, 1.7), np.where(np.eye(2), 1.7, 1.7 * c))
        assert square[1] == pytest.approx(float(expected), rel=1e-6)
        assert kernel[0, 1] == pytest.approx(float(function(jnp.asarray(c))), rel=1e-6)


def test_positions_are_grouped_into_few_cells():
    exact, grouped = cells_of(8, True), cells_of(1000, True)
    assert exact.count_K.tolist() == [1] * 8
    assert np.array_equal(exact.seen_KxJ, np.tril(np.ones((8, 8))))
    assert grouped.count_K.sum() == 1000 and len(grouped.count_K) < 40
    np.testing.assert_allclose(grouped.seen_KxJ.sum(1), grouped.length_K)


def test_uniform_attention_averages_earlier_tokens():
    # With std_q = 0 row t is 1/t over the first t tokens: the covariance is a matrix product.
    net = network(pre_norm=True, causal=True, std_q=0.0, std_2=0.0, layers=2)
    rows = np.tril(np.ones((8, 8))) / np.arange(1, 9)[:, None]
    covariance = 0.02 * np.eye(8)
    _, states, _ = trace(net, 8)
    for q, p in states:
        np.testing.assert_allclose(q, np.diagonal(covariance), rtol=1e-6)
        off = ~np.eye(8, dtype=bool)
        np.testing.assert_allclose(p[off], covariance[off], rtol=1e-6)
        scale = 1 / np.sqrt(np.diagonal(covariance))
        normalised = covariance * scale[:, None] * scale[None]
        covariance = covariance + net.sigma_v2 * rows @ normalised @ rows.T
    # The same matrices for 100 positions, most of which share a cell.
    rows, covariance = np.tril(np.ones((100, 100))) / np.arange(1, 101)[:, None], 0.02 * np.eye(100)
    for cosine in forward(net, 100).cosine:
        scale = 1 / np.sqrt(np.diagonal(covariance))
        normalised = covariance * scale[:, None] * scale[None]
        assert cosine == pytest.approx((normalised.sum() - 100) / 9900, abs=2e-3)
        covariance = covariance + net.sigma_v2 * rows @ normalised @ rows.T


def test_only_relevant_fields_change_the_signal():
    net = network(pre_norm=True, causal=True)
    base = forward(net, 64)
    for same in (
        net.replace(kv_heads=2),
        net.replace(norm="rms"),
        net.replace(heads=8, head_width=8, score_scale=8**-0.5),
        net.replace(std_q=0.05, std_k=0.2),
    ):
        np.testing.assert_allclose(forward(same, 64).cosine, base.cosine, rtol=1e-9)
    for other in (
        net.replace(parallel=True),
        net.replace(gated=True),
        net.replace(causal=False),
        net.replace(score_scale=1.0),
        net.replace(std_o=0.05),
        net.replace(alpha_sa=1.1),
        net.replace(alpha_mlp=1.1),
        net.replace(rotary=1.0, std_q=0.3),
    ):
        assert abs(forward(other, 64).cosine[-1] - base.cosine[-1]) > 1e-4
    # Repeated tokens raise the cosine of the input.
    assert forward(net, 64, repeat=0.2).cosine[0] == pytest.approx(0.1)
    assert forward(net, 64, rho0=0.7).cosine[0] == pytest.approx(0.7)
    # muP's 1/d scores are smaller: rows of attention are flatter.
    strong = net.replace(std_q=0.4, std_k=0.4)
    flat = strong.replace(score_scale=1 / strong.head_width)
    assert forward(flat, 64).entropy[0] > forward(strong, 64).entropy[0] + 0.1


def test_weights_of_zero_give_states_of_zero():
    predicted = forward(network(std=0.0), 16)
    assert not predicted.norm.any() and np.isfinite(predicted.cosine).all()


def test_an_architecture_has_every_field_of_a_block():
    names = {f.name for f in dataclasses.fields(Architecture)}
    assert {f.name for f in dataclasses.fields(BlockSpec)} - names == {"dtype", "param_dtype"}


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"layers": 0}, "layers must be a whole number of at least 1"),
        ({"std_v": float("nan")}, "std_v must be in"),
        ({"std_v": -1.0}, "std_v must be in"),
        ({"std_v": 1e200}, "std_v must be in"),
        ({"activation": "gellu"}, "Did you mean 'gelu'"),
        ({"kv_heads": 3}, "3 heads of keys and values do not divide 4"),
        ({"std_o": None, "head_width": 8}, "must fill the width"),
    ],
)
def test_wrong_numbers_are_one_line_errors(changes, message):
    with pytest.raises(UserError, match=message):
        network(**changes)
