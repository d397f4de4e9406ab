"""The paper's prompts for published models, with the right and a wrong continuation of each.

prompts.json has the 20 facts of Table 5, the 30 prepositions and the 40 sentences that end with one
(Appendix I.1). The paper does not give the names of indirect object identification. Ours are common
names that a model's tokenizer encodes, with a space before them, as one token.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxformer.core.errors import UserError, check_choice

KINDS = ("madrid", "mary", "facts", "words", "sentences", "ioi")
MADRID = ("Madrid is located in", "Spain")
MARY = ("When Mary and John went to a store, John gave a drink to", "Mary")
STORE = "When {} and {} went to a store, {} gave a drink to"
IOI_PROMPTS = 100
GENERIC = "the"  # the generic continuation, which the paper treats as noise
MORE_GENERIC = {"mary": ("them",)}  # kind -> other generic words whose probability is reported


class Prompt(NamedTuple):
    """A prompt, its right continuation, and a name in it that is wrong ("" if there is none)."""

    text: str
    target: str
    wrong: str = ""


@cache
def _prompts_file() -> dict[str, Any]:
    return json.loads((Path(__file__).parent / "prompts.json").read_text())


def prompts_of(kind: str, number: int, seed: int, tokenizer: Any) -> list[Prompt]:
    """Returns the first `number` prompts of a kind, or all of them for 0."""
    check_choice("kind of prompt", kind, KINDS)
    if kind == "ioi":
        return _ioi_prompts(number or IOI_PROMPTS, seed, tokenizer)
    prompts = {
        "madrid": [Prompt(*MADRID)],
        "mary": [Prompt(*MARY, "John")],
        "facts": [Prompt(*pair) for pair in _prompts_file()["facts"]],
        "words": [Prompt(word, GENERIC) for word in _prompts_file()["prepositions"]],
        "sentences": [Prompt(text, GENERIC) for text in _prompts_file()["sentences"]],
    }[kind]
    return prompts[: number or None]


def texts() -> list[str]:
    """Returns all prompts and targets, on which a tiny model's tokenizer is trained."""
    content = _prompts_file()
    pairs = [MADRID, MARY, *content["facts"]]
    return [
        *(f"{text} {target} {GENERIC}" for text, target in pairs),
        " ".join(["", *content["names"]]),
        *content["prepositions"],
        *content["sentences"],
        STORE,
    ]


def _ioi_prompts(number: int, seed: int, tokenizer: Any) -> list[Prompt]:
    """Draws two names in either order; the right one occurs once, the wrong one twice."""
    names = [name for name in _prompts_file()["names"] if len(tokenizer.pieces(f" {name}")) == 1]
    if len(names) < 2:
        raise UserError("the tokenizer has fewer than two of our names as single tokens.")
    draw = np.random.RandomState(seed)
    prompts = []
    for _ in range(number):
        right, wrong = draw.choice(names, 2, replace=False)
        pair = (right, wrong) if draw.rand() < 0.5 else (wrong, right)
        prompts.append(Prompt(STORE.format(*pair, wrong), str(right), str(wrong)))
    return prompts
