"""Token mixing: row sums, causality, standard deviations, rotary invariance."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.core.errors import UserError
from jaxformer.models import attention

KEY = jax.random.key(0)


@pytest.mark.parametrize("causal", [True, False])
def test_rows_of_the_mixing_matrix_sum_to_one(causal):
    a_HxTxT = attention.mixing_matrix(KEY, heads=3, length=9, std=0.7, causal=causal)
    np.testing.assert_allclose(a_HxTxT.sum(-1), 1.0, atol=2e-6)
    if causal:
        assert (np.triu(a_HxTxT, 1) == 0).all()
        np.testing.assert_array_equal(a_HxTxT[:, 0], np.eye(9)[[0, 0, 0]])


def test_the_mixing_matrix_has_the_standard_deviation_of_its_scale():
    n, m, heads = 64, 400, 4
    for scale, std in [("theory", (n * m) ** -0.5), ("head", (16 * m) ** -0.5), (0.3, 0.3)]:
        stds_H = attention.mixing_std(KEY, scale, heads, m, n)
        a_HxTxT = attention.mixing_matrix(KEY, heads, m, stds_H)
        measured = np.std(np.asarray(a_HxTxT)[:, -1, :-1])
        np.testing.assert_allclose(measured, std, rtol=0.08)
    spread_H = attention.mixing_std(KEY, "spread", 100, m, 6400)
    assert (64 * m) ** -0.5 <= spread_H.min() < spread_H.max() <= m**-0.5


def test_unknown_mixing_scale_names_the_choices():
    with pytest.raises(UserError, match="Did you mean 'theory'"):
        attention.mixing_std(KEY, "theroy", 2, 4, 8)
    with pytest.raises(UserError, match="at least 0"):
        attention.mixing_std(KEY, -1.0, 2, 4, 8)


def test_rotary_scores_depend_on_distance_only():
    q_D, k_D = jax.random.normal(KEY, (2, 8))
    q_1xTx1xD = jnp.broadcast_to(q_D, (1, 12, 1, 8))
    k_1xTx1xD = jnp.broadcast_to(k_D, (1, 12, 1, 8))
    scores = attention.attention_scores(attention.rotary(q_1xTx1xD), attention.rotary(k_1xTx1xD))
    s_TxT = np.asarray(scores)[0, 0]
    np.testing.assert_allclose(s_TxT[5, 2], s_TxT[9, 6], rtol=1e-4)
    assert abs(s_TxT[5, 2] - s_TxT[5, 4]) > 1e-3
    np.testing.assert_allclose(s_TxT[0, 0], q_D @ k_D / 8**0.5, rtol=1e-5)


def test_rotary_needs_an_even_head():
    with pytest.raises(UserError, match="even head dimension, got 5"):
        attention.rotary(jnp.ones((1, 2, 1, 5)))


def test_attention_weights_are_causal_probabilities():
    scores = jax.random.normal(KEY, (2, 3, 6, 6))
    weights = attention.attention_weights(scores, attention.causal_mask(6))
    np.testing.assert_allclose(weights.sum(-1), 1.0, atol=1e-6)
    assert (np.triu(weights, 1) == 0).all()
    values = jax.random.normal(KEY, (2, 6, 3, 5))
    np.testing.assert_allclose(attention.mix(weights, values)[:, 0], values[:, 0], rtol=1e-6)
