"""Parameters are addressed by strings: "block_3/attn/query/kernel". Trees are nested dicts.

A pattern is a regular expression that must match a whole path (`re.fullmatch`). Where a module may
be named too (surgery, capture), a pattern that matches a whole prefix such as "block_3/mlp/in"
stands for everything below it.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from jaxformer.errors import UserError, did_you_mean

Tree = Mapping[str, Any]


def flatten(tree: Tree) -> dict[str, Any]:
    """{path: leaf}, in the sorted order in which JAX flattens nested dicts."""
    flat = {}
    for name in sorted(tree):
        value = tree[name]
        if isinstance(value, Mapping):
            flat |= {f"{name}/{path}": leaf for path, leaf in flatten(value).items()}
        else:
            flat[name] = value
    return flat


def unflatten(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The nested dict with these {path: leaf}."""
    tree: dict[str, Any] = {}
    for path, leaf in flat.items():
        *parents, name = path.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = leaf
    return tree


def map_with_path(function: Callable[[str, Any], Any], tree: Tree) -> dict[str, Any]:
    """The tree of `function(path, leaf)`."""
    return unflatten({path: function(path, leaf) for path, leaf in flatten(tree).items()})


def matches(pattern: str, path: str, modules: bool = False) -> bool:
    """Does the pattern match the whole path (or, with `modules`, the path of a module above it)?"""
    if re.fullmatch(pattern, path):
        return True
    if not modules:
        return False
    parts = path.split("/")
    return any(re.fullmatch(pattern, "/".join(parts[:depth])) for depth in range(1, len(parts)))


def select(tree: Tree, pattern: str, modules: bool = True) -> dict[str, Any]:
    """{path: leaf} of what the pattern matches; nothing is an error with the closest path."""
    check_pattern(pattern)
    flat = flatten(tree)
    chosen = {path: leaf for path, leaf in flat.items() if matches(pattern, path, modules)}
    if not chosen:
        raise nothing_matches(pattern, list(flat))
    return chosen


def replace(tree: Tree, new: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of the tree with the leaves of `new` ({path: leaf}) in place of the old ones."""
    flat = flatten(tree)
    for path in new:
        if path not in flat:
            raise UserError(f"no parameter {path!r}.{did_you_mean(path, flat)}")
    return unflatten(flat | dict(new))


def check_pattern(pattern: str) -> None:
    """Raises unless the pattern is a regular expression."""
    try:
        re.compile(pattern)
    except re.error as error:
        raise UserError(f"{pattern!r} is not a regular expression: {error}.") from None


def nothing_matches(pattern: str, known: list[str]) -> UserError:
    """The error for a pattern without a match, with the closest path or some of those there are."""
    hint = did_you_mean(pattern, known)
    examples = ", ".join(known[:3])
    return UserError(f"the pattern {pattern!r} matches no path.{hint} Paths look like: {examples}.")
