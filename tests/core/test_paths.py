"""Paths: flatten and unflatten, whole-path matching, module prefixes, closest names."""

import re
import time

import chex
import jax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxformer.core import paths
from jaxformer.core.errors import UserError

EXAMPLES = settings(derandomize=True, max_examples=40, deadline=None)
NAMES = st.text("ab_0", min_size=1, max_size=3)
TREES = st.recursive(
    st.integers(), lambda inner: st.dictionaries(NAMES, inner, min_size=1, max_size=3), max_leaves=8
).filter(lambda tree: isinstance(tree, dict))
TREE = {"block_0": {"mlp": {"in": {"kernel": 1, "bias": 2}}, "norm": {"scale": 3}}, "embed": 4}


def test_unflatten_undoes_flatten():
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
    "pattern, message",
    [
        ("block_0/mlp/im/kernel", "Did you mean 'block_0/mlp/in/kernel'"),
        (".*/kernl", "Did you mean 'kernel'"),
        (r"block_\d+/mlpp/.*", "Did you mean 'mlp'"),
        (".*(a/b|c).*/qqq", "no path. Paths look like"),
        ("(", "not a regular"),
        (".*/embed", r"Did you mean 'embed'\? It is in no other module, and '\.\*/' needs one"),
        (".*/block_0/.*", r"Did you mean 'block_0/\.\*'\? It is in no other module"),
    ],
)
def test_a_wrong_pattern_names_the_closest_path(pattern, message):
    with pytest.raises(UserError, match=message):
        paths.select(TREE, pattern)


@EXAMPLES
@given(TREES)
def test_any_tree_is_its_paths(tree):
    flat = paths.flatten(tree)
    chex.assert_trees_all_equal(paths.unflatten(flat), tree)
    assert [*flat.values()] == jax.tree.leaves(tree), "in the order of JAX"


@EXAMPLES
@given(TREES, st.data())
def test_a_module_selects_what_is_below_it_and_nothing_else(tree, data):
    flat = paths.flatten(tree)
    parts = data.draw(st.sampled_from([*flat])).split("/")
    module = "/".join(parts[: data.draw(st.integers(1, len(parts)))])
    below = {path: leaf for path, leaf in flat.items() if f"{path}/".startswith(f"{module}/")}
    assert paths.select(tree, re.escape(module)) == below
    whole = {path for path in flat if paths.matches(re.escape(module), path)}
    assert whole == {module} & set(flat)


SLOW_PATTERNS = (
    "(a+)+b",
    "(.*)*",
    "(a|b*)*c",
    r"(|\w|[\w/]|.)*X",
    r"(?=(.|\w|[a-z/])*X)a",
    r"(a|[^/]|.)*(b|[^/]|.)*X",
    "(a?){1,30}X",
    "((a{60000}){60000})",
    ".*" * 7,
    ".?" * 30 + "X",
    "(.|[^/])" * 25 + "X",
    "a" * 1001,
    r"(a)\1",
    "(?P<letter>.)(?P=letter)",
    "(?x)a",
)
QUICK_PATTERNS = (
    ".*/(query|key)/.*",
    "(embed|unembed|positions)/.*",
    r"block_\d+/attn/.*",
    r"(.*/)?block_\d+/(attn|mlp)/output",
    "block_[0-9]{1,2}/mlp",
    "(?!x).*",
    "[]*+(|]",
    "a{}",
    ".*" * 6,
    ".?" * 22,
)


def test_patterns_that_backtrack_without_end_are_refused():
    for pattern in SLOW_PATTERNS:
        with pytest.raises(UserError, match="pattern"):
            paths.check_pattern(pattern)


def test_accepted_patterns_match_a_long_path_in_less_than_a_second():
    for pattern in QUICK_PATTERNS:
        paths.check_pattern(pattern)
        began = time.process_time()
        paths.matches(f"{pattern}X", "block_11/attn/query_projection/kernel/of")
        assert time.process_time() - began < 1, pattern
