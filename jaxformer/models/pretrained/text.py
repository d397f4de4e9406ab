"""Conversion of text to token ids and back with the tokenizer.json of a published model."""

from pathlib import Path
from typing import Any

from jaxformer.core.errors import UserError, one_line
from jaxformer.models.pretrained import hub
from jaxformer.models.pretrained.folder import read_json


class Text:
    """The tokenizer of a published model.

    Args:
        folder: the model's folder, or its name on the hub.
        vocab_size: the model's vocabulary size. A tokenizer with a larger token id is refused.
    """

    def __init__(self, folder: str | Path, vocab_size: int):
        folder = hub.folder_of(folder)
        file = folder / "tokenizer.json"
        if not file.is_file():
            raise UserError(
                f"{folder} has no tokenizer.json; give prompts as token ids, such as '5 17 2'."
            )
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise UserError("text prompts need pip install 'jaxformer[hf]' (tokenizers).") from None
        try:
            self.tokenizer: Any = Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises plain Exception
            raise UserError(f"{file} is no tokenizer: {one_line(error, 120)}.") from None
        highest = max(self.tokenizer.get_vocab().values(), default=-1)
        if highest >= vocab_size:
            raise UserError(
                f"{file} does not match the model: it has the token {highest}, and the model "
                f"{vocab_size} tokens."
            )
        self.ends = _ends(folder)

    def encode(self, words: str) -> list[int]:
        """Returns token ids, with the tokenizer's special tokens (Llama begins with <s>)."""
        return self._ids(words, True)

    def pieces(self, words: str) -> list[int]:
        """Returns the token ids of words in the middle of a text.

        Llama 2 and Phi-3 put a space before the beginning of a text, so that " Spain" alone would
        begin with two. The words are therefore encoded after a comma, whose tokens are removed.
        """
        alone, comma = self._ids(words, False), self._ids(",", False)
        with_comma = self._ids(f",{words}", False)
        if with_comma[: len(comma)] != comma:  # the comma was merged with the words
            return alone
        return with_comma[len(comma) :]

    def _ids(self, words: str, special: bool) -> list[int]:
        try:
            return self.tokenizer.encode(words, add_special_tokens=special).ids
        except (TypeError, UnicodeError):  # half of a surrogate pair
            raise UserError(f"{one_line(words, 60)!r} cannot be written in UTF-8.") from None

    def decode(self, ids: list[int]) -> str:
        """Returns the text of the ids before the first end token, without special tokens."""
        end = next((i for i, token in enumerate(ids) if token in self.ends), len(ids))
        return self.tokenizer.decode(ids[:end], skip_special_tokens=True)

    def show(self, token: int) -> str:
        """Returns one token in quotes, which make its spaces visible in figures and tables."""
        return repr(self.tokenizer.decode([token], skip_special_tokens=False))


def _ends(folder: Path) -> frozenset[int]:
    """Returns the end tokens that config.json and generation_config.json list."""
    ends: set[int] = set()
    for name in ("config.json", "generation_config.json"):
        if (folder / name).is_file():
            value = read_json(folder / name).get("eos_token_id")
            tokens = value if isinstance(value, list) else [value]
            ends |= {token for token in tokens if isinstance(token, int)}
    return frozenset(ends)


class Numbers:
    """A replacement of `Text` for models without a tokenizer: a text is token ids, "5 17 2"."""

    def __init__(self, vocab_size: int):
        self.vocab_size = vocab_size

    def encode(self, words: str) -> list[int]:
        try:
            ids = [int(word) for word in words.split()]
        except ValueError:
            raise UserError(
                f"this model has no tokenizer: a prompt is token ids such as '5 17 2', got "
                f"{one_line(words, 60)!r}."
            ) from None
        for token in ids:
            if not 0 <= token < self.vocab_size:
                raise UserError(f"a token must be in 0 to {self.vocab_size - 1}, got {token}.")
        return ids

    pieces = encode

    def decode(self, ids: list[int]) -> str:
        return " ".join(map(str, ids))

    def show(self, token: int) -> str:
        return str(token)


def reader(folder: str | Path, vocab_size: int) -> Text | Numbers:
    """Returns the tokenizer in a folder, or a `Numbers` if the folder has none."""
    if (Path(folder) / "tokenizer.json").is_file():
        return Text(folder, vocab_size)
    return Numbers(vocab_size)
