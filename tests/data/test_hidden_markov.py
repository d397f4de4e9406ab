"""The hidden Markov task against its reference numbers and its definition."""

import json
from pathlib import Path

import numpy as np
import pytest

from jaxformer.core.errors import UserError
from jaxformer.data import hidden_markov

GOLDEN = json.loads((Path(__file__).parents[1] / "reference/attention_paths.json").read_text())


@pytest.mark.parametrize("name", ["paper", "tiny"])
def test_attentioned_input_is_the_reference(name):
    golden = GOLDEN[name]
    size = {"length": golden["kw"].get("T", 30), "features": golden["kw"].get("n0", 200)}
    tokens, _ = hidden_markov.examples(0, golden["kw"].get("P", 100), **size)
    xi = hidden_markov.attentioned_input(tokens, hidden_markov.bilinear_forms(1, **size), chunk=30)
    n = xi.shape[-1]
    np.testing.assert_allclose((xi**2).sum((0, 2)) / n, golden["C_trace"], rtol=1e-11)
    np.testing.assert_allclose((xi[:, 0] @ xi[:, 2].T).sum() / n, golden["C02_sum"], rtol=1e-11)
    np.testing.assert_allclose(xi.sum(), golden["xi_sum"], rtol=1e-11)


def test_noise_is_split_into_parallel_and_perpendicular():
    kwargs = {"length": 5, "features": 40}
    clean, _ = hidden_markov.examples(3, 60, sigma_par=0, sigma_perp=0, **kwargs)
    parallel, _ = hidden_markov.examples(3, 60, sigma_par=2, sigma_perp=0, **kwargs)
    both, _ = hidden_markov.examples(3, 60, sigma_par=2, sigma_perp=5, **kwargs)
    states = hidden_markov.state_vectors(40)
    np.testing.assert_allclose(states @ states.T, 40 * np.eye(2), atol=1e-12)
    np.testing.assert_allclose((both - parallel)[..., :40] @ states.T, 0, atol=1e-10)
    residual = (parallel - clean)[..., :40]
    np.testing.assert_allclose(residual @ states.T @ states / 40, residual, atol=1e-12)
    assert abs(((both - parallel)[:, 1:, :40] ** 2).sum(-1).mean() / 38 / 25 - 1) < 0.03
    assert not both[:, 0, :40].any() and (both[:, :, 40:] == np.eye(6)).all()


def test_labels_are_the_flip_rate():
    tokens, labels = hidden_markov.examples(0, 400, sigma_par=0, sigma_perp=0)
    plus = tokens[:, 1:, 0] > 0
    rate = (plus[:, 1:] != plus[:, :-1]).mean(1)
    assert (labels[:200] == 1).all() and (labels[200:] == -1).all()
    assert abs(rate[:200].mean() - 0.3) < 0.02 and abs(rate[200:].mean() - 0.7) < 0.02


def test_good_heads_attend_as_designed():
    tokens, _ = hidden_markov.examples(0, 20, sigma_par=0, sigma_perp=0)
    forms = hidden_markov.bilinear_forms(0, (("previous",), ("uniform",)))
    first, second = hidden_markov.attention_maps(tokens, forms, "mean")
    plus = tokens[:, 1:, 0] > 0
    for t in range(2, 31):
        same = plus[:, t - 1] == plus[:, t - 2]
        assert (np.argmax(first[:, 0, :, t], axis=1) == np.where(same, t - 1, 0)).all()
    assert (np.argmax(first[:, 0, :, 1], axis=1) == 0).all()
    np.testing.assert_allclose(second, 1 / 31, rtol=1e-12)
    np.testing.assert_allclose(first.sum(2), 1, rtol=1e-12)


def test_variants_share_their_random_heads():
    full = hidden_markov.bilinear_forms(5, "four_paths", 4, 6)
    two = hidden_markov.bilinear_forms(5, "two_paths", 4, 6)
    assert [len(layer) for layer in two] == [2, 1]
    assert (full[0] == two[0]).all() and (full[1][:1] == two[1]).all()
    tokens, _ = hidden_markov.examples(0, 4, 4, 6)
    xi = hidden_markov.attentioned_input(tokens, full)
    alone = hidden_markov.attentioned_input(tokens, [full[0][1:], full[1][:1]])
    path = np.ravel_multi_index((1, 0), (2, 2))  # the second head of layer 1, the first of layer 2
    np.testing.assert_allclose(xi[:, [path]], alone, rtol=1e-13)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: hidden_markov.examples(0, 3), "even count"),
        (lambda: hidden_markov.examples(0, 4, flip=(0.3, 1.7)), "flip probabilities"),
        (lambda: hidden_markov.bilinear_forms(0, "four_path"), "four_paths"),
        (lambda: hidden_markov.bilinear_forms(0, (("previus",),)), "previous"),
        (
            lambda: hidden_markov.attention_maps(np.ones((1, 2, 3)), [np.eye(3)[None]], "frist"),
            "first",
        ),
    ],
)
def test_wrong_arguments_are_one_line_errors(call, message):
    with pytest.raises(UserError, match=message):
        call()
