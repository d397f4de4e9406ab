"""Addresses: flatten and back, whole-path matching, module prefixes, closest names."""

import pytest

from jaxformer import paths
from jaxformer.errors import UserError

TREE = {"block_0": {"mlp": {"in": {"kernel": 1, "bias": 2}}, "norm": {"scale": 3}}, "embed": 4}


def test_flatten_and_back():
    flat = paths.flatten(TREE)
    assert flat == {
        "block_0/mlp/in/bias": 2,
        "block_0/mlp/in/kernel": 1,
        "block_0/norm/scale": 3,
        "embed": 4,
    }
    assert paths.unflatten(flat) == TREE


def test_a_pattern_matches_whole_paths_and_modules_only_if_asked():
    assert paths.matches(".*/mlp/.*", "block_0/mlp/in/kernel")
    assert not paths.matches("block_0/mlp", "block_0/mlp/in/kernel")
    assert paths.matches("block_0/mlp", "block_0/mlp/in/kernel", modules=True)
    assert not paths.matches("block_0/ml", "block_0/mlp/in/kernel", modules=True)
    assert list(paths.select(TREE, "block_0/mlp/in")) == [
        "block_0/mlp/in/bias",
        "block_0/mlp/in/kernel",
    ]


def test_replace_keeps_the_rest():
    assert paths.replace(TREE, {"embed": 5}) == TREE | {"embed": 5}
    with pytest.raises(UserError, match="Did you mean 'embed'"):
        paths.replace(TREE, {"embde": 5})


@pytest.mark.parametrize(
    "pattern, words",
    [("block_0/mlp/im/kernel", "Did you mean 'block_0/mlp/in/kernel'"), ("(", "not a regular")],
)
def test_wrong_patterns(pattern, words):
    with pytest.raises(UserError, match=words):
        paths.select(TREE, pattern)
