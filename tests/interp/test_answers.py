"""Scores of answers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxformer.interp.answers import Answers, margin, score


@pytest.mark.parametrize("function", [score, margin])
def test_logits_of_half_precision_have_scores_of_float32(function):
    """logsumexp is about 10 here, where bfloat16 has steps of .06."""
    logits = jax.random.normal(jax.random.key(0), (2, 3, 30_000)).astype(jnp.bfloat16)
    token = jnp.arange(6).reshape(2, 3)
    answers = Answers(token, token, jnp.full((2, 3), -1), jnp.ones((2, 3)))
    exact = function(logits.astype(jnp.float32), answers)
    np.testing.assert_array_equal(function(logits, answers), exact)
