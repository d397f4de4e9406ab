"""Schedules have peak 1; AdamW equals optax's; the clip is global; only matrices decay."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxformer.core import optim
from jaxformer.core.errors import UserError
from jaxformer.core.partition import Partition
from jaxformer.training.population import population

ALL = Partition([(".*", "train")])
PARAMS = {"a": jnp.array([[1.0, -2.0], [3.0, 0.5]]), "b": jnp.array([4.0, 1.0])}
GRADS = {"a": jnp.array([[0.3, 0.1], [-0.2, 0.4]]), "b": jnp.array([-0.5, 0.2])}


@pytest.mark.parametrize("name, last", [("constant", 1.0), ("cosine", 0.0), ("linear", 0.0)])
def test_schedules_rise_to_one_and_end(name, last):
    factor = optim.schedule(name, steps=100, warmup=10)
    np.testing.assert_allclose([factor(0), factor(4), factor(9)], [0.1, 0.5, 1.0], rtol=1e-6)
    np.testing.assert_allclose(factor(100), last, atol=1e-6)
    if name == "cosine":
        np.testing.assert_allclose(factor(55), 0.5, rtol=1e-5)


def test_adamw_descends_like_optax():
    ours = optim.optimizer(ALL, {"train": optim.AdamW(weight_decay=0.1)}, 0.0, lambda _: 1.0)
    theirs = optax.adamw(0.01, weight_decay=0.1, mask={"a": True, "b": False})
    state, their_state = ours.init(PARAMS), theirs.init(PARAMS)
    for _ in range(3):
        updates, state = ours.update(GRADS, state, PARAMS)
        expected, their_state = theirs.update(GRADS, their_state, PARAMS)
    for name in PARAMS:
        np.testing.assert_allclose(0.01 * updates[name], expected[name], rtol=1e-6)


def test_sgd_with_momentum_and_coupled_decay():
    spec = optim.SGD(momentum=0.9, weight_decay=0.5, multiplier=2.0)
    tx = optim.optimizer(ALL, {"train": spec}, 0.0, lambda _: 1.0)
    state = tx.init(PARAMS)
    first, state = tx.update(GRADS, state, PARAMS)
    second, state = tx.update(GRADS, state, PARAMS)
    step = GRADS["b"] + 0.5 * PARAMS["b"]
    np.testing.assert_allclose(first["b"], -2 * step, rtol=1e-6)
    np.testing.assert_allclose(second["b"], -2 * 1.9 * step, rtol=1e-6)


def test_the_clip_is_global_over_labels():
    partition = Partition([("a", "one"), ("b", "two")])
    specs = {"one": optim.SGD(), "two": optim.SGD()}
    tx = optim.optimizer(partition, specs, 0.1, lambda _: 1.0)
    updates, _ = tx.update(GRADS, tx.init(PARAMS), PARAMS)
    np.testing.assert_allclose(optax.tree.norm(updates), 0.1, rtol=1e-5)


def test_wrong_schedules_are_one_line_errors():
    with pytest.raises(UserError, match="Did you mean 'cosine'"):
        optim.schedule("cosin", 10, 0)
    with pytest.raises(UserError, match="must not exceed"):
        optim.schedule("cosine", 10, 11)


@pytest.mark.parametrize(
    "make",
    [
        lambda: optim.AdamW(b1=2.0),
        lambda: optim.AdamW(b2=-0.1),
        lambda: optim.AdamW(eps=0.0),
        lambda: optim.AdamW(weight_decay=-1.0),
        lambda: optim.SGD(momentum=1.0),
        lambda: optim.SGD(multiplier=-1.0),
        lambda: optim.schedule("cosine", 10, -1),
        lambda: optim.optimizer(ALL, {"train": optim.SGD()}, -1.0, lambda step: 1.0),
        lambda: population(0, 1, (1e-3, 1e-3)),
        lambda: population(-1, 1, (1e-3,)),
        lambda: population(0, 10**12, (1e-3,)),
    ],
)
def test_nonsense_is_refused_before_anything_is_allocated(make):
    with pytest.raises(UserError) as error:
        make()
    assert "\n" not in str(error.value)
