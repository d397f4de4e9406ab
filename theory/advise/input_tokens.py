"""What a published model is given to read: your text, or tokens drawn at random."""

from pathlib import Path

import numpy as np

from jaxformer.core.errors import UserError
from jaxformer.models.pretrained.text import Numbers, reader

SEQUENCES = 8
CHARACTERS = 2**20  # of a file, at most


def of_vocabulary(vocabulary: int, length: int) -> np.ndarray:
    """Tokens drawn at random, the same each time."""
    return np.random.default_rng(0).integers(vocabulary, size=(SEQUENCES, length))


def sequences(
    folder: Path, vocabulary: int, file: Path, length: int | None, longest: int
) -> np.ndarray:
    """(B, T): the beginning of a file, in sequences of `length`, or as long as they may be.

    A file of whole numbers holds token ids; any other is text for the tokenizer of the folder.
    """
    with file.open(errors="replace") as stream:
        words = stream.read(CHARACTERS)
    is_ids = all(word.removeprefix("-").isdecimal() for word in words.split())
    found = (Numbers(vocabulary) if is_ids else reader(folder, vocabulary)).encode(words)
    if len(found) < 2:
        raise UserError(f"{str(file)!r} must hold at least two tokens, got {len(found)}.")
    length = min(longest, len(found)) if length is None else length
    if len(found) < length:
        raise UserError(f"{str(file)!r} holds {len(found)} tokens, --length asks for {length}.")
    rows = min(len(found) // length, SEQUENCES)
    return np.array(found[: rows * length]).reshape(rows, length)
