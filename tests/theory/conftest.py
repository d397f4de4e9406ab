"""Theory is float64: every test in this folder runs with x64 on."""

import jax
import pytest


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield
