"""The theories compute in float64 where x64 is off, and get the numbers of float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from theory import associative_memory, attention_paths, covariance_sde, one_step, rem, signal

PHI = np.array([[1.0, 0.5], [0.5, 1.0]])
XI = np.random.default_rng(0).normal(size=(12, 4, 6))
LABELS = np.sign(XI[:, 0, 0])
BLOCK = signal.Block(0.3, 1.0, 1.0, 0.3, 0.3, 0.0)


def solution():
    return attention_paths.order_parameter(XI, LABELS, width=10, temperature=0.1, heads=(2, 2))


def posterior_mean():
    key = jax.random.key(0)
    posterior = attention_paths.sample(key, XI, LABELS, 10, 0.1, (2, 2), 4, 4, 1)
    return posterior.mean(XI[:2])


CALLS = {
    "sde": lambda: covariance_sde.predict(jax.random.key(0), PHI, tau=0.5, paths=3, steps=20),
    "drift": lambda: covariance_sde.drift(PHI),
    "networks": lambda: covariance_sde.measure(jax.random.key(0), PHI, 8, 4, 3),
    "order parameter": lambda: solution().U,
    "prediction": lambda: attention_paths.predict(solution(), XI, LABELS, XI[:2])[1],
    "posterior": posterior_mean,
    "overlap": lambda: rem.self_overlap(1.0, 0.3, 64),
    "flow": lambda: associative_memory.gradient_flow(0.1, jnp.array([1.0, 10.0]), 3).a,
    "margins": lambda: one_step.predict(16, 8, 32, 0.1).feed_forward,
    "cosine": lambda: signal.propagate(0.2, BLOCK, 8, 64),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_theory_has_the_numbers_of_float64_although_x64_is_off(name):
    with jax.enable_x64(False):
        found = CALLS[name]()
        assert found.dtype == np.float64
    np.testing.assert_allclose(found, CALLS[name](), rtol=1e-9, atol=1e-12)


def test_arrays_of_float32_are_widened_first():
    with jax.enable_x64(False):
        narrow = jnp.asarray(PHI)
        assert narrow.dtype == np.float32 and covariance_sde.drift(narrow).dtype == np.float64


def test_in_a_compiled_function_the_caller_chooses_the_precision():
    with jax.enable_x64(False):
        assert jax.jit(covariance_sde.drift)(PHI).dtype == np.float32
