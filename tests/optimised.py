"""The default suite compiles without XLA's dearer passes (conftest.py); some tests want them."""

import contextlib
import os

import jax


@contextlib.contextmanager
def optimised():
    """Programs compiled inside are the ones that users run."""
    jax.config.update("jax_disable_most_optimizations", False)
    try:
        yield
    finally:
        off = os.environ.get("JAX_DISABLE_MOST_OPTIMIZATIONS") == "1"
        jax.config.update("jax_disable_most_optimizations", off)
