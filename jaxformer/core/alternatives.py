"""Alternatives of a pattern, such as `query` and `key` in ".*/(query|key)/.*".

A pattern with alternatives still matches when one of them is misspelt: ".*/(qury|key)/.*" freezes
the keys alone. An alternative without a match is an error if it is one letter or so away from a
name that the pattern misses. Otherwise it may be meant, because one pattern often serves several
models: "(embed|positions)/.*" is right for a model with rotary positions too.
"""

import difflib
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from jaxformer.core.errors import UserError

GROUP = re.compile(r"(?<!\\)\((?:\?:)?(\w+(?:\|\w+)+)\)")
# The share of equal letters from which two names count as one word and its misspelling: "qury" and
# "query" have 8/9, "unembed" and "embed" 10/12.
MISSPELT = 0.85


class Idle(NamedTuple):
    """An alternative that matches no path."""

    word: str
    pattern: str
    meant: str  # the name that it is a misspelling of, or ""


def idle(pattern: str, known_paths: Iterable[str]) -> Iterator[Idle]:
    """Yields the alternatives of a pattern without which it would match the same paths.

    Only groups of plain words are examined, since other alternatives need not be names.
    """
    known_paths = [*known_paths]
    segments = {segment for path in known_paths for segment in path.split("/")}
    for group in GROUP.finditer(pattern):
        words = group[1].split("|")
        for word in words:
            alone = re.compile(pattern[: group.start()] + word + pattern[group.end() :])
            if not any(map(alone.fullmatch, known_paths)):
                others = sorted(segments - {*words})
                close = difflib.get_close_matches(word, others, n=1, cutoff=MISSPELT)
                yield Idle(word, pattern, close[0] if close else "")


def check(pattern: str, known_paths: Iterable[str]) -> None:
    """Raises UserError if an alternative of the pattern is a misspelt name."""
    for word, _, meant in idle(pattern, known_paths):
        if meant:
            raise UserError(
                f"{word!r} in the pattern {pattern!r} matches no path. Did you mean {meant!r}?"
            )
