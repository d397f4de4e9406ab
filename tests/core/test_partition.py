"""The partition: each leaf has one label, each rule has an effect, the halves make the whole."""

import re

import chex
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxformer.core import paths
from jaxformer.core.errors import UserError
from jaxformer.core.label_table import label_table
from jaxformer.core.partition import FROZEN, Partition
from tests.core.test_paths import EXAMPLES, TREES

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
    chex.assert_trees_all_equal(Partition.merge(trainable, frozen), PARAMS)


@pytest.mark.parametrize(
    "rules, message",
    [
        ([], "at least one"),
        (None, r"made of \(pattern, label\) rules, got None"),
        ([(".*/query/.*", "frozen")], "no rule covers 2 of 3 parameters, such as block_0/attn/val"),
        ([(".*/qery/.*", "frozen"), (".*", "train")], r"'\.\*/qery/\.\*' matches no path"),
        ([(".*", "train"), (".*/query/.*", "frozen")], "has no effect: earlier rules such as"),
        ([("(", "frozen")], "not a regular expression"),
        (
            "frozen_kq",
            "is the name of a variant .*got the string 'frozen_kq'. Did you mean 'frozen_qk'",
        ),
        (".*query.*", "rules such as .*got the string '.*query.*'"),
        ({"(": "frozen"}, "not a regular expression"),
    ],
)
def test_wrong_rules_are_one_line_errors(rules, message):
    with pytest.raises(UserError, match=message):
        Partition(rules).labels(PARAMS)


@pytest.mark.parametrize("rules", ["frozen_qk", dict(FROZEN_QK.rules), iter(FROZEN_QK.rules)])
def test_a_name_of_a_variant_and_a_dict_are_rules_too(rules):
    assert Partition(rules).rules == FROZEN_QK.rules


def test_rules_that_train_nothing_are_one_line_errors():
    with pytest.raises(UserError, match=r"train nothing: give some parameters another label"):
        Partition([(".*", "frozen")]).optimizer({"train": optax.sgd(1.0)})


def test_a_misspelt_alternative_is_an_error():
    """The rest of its group still matches, so that keys would be frozen and queries trained."""
    params = {"attn": {name: jnp.ones(2) for name in ("query", "key", "value")}}
    rules = ((".*/(qury|key)", "frozen"), (".*", "train"))
    expected = r"'qury' in the pattern '\.\*/\(qury\|key\)' matches no path. Did you mean 'query'"
    with pytest.raises(UserError, match=expected):
        Partition(rules).labels(params)
    # Many models serve one pattern: a name that resembles none of this model's may be meant.
    Partition(((".*/(positions|key)", "frozen"), (".*", "train"))).labels(params)
    # Nor does a name that is only similar to what the group has already named.
    Partition(((".*/(keys|key)", "frozen"), (".*", "train"))).labels(params)


def test_the_table_of_labels_joins_blocks_that_are_alike():
    block = {"attn": {"query": jnp.ones((2, 3))}}
    params = {f"block_{i}": block for i in (0, 1, 2, 10)} | {"embed": jnp.ones((50, 20))}
    rules = ((".*/(query|gate)", "frozen"), (".*", "train"))
    assert label_table(Partition(rules), params).splitlines() == [
        "parameter                 shape     size  label",
        "block_0..2,10/attn/query  2 x 3        6  frozen",
        "embed                     50 x 20  1,000  train",
        "parameters: 24 frozen, 1,000 train",
        "warning: 'gate' in the pattern '.*/(query|gate)' matches no parameter",
    ]
    # Blocks with other labels have lines of their own.
    last = label_table(Partition((("block_10/.*", "train"), (".*", "frozen"))), params)
    assert "block_0..2/attn/query  2 x 3        6  frozen\nblock_10/attn/query" in last


def test_a_label_without_an_optimizer_is_named():
    with pytest.raises(UserError, match="no optimizer for the label 'trian'"):
        Partition([(".*", "trian")]).optimizer({"train": optax.sgd(1.0)})


def test_each_label_has_its_own_optimizer():
    partition = Partition([("embed/.*", "slow"), (".*", "fast")])
    tx = partition.optimizer({"slow": optax.sgd(0.1), "fast": optax.sgd(1.0)})
    updates, _ = tx.update(PARAMS, tx.init(PARAMS), PARAMS)
    np.testing.assert_allclose(updates["embed"]["embedding"], -0.1)
    np.testing.assert_allclose(updates["block_0"]["attn"]["value"]["kernel"], -1.0)


@EXAMPLES
@given(TREES, st.data())
def test_the_first_rule_labels_and_the_halves_are_the_whole(tree, data):
    """Draws rules for single leaves, a repeated rule without effect, and one for all others."""
    shapes = paths.map_with_path(lambda path, _: np.zeros((len(path), 2)), tree)
    flat = paths.flatten(shapes)
    named = data.draw(st.lists(st.sampled_from([*flat]), unique=True, max_size=len(flat) - 1))
    own = {path: data.draw(st.sampled_from([FROZEN, "slow", "fast"])) for path in named}
    partition = Partition([*((re.escape(p), label) for p, label in own.items()), (".*", "rest")])
    labels = paths.flatten(partition.labels(shapes))
    assert labels == {path: own.get(path, "rest") for path in flat}
    counts = partition.count(shapes)
    assert counts == {
        label: sum(2 * len(p) for p in flat if labels[p] == label) for label in labels.values()
    }
    trainable, frozen = partition.split(shapes)
    assert set(paths.flatten(frozen)) == {p for p, label in labels.items() if label == FROZEN}
    chex.assert_trees_all_equal(Partition.merge(trainable, frozen), shapes)
    if named:
        idle = Partition([(".*", "rest"), *partition.rules[:-1]])
        with pytest.raises(UserError, match=r"rule 1 .* has no effect"):
            idle.labels(shapes)
