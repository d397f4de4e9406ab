"""Signal propagation against random encoders: the gap closes as the width grows."""

from typing import Any, cast

import jax
import numpy as np
import pytest

from jaxformer.core.errors import UserError
from theory.signal import Block, encoder
from theory.signal.encoder import measure, predict

BLOCK = Block(1.2, 0.7, 1.0, 0.2, 0.2, 4e-4)
DEPTH, T = 6, 16


def keys(n):
    return jax.vmap(jax.random.key)(np.arange(n))


def gap(measured, overlaps="exact"):
    """Returns the rms over depth of |mean - predicted| and of the standard error, by field."""
    n = len(measured.cosine)
    predicted = predict(BLOCK, DEPTH, T, overlaps=overlaps)
    rms = lambda x: float(np.sqrt(np.mean(x**2)))  # noqa: E731
    return {
        name: (rms(x.mean(0) - np.asarray(p)), rms(x.std(0, ddof=1)) / n**0.5)
        for name, x, p in zip(
            predicted._fields, (np.asarray(m, float) for m in measured), predicted
        )
    }


@pytest.mark.parametrize("wide_width", [128, pytest.param(256, marks=pytest.mark.slow)])
def test_the_gap_closes_with_width(wide_width):
    with jax.enable_x64(True):
        networks = [
            measure(keys(n), BLOCK, DEPTH, T, width, dtype=np.float32)
            for width, n in ((16, 400), (wide_width, 48))
        ]
        narrow, wide = map(gap, networks)
        limit = gap(networks[1], "limit")
    for name in narrow:
        assert narrow[name][0] > 5 * narrow[name][1], "16 is too narrow for the theory: see it"
        assert wide[name][0] < narrow[name][0] / 2
        assert wide[name][0] < 3 * wide[name][1]
        assert limit[name][0] > 3 * wide[name][0], "T = 16 is far from the paper's limit"


def test_correlated_input_and_precision():
    with jax.enable_x64(True):
        signal = measure(keys(32), BLOCK, 1, T, 64, heads=4, rho0=0.6)
        assert signal.cosine.dtype == np.float64
        error = signal.cosine[:, 0].std() / 32**0.5
        assert abs(signal.cosine[:, 0].mean() - 0.6) < 4 * error
    with pytest.raises(UserError, match="3 heads do not divide the width 16"):
        measure(keys(1), BLOCK, 1, T, 16, heads=3)
    with pytest.raises(UserError, match="T must be"):
        measure(keys(1), BLOCK, 1, 1, 16)


def test_one_compiled_function_serves_all_strengths():
    """A diagram has dozens of networks of one size, with different strengths."""
    sizes, compiled = (2, 8, 16), cast(Any, encoder._measure)._cache_size
    first = measure(keys(1), BLOCK, *sizes, dtype=np.float32)
    once = compiled()
    other = measure(keys(1), BLOCK.replace(beta=2.0, alpha_sa=0.1), *sizes, dtype=np.float32)
    assert compiled() == once
    assert float(other.self_overlap[0, 0]) > 1.2 * float(first.self_overlap[0, 0])
    with pytest.raises(UserError, match="alpha_mlp must be finite and at least 0, got -1"):
        measure(keys(1), BLOCK.replace(alpha_mlp=-1.0), *sizes)
