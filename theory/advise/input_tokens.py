"""The tokens that the advisor gives to a published model, and how often tokens of a text repeat."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from jaxformer.core.errors import UserError

MAX_SEQUENCES = 8
MAX_CHARACTERS = 2**20  # read from the beginning of a file


def random_tokens(vocab_size: int, length: int) -> np.ndarray:
    """Returns (MAX_SEQUENCES, length) uniform random tokens, the same at every call."""
    return np.random.default_rng(0).integers(vocab_size, size=(MAX_SEQUENCES, length))


def tokens_of_file(
    folder: Path, vocab_size: int, file: Path, length: int | None, max_length: int
) -> np.ndarray:
    """Tokenizes the beginning of a file and cuts the tokens into sequences of equal length.

    Args:
      folder: the model's folder with its tokenizer.
      vocab_size: size of the model's vocabulary.
      file: a text, or token ids if the file contains whole numbers only.
      length: tokens in a sequence; None takes as many as the file and max_length allow.
      max_length: largest length if `length` is None.

    Returns:
      (B, T) token ids, at most MAX_SEQUENCES sequences.
    """
    from jaxformer.models.pretrained.text import TokenIds, tokenizer_of

    with file.open(errors="replace") as stream:
        text = stream.read(MAX_CHARACTERS)
    is_ids = all(part.removeprefix("-").isdecimal() for part in text.split())
    tokenizer = TokenIds(vocab_size) if is_ids else tokenizer_of(folder, vocab_size)
    tokens = tokenizer.encode(text)
    if len(tokens) < 2:
        raise UserError(f"{str(file)!r} must hold at least two tokens, got {len(tokens)}.")
    if length is None:
        length = min(max_length, len(tokens))
    if len(tokens) < length:
        raise UserError(f"{str(file)!r} holds {len(tokens)} tokens, --length asks for {length}.")
    n_sequences = min(len(tokens) // length, MAX_SEQUENCES)
    return np.array(tokens[: n_sequences * length]).reshape(n_sequences, length)


def repeat_probability(tokens: Iterable) -> float:
    """Returns the probability that two different positions have the same token."""
    counts = Counter(tokens)
    n = counts.total()
    return sum(k * (k - 1) for k in counts.values()) / (n * (n - 1))
