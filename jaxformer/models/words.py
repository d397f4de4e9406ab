"""Words of a prompt as tokens: what every tokenizer here offers beside `encode` and `decode`.

A loaded model knows its tokenizer (`jaxformer.models.source`).
"""

from typing import Any

import numpy as np

from jaxformer.core.errors import UserError, did_you_mean
from jaxformer.core.text_format import counted


def token_list(ids: Any) -> list[int]:
    """The tokens of one text as a list, given as a list or an array."""
    array = np.asarray(ids)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise UserError(
            "expected the token ids of one text, such as tokens[0]; got "
            f"{array.dtype} of the shape {array.shape}."
        )
    return array.tolist()


class Words:
    """Methods for tokenizers that have `encode`, `pieces`, `decode` and `show`."""

    encode: Any
    pieces: Any
    decode: Any
    show: Any

    def single(self, word: str) -> int:
        """The token of a word that is one token, such as " Mary" with its space.

        Raises:
          UserError: the word has several tokens; the message shows them.
        """
        tokens = self.pieces(word)
        if len(tokens) != 1:
            pieces = ", ".join(map(self.show, tokens))
            hint = "" if word.startswith(" ") else " Within a text a word begins with its space."
            raise UserError(f"{word!r} is {len(tokens)} tokens ({pieces}), not one.{hint}")
        return tokens[0]

    def tokens(self, prompt: str) -> list[str]:
        """The tokens of a prompt as `show` writes them, for the axes of a figure."""
        return [self.show(token) for token in self.encode(prompt)]

    def position(self, prompt: str, word: str, occurrence: int = 1) -> int:
        """The position of a word's last token in a prompt.

        Args:
          prompt: the text.
          word: a part of it.
          occurrence: 1 for the first occurrence, 2 for the second; -1 for the last.

        Example:
          text.position("Mary and John met; John gave", "John", 2)
        """
        ends, start = [], prompt.find(word) if word else -1
        while start >= 0:
            ends.append(start + len(word))
            start = prompt.find(word, ends[-1])
        index = occurrence - 1 if occurrence > 0 else len(ends) + occurrence
        if not ends:
            hint = did_you_mean(word.strip(), prompt.split())
            raise UserError(f"{word!r} is not in the prompt {prompt!r:.80}.{hint}")
        if occurrence == 0 or not 0 <= index < len(ends):
            raise UserError(
                f"{word!r} occurs {counted(len(ends), 'time')} in the prompt: occurrence counts "
                f"from 1, or from -1 backwards; got {occurrence}."
            )
        tokens = self.encode(prompt)
        # Some tokenizers drop the first space of what they decode.
        cut = len(prompt) - len(self.decode(tokens))
        read = prompt[cut : ends[index]] if cut >= 0 else prompt[: ends[index]]
        for position in range(len(tokens)):
            if self.decode(tokens[: position + 1]).startswith(read):
                return position
        raise UserError(f"the tokenizer does not give the prompt {prompt!r:.80} back.")


class Letters(Words):
    """A tokenizer whose tokens are the letters of an alphabet."""

    ends: frozenset[int] = frozenset()

    def __init__(self, alphabet: str):
        self.alphabet = alphabet

    def __repr__(self) -> str:
        return f"Letters({self.alphabet!r})"

    def encode(self, text: str) -> list[int]:
        for letter in text:
            if letter not in self.alphabet:
                raise UserError(f"{letter!r} is none of the letters {self.alphabet}.")
        return [self.alphabet.index(letter) for letter in text]

    pieces = encode

    def decode(self, ids: list[int]) -> str:
        return "".join(self.alphabet[i] for i in token_list(ids))

    def show(self, token: int) -> str:
        return self.alphabet[token]


class PreparedWords(Words):
    """The tokenizer of a prepared text (`jaxformer.data.tokenizer`), for the model of a run."""

    def __init__(self, tokenizer: Any):
        self.tokenizer, self.ends = tokenizer, frozenset([tokenizer.end])

    def __repr__(self) -> str:
        return f"{type(self.tokenizer).__name__}({self.tokenizer.vocab_size:,} tokens)"

    def encode(self, text: str) -> list[int]:
        start = self.tokenizer.start
        return [start] * (start >= 0) + self.pieces(text)

    def pieces(self, text: str) -> list[int]:
        return self.tokenizer.encode([text])[0].tolist()

    def decode(self, ids: list[int]) -> str:
        return self.tokenizer.decode(token_list(ids))

    def show(self, token: int) -> str:
        return repr(self.tokenizer.decode([token]))
