"""The prompts that the paper asks published models, with what should come next and what should not.

prompts.json has the 20 facts of Table 5, the 30 prepositions and the 40 sentences that end with one
(I.1). The names of indirect object identification are not given: ours are common, and those that
are one token, with their space, in a model's tokenizer are used.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxformer.core.errors import UserError, check_choice

MADRID = ("Madrid is located in", "Spain")
MARY = ("When Mary and John went to a store, John gave a drink to", "Mary")
STORE = "When {} and {} went to a store, {} gave a drink to"
GENERIC = "the"
FOLLOWED = {"mary": ("them",)}  # generic words beside "the" whose probability the paper shows


class Asked(NamedTuple):
    """One prompt: what is right, and a word of the prompt that is wrong ("" if there is none)."""

    prompt: str
    target: str
    wrong: str = ""


@cache
def _held() -> dict[str, Any]:
    return json.loads((Path(__file__).parent / "prompts.json").read_text())


def asked(kind: str, number: int, seed: int, words: Any) -> list[Asked]:
    """The first `number` prompts of a kind (all of them for 0)."""
    check_choice("kind of prompt", kind, KINDS)
    if kind == "ioi":
        return _stores(number or 100, seed, words)
    found = {
        "madrid": [Asked(*MADRID)],
        "mary": [Asked(*MARY, "John")],
        "facts": [Asked(*pair) for pair in _held()["facts"]],
        "words": [Asked(word, GENERIC) for word in _held()["prepositions"]],
        "sentences": [Asked(text, GENERIC) for text in _held()["sentences"]],
    }[kind]
    return found[: number or None]


KINDS = ("madrid", "mary", "facts", "words", "sentences", "ioi")


def texts() -> list[str]:
    """All of them, from which a tiny model's tokenizer learns its words."""
    held = _held()
    lines = [f"{prompt} {target} {GENERIC}" for prompt, target in [MADRID, MARY, *held["facts"]]]
    return [
        *lines,
        " ".join(["", *held["names"]]),
        *held["prepositions"],
        *held["sentences"],
        STORE,
    ]


def _stores(number: int, seed: int, words: Any) -> list[Asked]:
    """Two different names, in either order; the one that is named once is right."""
    names = [name for name in _held()["names"] if len(words.pieces(f" {name}")) == 1]
    if len(names) < 2:
        raise UserError("the tokenizer has fewer than two of our names as single tokens.")
    draw = np.random.RandomState(seed)
    found = []
    for _ in range(number):
        right, wrong = draw.choice(names, 2, replace=False)
        pair = (right, wrong) if draw.rand() < 0.5 else (wrong, right)
        found.append(Asked(STORE.format(*pair, wrong), str(right), str(wrong)))
    return found
