"""Tokenizers of published models: text to token ids and back, and their chat templates."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxformer.core.errors import UserError, one_line
from jaxformer.io import huggingface_tokenizer
from jaxformer.io.huggingface_tokenizer import HuggingFace
from jaxformer.models.pretrained import gguf_tokenizer, hub
from jaxformer.models.pretrained.gguf_file import GGUFFile, is_gguf
from jaxformer.models.pretrained.safetensors_folder import read_json
from jaxformer.models.words import Words, token_list

TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
TEMPLATE = "chat_template"


class Text(Words):
    """The tokenizer of a model.

    Args:
      source: a folder, a GGUF file, a name on the hub or "package:NAME".
      vocab_size: the size of the model's vocabulary, checked against the tokenizer's.
    """

    def __init__(self, source: str | Path, vocab_size: int):
        path = hub.path_of(source)
        self.source = str(source)
        self.tokenizer, self.ends, self.settings = _read_tokenizer(path)
        if self.tokenizer.vocab_size > vocab_size:
            raise UserError(
                f"the tokenizer of {path} does not match the model: it has the token "
                f"{self.tokenizer.vocab_size - 1}, the model {vocab_size} tokens."
            )

    def __repr__(self) -> str:
        return f"Text({self.source!r}, {self.tokenizer.vocab_size:,} tokens)"

    @property
    def mask(self) -> int:
        """The token in whose place an encoder predicts a word, such as [MASK]; -1: none."""
        return self.tokenizer.mask

    def encode(self, text: str) -> list[int]:
        """Returns token ids, with the tokenizer's start token if it has one."""
        return self._token_ids(text, True)

    def pieces(self, text: str) -> list[int]:
        """Returns the token ids of a text that continues another text.

        Llama 2 and Phi-3 put a space before a text, so that " Spain" alone would begin with two
        spaces. Therefore the text is encoded after a comma, whose tokens are removed.
        """
        comma, comma_and_text = self._token_ids(",", False), self._token_ids(f",{text}", False)
        if comma_and_text[: len(comma)] != comma:  # the tokenizer merges the comma with the text
            return self._token_ids(text, False)
        return comma_and_text[len(comma) :]

    def encode_chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
        """Returns the token ids of a conversation, up to the beginning of the model's answer.

        Args:
          messages: {"role": "system", "user" or "assistant", "content": text} in their order.
        """
        template = self.settings.get(TEMPLATE)
        if not isinstance(template, str):
            raise UserError("this model has no chat template; give a prompt without --chat.")
        return self._token_ids(_render_chat(template, messages, self.settings), False)

    def _token_ids(self, text: str, add_special: bool) -> list[int]:
        if not isinstance(text, str):
            raise UserError(f"expected a text, got {type(text).__name__}: {text!r:.60}.")
        try:
            text.encode()
        except UnicodeError:  # half of a surrogate pair
            raise UserError(f"{one_line(text, 60)!r} cannot be written in UTF-8.") from None
        return self.tokenizer.encode([text], add_special)[0].tolist()

    def decode(self, ids: list[int]) -> str:
        """Returns the text up to the first end token, without special tokens."""
        ids = token_list(ids)
        end = next((i for i, token in enumerate(ids) if token in self.ends), len(ids))
        return self.tokenizer.decode(ids[:end])

    def show(self, token: int) -> str:
        """Returns a token in quotes, with visible spaces, for figures and tables."""
        return repr(self.tokenizer.decode([token], skip_special=False))


def _read_tokenizer(path: Path) -> tuple[HuggingFace, frozenset[int], dict[str, Any]]:
    """Returns (tokenizer, end tokens, the content of tokenizer_config.json)."""
    # A published tokenizer may lack an end token, and chat templates write special tokens as text.
    options = {"needs_end": False, "special_in_text": True}
    if is_gguf(path):
        metadata = GGUFFile(path).metadata
        names = ("eos_token_id", "eot_token_id")
        ends = {metadata.get(f"tokenizer.ggml.{name}") for name in names}
        ends = frozenset(token for token in ends if isinstance(token, int))
        tokenizer = HuggingFace(gguf_tokenizer.build(metadata, str(path)), **options)
        return tokenizer, ends, gguf_tokenizer.settings(metadata)
    file = path / TOKENIZER
    if not file.is_file():
        raise UserError(f"{path} has no {TOKENIZER}; give prompts as token ids, such as '5 17 2'.")
    tokenizer = huggingface_tokenizer.load(file.read_bytes(), str(file), **options)
    return tokenizer, _end_tokens(path), _tokenizer_config(path)


def _tokenizer_config(folder: Path) -> dict[str, Any]:
    """Returns the content of tokenizer_config.json, with the chat template as one text."""
    file = folder / TOKENIZER_CONFIG
    settings = read_json(file) if file.is_file() else {}
    template = settings.get(TEMPLATE)
    if isinstance(template, list):  # several templates with names
        named = {entry.get("name"): entry.get("template") for entry in template}
        settings[TEMPLATE] = named.get("default")
    if (separate := folder / f"{TEMPLATE}.jinja").is_file():
        settings[TEMPLATE] = separate.read_text()
    return settings


def _render_chat(
    template: str, messages: Sequence[Mapping[str, str]], settings: Mapping[str, Any]
) -> str:
    """Returns the text of a conversation; the template runs in jinja2's sandbox."""
    try:
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError:
        raise UserError("chat templates need pip install 'jaxformer[hf]' (jinja2).") from None

    def refuse(message: str) -> None:
        raise TemplateError(message)

    tokens = {}
    for name in ("bos_token", "eos_token"):
        token = settings.get(name) or ""
        tokens[name] = token.get("content", "") if isinstance(token, dict) else token
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = refuse
    try:
        return environment.from_string(template).render(
            messages=list(messages), add_generation_prompt=True, **tokens
        )
    except (TemplateError, TypeError) as error:
        raise UserError(f"the chat template of this model fails: {one_line(error, 120)}.") from None


def _end_tokens(folder: Path) -> frozenset[int]:
    """Returns the end tokens of the model's config files."""
    ends: set[int] = set()
    for name in ("config.json", "generation_config.json"):
        if (folder / name).is_file():
            token_ids = read_json(folder / name).get("eos_token_id")
            token_ids = token_ids if isinstance(token_ids, list) else [token_ids]
            ends |= {token for token in token_ids if isinstance(token, int)}
    return frozenset(ends)


class TokenIds(Words):
    """A tokenizer for models without one: the text "5 17 2" is a list of token ids."""

    ends: frozenset[int] = frozenset()
    mask = -1

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


def tokenizer_of(source: str | Path, vocab_size: int) -> Text | TokenIds:
    """Returns the tokenizer of a model, or `TokenIds` if it has none."""
    path = Path(source)
    if is_gguf(path) or (path / TOKENIZER).is_file():
        return Text(path, vocab_size)
    return TokenIds(vocab_size)
