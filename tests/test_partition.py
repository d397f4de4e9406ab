"""The partition: total, no idle rules, the two halves make the whole."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxformer.errors import UserError
from jaxformer.partition import Partition

PARAMS = {
    "block_0": {"attn": {"query": {"kernel": jnp.ones((2, 3))}, "value": {"kernel": jnp.ones(4)}}},
    "embed": {"embedding": jnp.ones((5, 2))},
}
FROZEN_QK = Partition([(".*/(query|key)/.*", "frozen"), (".*", "train")])


def test_labels_counts_and_halves():
    labels = FROZEN_QK.labels(PARAMS)
    assert labels["block_0"]["attn"]["query"]["kernel"] == "frozen"
    assert labels["embed"]["embedding"] == "train"
    assert FROZEN_QK.count(PARAMS) == {"frozen": 6, "train": 14}
    trainable, frozen = FROZEN_QK.split(PARAMS)
    assert list(frozen) == ["block_0"] and "query" not in trainable["block_0"]["attn"]
    assert Partition.merge(trainable, frozen).keys() == PARAMS.keys()


@pytest.mark.parametrize(
    "rules, words",
    [
        ([], "at least one"),
        ([(".*/query/.*", "frozen")], "no rule covers 2 of 3 parameters, such as block_0/attn/val"),
        ([(".*/qery/.*", "frozen"), (".*", "train")], r"'\.\*/qery/\.\*' matches no path"),
        ([(".*", "train"), (".*/query/.*", "frozen")], "has no effect: earlier rules such as"),
        ([("(", "frozen")], "not a regular expression"),
    ],
)
def test_wrong_rules(rules, words):
    with pytest.raises(UserError, match=words):
        Partition(rules).labels(PARAMS)


def test_a_label_without_an_optimizer_is_named():
    with pytest.raises(UserError, match="no optimizer for the label 'trian'"):
        Partition([(".*", "trian")]).optimizer({"train": optax.sgd(1.0)})


def test_each_label_has_its_own_optimizer():
    partition = Partition([("embed/.*", "slow"), (".*", "fast")])
    tx = partition.optimizer({"slow": optax.sgd(0.1), "fast": optax.sgd(1.0)})
    updates, _ = tx.update(PARAMS, tx.init(PARAMS), PARAMS)
    np.testing.assert_allclose(updates["embed"]["embedding"], -0.1)
    np.testing.assert_allclose(updates["block_0"]["attn"]["value"]["kernel"], -1.0)
