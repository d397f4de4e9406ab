"""Parameters are addressed by strings: "block_3/attn/query/kernel". Trees are nested dicts.

A pattern is a regular expression that must match a whole path (`re.fullmatch`). Where a module may
be named too (surgery, capture), a pattern that matches a whole prefix such as "block_3/mlp/in"
stands for everything below it.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from jaxformer.core.errors import UserError, did_you_mean

Tree = Mapping[str, Any]
LONGEST = 1000  # characters of a pattern
REPEATS = 6  # of a pattern: a path has some forty characters


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
    """Raises unless the pattern is a regular expression that is matched at once.

    "(a+)+" tries all ways to cut a path into pieces: more than the age of the universe.
    """
    if len(pattern) > LONGEST:
        raise UserError(f"a pattern has at most {LONGEST} characters, got {len(pattern)}.")
    try:
        re.compile(pattern)
        parsed = re._parser.parse(pattern)  # type: ignore[attr-defined]
    except (re.error, RecursionError, OverflowError) as error:
        raise UserError(f"{pattern!r} is not a regular expression: {error}.") from None
    if _repeats(parsed) > REPEATS:
        raise UserError(
            f"the pattern {pattern!r} repeats what itself repeats, or more than {REPEATS} times in "
            "a row; say it with fewer * and +."
        )


def _repeats(parsed: Any) -> int:
    """How many * and + (and {..}) a match may have to try against each other."""
    count = 0
    for operation, argument in parsed:
        if str(operation) in ("MAX_REPEAT", "MIN_REPEAT"):
            inside = _repeats(argument[2])
            free = argument[1] - argument[0] > 1 or argument[1] > 100
            count += free + (inside and REPEATS + 1 if argument[1] > 1 else inside)
        elif str(operation) == "BRANCH":
            count += max(map(_repeats, argument[1]), default=0)
        elif str(operation) in ("SUBPATTERN", "ATOMIC_GROUP"):
            count += _repeats(argument[-1] if str(operation) == "SUBPATTERN" else argument)
        elif str(operation) in ("ASSERT", "ASSERT_NOT"):
            count += _repeats(argument[1])
        elif str(operation) in ("GROUPREF", "GROUPREF_EXISTS"):
            count += REPEATS + 1
    return count


def nothing_matches(pattern: str, known: list[str]) -> UserError:
    """The error for a pattern without a match, with the closest path or some of those there are."""
    is_a_path = re.fullmatch(r"[\w/]+", pattern)
    hint = ("" if is_a_path else _nearest_segment(pattern, known)) or did_you_mean(pattern, known)
    examples = ", ".join(known[:3])
    return UserError(f"the pattern {pattern!r} matches no path.{hint} Paths look like: {examples}.")


def _nearest_segment(pattern: str, known: list[str]) -> str:
    """ " Did you mean 'value'?" for the first part of a pattern that is like no part of a path."""
    segments = sorted({segment for path in known for segment in path.split("/")})
    for part in pattern.split("/"):
        try:
            if any(re.fullmatch(part, segment) for segment in segments):
                continue
        except re.error:  # a group that holds a slash
            continue
        hints = (did_you_mean(word, segments) for word in re.findall(r"[A-Za-z]\w+", part))
        if hint := next(filter(None, hints), ""):
            return hint
    return ""
