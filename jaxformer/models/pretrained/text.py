"""Tokenizers of published models: text to token ids and back."""

from pathlib import Path
from typing import Any

from jaxformer.core.errors import UserError, one_line
from jaxformer.models.pretrained import hub
from jaxformer.models.pretrained.folder import read_json


class Text:
    """The tokenizer of a model.

    Args:
      folder: a folder or a name on the hub.
      vocab_size: the size of the model's vocabulary, checked against the tokenizer's.
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
            raise UserError("text needs pip install 'jaxformer[hf]' (tokenizers).") from None
        try:
            self.tokenizer: Any = Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises Exception itself
            raise UserError(f"{file} is not a tokenizer: {one_line(error, 120)}.") from None
        highest = max(self.tokenizer.get_vocab().values(), default=-1)
        if highest >= vocab_size:
            raise UserError(
                f"{file} does not match the model: it has the token {highest}, the model "
                f"{vocab_size} tokens."
            )
        self.ends = _ends(folder)

    def encode(self, text: str) -> list[int]:
        """Returns token ids, with the tokenizer's start token if it has one."""
        return self._ids(text, True)

    def pieces(self, text: str) -> list[int]:
        """Returns the token ids of a text that continues another text.

        Llama 2 and Phi-3 put a space before a text, so that " Spain" alone would begin with two
        spaces. Therefore the text is encoded after a comma, whose tokens are removed.
        """
        alone, before = self._ids(text, False), self._ids(",", False)
        both = self._ids(f",{text}", False)
        return both[len(before) :] if both[: len(before)] == before else alone

    def _ids(self, text: str, special: bool) -> list[int]:
        try:
            return self.tokenizer.encode(text, add_special_tokens=special).ids
        except (TypeError, UnicodeError):  # half of a surrogate pair
            raise UserError(f"{one_line(text, 60)!r} cannot be written in UTF-8.") from None

    def decode(self, ids: list[int]) -> str:
        """Returns the text up to the first end token, without special tokens."""
        end = next((i for i, token in enumerate(ids) if token in self.ends), len(ids))
        return self.tokenizer.decode(ids[:end], skip_special_tokens=True)

    def show(self, token: int) -> str:
        """Returns a token in quotes, with visible spaces, for figures and tables."""
        return repr(self.tokenizer.decode([token], skip_special_tokens=False))


def _ends(folder: Path) -> frozenset[int]:
    """Returns the end tokens of the model's config files."""
    ends: set[int] = set()
    for name in ("config.json", "generation_config.json"):
        if (folder / name).is_file():
            token_ids = read_json(folder / name).get("eos_token_id")
            token_ids = token_ids if isinstance(token_ids, list) else [token_ids]
            ends |= {token for token in token_ids if isinstance(token, int)}
    return frozenset(ends)


class Numbers:
    """The tokenizer of models without one: a text is a list of token ids, "5 17 2"."""

    def __init__(self, vocab_size: int):
        self.vocab_size = vocab_size

    def encode(self, text: str) -> list[int]:
        try:
            ids = [int(token) for token in text.split()]
        except ValueError:
            raise UserError(
                f"this model has no tokenizer: a prompt is token ids such as '5 17 2', got "
                f"{one_line(text, 60)!r}."
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
    """Returns the tokenizer of a folder; without tokenizer.json a text is its token ids."""
    if (Path(folder) / "tokenizer.json").is_file():
        return Text(folder, vocab_size)
    return Numbers(vocab_size)
