"""Parameters of half precision: trained ones are float32, so that no small update is lost."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxformer.training.phases import repartition
from tests.training.test_step import FROZEN_QK, STANDARD, batch_of, population

HALF = {"dtype": jnp.bfloat16, "param_dtype": jnp.bfloat16, "layers": 1}


def test_updates_that_are_small_beside_a_weight_of_half_precision_are_kept():
    """Adam's first updates are the learning rate: 1e-4 beside 1, where bfloat16 has steps of .004.

    Its second moment grows by a thousandth in a step, which bfloat16 would round away too.
    """
    state, step, _ = population(FROZEN_QK, [1e-4], decay=0.0, **HALF)
    before = jax.device_get(state)
    for i in range(2):
        state, _ = jax.jit(step)(state, batch_of(1, i))
    for old, new in zip(
        jax.tree.leaves(before.trainable), jax.tree.leaves(state.trainable), strict=True
    ):
        moved = np.abs(np.asarray(new) - old)
        assert new.dtype == jnp.float32 and 0.9e-4 < np.median(moved[moved > 0]) < 2.1e-4
    floats = [leaf for leaf in jax.tree.leaves(state.opt_state) if leaf.ndim > 1]
    assert floats and all(leaf.dtype == jnp.float32 for leaf in floats)
    jax.tree.map(np.testing.assert_array_equal, before.frozen, jax.device_get(state.frozen))
    assert {leaf.dtype for leaf in jax.tree.leaves(state.frozen)} == {jnp.dtype(jnp.bfloat16)}


def test_parameters_of_half_precision_become_float32_when_they_are_unfrozen():
    frozen, _, _ = population(FROZEN_QK, [1e-4], **HALF)
    fresh, step, _ = population(STANDARD, [1e-4], **HALF)
    state = repartition(frozen, fresh)
    assert not jax.tree.leaves(state.frozen)
    jax.tree.map(np.testing.assert_array_equal, state.trainable, fresh.trainable)
    state, _ = jax.jit(step)(state, batch_of(1))
    assert {leaf.dtype for leaf in jax.tree.leaves(state.trainable)} == {jnp.dtype(jnp.float32)}
