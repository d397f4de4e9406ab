"""Tests skip XLA's expensive optimisations (conftest.py); this context switches them on."""

import contextlib
import os

import jax


@contextlib.contextmanager
def optimised():
    """Compiles programs inside it with the optimisations that users have."""
    jax.config.update("jax_disable_most_optimizations", False)
    try:
        yield
    finally:
        off = os.environ.get("JAX_DISABLE_MOST_OPTIMIZATIONS") == "1"
        jax.config.update("jax_disable_most_optimizations", off)
