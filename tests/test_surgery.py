"""LASER is Eckart-Young at the stated rank; dropping zeroes what it names."""

import jax
import numpy as np
import pytest

from jaxformer import surgery
from jaxformer.errors import UserError

KEYS = jax.random.split(jax.random.key(0), 2)
PARAMS = {
    "block_0": {"mlp": {"in": {"kernel": jax.random.normal(KEYS[0], (6, 10))}}},
    "bias": jax.random.normal(KEYS[1], (4,)),
}


@pytest.mark.parametrize("fraction, rank", [(0.0, 0), (0.5, 3), (0.34, 2), (1.0, 6)])
def test_laser_keeps_the_leading_singular_values(fraction, rank):
    before = PARAMS["block_0"]["mlp"]["in"]["kernel"]
    after = surgery.laser(PARAMS, "block_0/mlp", fraction)["block_0"]["mlp"]["in"]["kernel"]
    values = np.linalg.svd(before, compute_uv=False)
    kept = np.linalg.svd(after, compute_uv=False)
    np.testing.assert_allclose(kept[:rank], values[:rank], rtol=1e-5)
    np.testing.assert_allclose(kept[rank:], 0, atol=1e-5)
    lost = np.linalg.norm(before - after)
    np.testing.assert_allclose(lost, np.sqrt((values[rank:] ** 2).sum()), atol=2e-5)


def test_rank_of_is_the_floor_in_decimal_arithmetic():
    assert surgery.rank_of(np.zeros((100, 300)), 0.29) == 29
    assert surgery.rank_of(np.zeros((64, 256)), 0.02) == 1


def test_drop_zeroes_only_what_it_names():
    after = surgery.drop(PARAMS, "block_0/mlp")
    assert (np.asarray(after["block_0"]["mlp"]["in"]["kernel"]) == 0).all()
    np.testing.assert_array_equal(after["bias"], PARAMS["bias"])


@pytest.mark.parametrize(
    "pattern, fraction, words",
    [
        ("block_0/mlp", 1.5, r"in \[0, 1\], got 1.5"),
        ("block_0/mlp", (10, 5), r"in \[0, 1\], got \(10, 5\)"),
        ("block_9/mlp", 0.5, "matches no path"),
        ("bias", 0.5, "needs a matrix, 'bias' matches bias of shape"),
    ],
)
def test_wrong_cuts(pattern, fraction, words):
    with pytest.raises(UserError, match=words):
        surgery.laser(PARAMS, pattern, fraction)
