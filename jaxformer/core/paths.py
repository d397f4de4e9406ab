"""Addresses of parameters and activations: paths such as "block_3/attn/query/kernel".

Trees are nested dicts. A pattern is a regular expression that must match a whole path
(`re.fullmatch`). Surgery and capture also accept the path of a module: a pattern that matches a
whole prefix such as "block_3/mlp/in" selects everything below it.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from jaxformer.core.errors import UserError, did_you_mean

Tree = Mapping[str, Any]
MAX_PATTERN_LENGTH = 1000  # characters
# Six `.*` in sequence match a path of 40 characters in C(46, 6) = 9.4 million ways. That is about
# 15 ways for each repetition: 15**6 = 11.4 million.
WAYS_OF_REPETITION = 15
MAX_MATCH_WAYS = WAYS_OF_REPETITION**6
# The tokens of a regular expression. An escape such as \d or a class such as [^/] is a `single`.
TOKEN = re.compile(
    r"(?P<refused>\(\?(?!:|=|!|<=|<!|P<)|\\[1-9])"
    r"|(?P<opens>\((?:\?(?::|=|!|<=|<!|P<\w+>))?)"
    r"|(?P<closes>\))"
    r"|(?P<branch>\|)"
    r"|(?P<optional>\?[?+]?)"
    r"|(?P<repeat>(?:[*+]|\{(?P<low>\d*)(?P<comma>,?)(?P<high>\d*)\}(?<!\{\}))[?+]?)"
    r"|(?P<single>\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.)",
    re.DOTALL,
)


def flatten(tree: Tree) -> dict[str, Any]:
    """Returns {path: leaf} of a nested dict, in the sorted order in which JAX flattens it."""
    flat = {}
    for name in sorted(tree):
        value = tree[name]
        if isinstance(value, Mapping):
            flat |= {f"{name}/{path}": leaf for path, leaf in flatten(value).items()}
        else:
            flat[name] = value
    return flat


def by_number(path: str) -> list[str | int]:
    """Returns a sort key that compares the numbers in a path: block_2 before block_10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"([0-9]+)", path)]


def unflatten(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the nested dict of {path: leaf}; the inverse of `flatten`."""
    tree: dict[str, Any] = {}
    for path, leaf in flat.items():
        *parents, name = path.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = leaf
    return tree


def map_with_path(function: Callable[[str, Any], Any], tree: Tree) -> dict[str, Any]:
    """Returns the tree whose leaves are `function(path, leaf)`."""
    return unflatten({path: function(path, leaf) for path, leaf in flatten(tree).items()})


def matches(pattern: str, path: str, modules: bool = False) -> bool:
    """Tests whether a pattern matches a whole path.

    Args:
        pattern: a regular expression.
        path: the address of a parameter or activation.
        modules: whether it is enough that the pattern matches a module above the path.
    """
    if re.fullmatch(pattern, path):
        return True
    if not modules:
        return False
    parts = path.split("/")
    return any(re.fullmatch(pattern, "/".join(parts[:depth])) for depth in range(1, len(parts)))


def select(tree: Tree, pattern: str) -> dict[str, Any]:
    """Returns {path: leaf} of the leaves that a pattern matches, in the order of blocks.

    A pattern that matches a module selects all leaves below it.

    Args:
        tree: nested dict.
        pattern: a regular expression over paths.

    Raises:
        UserError: the tree is no dict, or no leaf matches; the message names the closest path.
    """
    check_pattern(pattern)
    if not isinstance(tree, Mapping):
        raise UserError(f"expected parameters, a nested dict; got {tree!r:.60}.")
    flat = flatten(tree)
    selected = {path: leaf for path, leaf in flat.items() if matches(pattern, path, True)}
    if not selected:
        raise no_match_error(pattern, list(flat))
    return {path: selected[path] for path in sorted(selected, key=by_number)}


def replace(tree: Tree, new: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a copy of the tree with the leaves {path: leaf} of `new` replaced."""
    flat = flatten(tree)
    for path in new:
        if path not in flat:
            examples = ", ".join(list(flat)[:3])
            raise UserError(
                f"no parameter {path!r}.{did_you_mean(path, flat)} Paths look like: {examples}."
            )
    return unflatten(flat | dict(new))


def check_pattern(pattern: str) -> None:
    """Raises a UserError unless the pattern is a regular expression that matches quickly.

    Python's `re` backtracks: "(a+)+b" tries every way to cut a path into pieces. For a long path
    this takes longer than the age of the universe. Two rules exclude such patterns. A repeated
    group must contain neither repetitions nor alternatives. A pattern may match in at most
    MAX_MATCH_WAYS ways; a sequence of six `.*` just reaches this number.
    """
    if len(pattern) > MAX_PATTERN_LENGTH:
        raise UserError(
            f"a pattern has at most {MAX_PATTERN_LENGTH} characters, got {len(pattern)}."
        )
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise UserError(f"{pattern!r} is not a regular expression: {error}.") from None
    if _count_ways(pattern) > MAX_MATCH_WAYS:
        raise UserError(
            f"the pattern {pattern!r} can match in too many ways. Write it with fewer repetitions "
            "(* + ?) and alternatives (|), and with neither inside a repeated group."
        )


class _Group:
    """The part of a pattern between two parentheses, as far as it has been read."""

    def __init__(self):
        self.ways = [1.0]  # ways of matching each alternative
        self.is_plain = True  # whether it has neither repetitions nor alternatives
        self.last_ways, self.last_is_plain = 1.0, True  # of the part that was added last

    def add(self, ways: float, is_plain: bool) -> None:
        self.ways[-1] *= ways
        self.is_plain = self.is_plain and is_plain
        self.last_ways, self.last_is_plain = ways, is_plain

    def begin_alternative(self) -> None:
        self.ways.append(1.0)
        self.is_plain = False

    def make_last_optional(self) -> None:
        self.ways[-1] *= (self.last_ways + 1) / self.last_ways
        self.is_plain = False

    def repeat_last(self, n_counts: float) -> None:
        self.ways[-1] *= min(n_counts, WAYS_OF_REPETITION) if self.last_is_plain else math.inf
        self.is_plain = False


def _count_ways(pattern: str) -> float:
    """Returns about how many ways `re` may try to match a path with a valid pattern.

    The ways of alternatives are added, those of parts in a sequence are multiplied.
    """
    groups = [_Group()]
    for token in TOKEN.finditer(pattern):
        if token["refused"]:
            raise UserError(
                f"the pattern {pattern!r} contains a flag, condition or back reference "
                f"({token['refused']}..); use none of them in a pattern of paths."
            )
        if token["opens"]:
            groups.append(_Group())
        elif token["closes"]:
            group = groups.pop()
            groups[-1].add(sum(group.ways), group.is_plain)
        elif token["branch"]:
            groups[-1].begin_alternative()
        elif token["optional"]:
            groups[-1].make_last_optional()
        elif token["repeat"]:
            groups[-1].repeat_last(_repeat_counts(token))
        else:
            groups[-1].add(1.0, True)
    return sum(groups[0].ways)


def _repeat_counts(token: re.Match) -> float:
    """Returns how many different counts a repetition such as `*`, `{3}` or `{2,5}` allows."""
    if token["low"] is None or (token["comma"] and not token["high"]):
        return math.inf
    if not token["comma"]:
        return 1
    return int(token["high"]) - int(token["low"] or 0) + 1


def no_match_error(pattern: str, known_paths: list[str]) -> UserError:
    """Returns the error for a pattern without a match; it names the closest path or examples."""
    is_a_path = re.fullmatch(r"[\w/]+", pattern)
    hint = _without_module(pattern, known_paths)
    hint = hint or ("" if is_a_path else _nearest_segment(pattern, known_paths))
    hint = hint or did_you_mean(pattern, known_paths)
    examples = ", ".join(known_paths[:3])
    return UserError(f"the pattern {pattern!r} matches no path.{hint} Paths look like: {examples}.")


def _without_module(pattern: str, known_paths: list[str]) -> str:
    """Returns " Did you mean 'tok/.*'? .." for ".*/tok/.*" if tok is in no other module."""
    rest = pattern.removeprefix(".*/")
    if rest == pattern or not any(matches(rest, path, modules=True) for path in known_paths):
        return ""
    return f" Did you mean {rest!r}? It is in no other module, and '.*/' needs one."


def _nearest_segment(pattern: str, known_paths: list[str]) -> str:
    """Returns " Did you mean 'value'?" for the first segment of a pattern that no path has."""
    segments = sorted({segment for path in known_paths for segment in path.split("/")})
    for part in pattern.split("/"):
        try:
            if any(re.fullmatch(part, segment) for segment in segments):
                continue
        except re.error:  # a group that contains a slash
            continue
        hints = (did_you_mean(name, segments) for name in re.findall(r"[A-Za-z]\w+", part))
        if hint := next(filter(None, hints), ""):
            return hint
    return ""
