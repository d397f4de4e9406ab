"""Tokenizers: bytes, byte-level BPE trained on a text, and any Hugging Face tokenizer.

    tokenizer = make("bpe:1024", texts)       trained on an iterable of texts
    tokenizer = make("bytes")                 a token is a byte; 256 ends a document
    tokenizer = make("llama/tokenizer.json")  a file or its folder
    tokenizer = make("gpt2", download=True)   a model on the hub; without `download`
                                              only from the local cache
    tokenizer.encode(["To be"]) -> [[..]]     tokenizer.decode([..]) -> "To be"

All but bytes need the package `tokenizers` of the extra [data].
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from jaxformer.core.errors import UserError, check_range, did_you_mean
from jaxformer.io import huggingface_tokenizer
from jaxformer.io.huggingface_tokenizer import END, HuggingFace, byte_characters

FILE = "tokenizer.json"
EXPECTED = (  # for messages
    f"bytes, bpe:SIZE, a {FILE} or its folder, or with --download the name of a model on the "
    "Hugging Face hub"
)


class Tokenizer(Protocol):
    """Maps text to integers and back. The end token follows every document and fills padding.

    Models that were trained with a start token before each text predict badly without it: Gemma 3
    270M needs 1.8 bits per byte of English then, where 1.1 suffice with it.
    """

    vocab_size: int
    end: int
    end_text: str  # name of the end token

    @property
    def start(self) -> int:
        """The token before each text; -1 if there is none."""
        ...

    @property
    def mask(self) -> int:
        """The token in whose place an encoder predicts a word; -1 if there is none."""
        ...

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]: ...

    def decode(self, tokens: Sequence[int]) -> str: ...

    def n_bytes(self) -> np.ndarray:
        """Returns the number of bytes of text of each token, (V,); 0 for the end token."""
        ...

    def as_json(self) -> str:
        """Returns the content of tokenizer.json in the format of Hugging Face's `tokenizers`."""
        ...


class Bytes:
    """Bytes of UTF-8 as tokens. Needs no training and no package."""

    vocab_size, start, mask, end, end_text = 257, -1, -1, 256, END

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        return [np.frombuffer(text.encode(), np.uint8).astype(np.int32) for text in texts]

    def decode(self, tokens: Sequence[int]) -> str:
        return bytes(t for t in map(int, tokens) if t < 256).decode(errors="replace")

    def n_bytes(self) -> np.ndarray:
        return np.append(np.ones(256, np.int32), 0)

    def as_json(self) -> str:
        return byte_vocabulary_json(range(256), self.end)


def make(kind: str, texts: Iterable[str] = (), download: bool = False) -> Tokenizer:
    """Makes or loads a tokenizer.

    Args:
        kind: "bytes", "bpe:SIZE", a file or folder, or a name on the hub, as at the top of this
            module.
        texts: the texts to train a BPE on.
        download: whether the network may be used.
    """
    if kind == "bytes":
        return Bytes()
    if kind.startswith("bpe:"):
        size = kind.removeprefix("bpe:")
        if not (size.isascii() and size.isdecimal()):
            raise UserError(f"a BPE needs a vocabulary size, as in bpe:1024; got {kind!r}.")
        return train_bpe(int(size), texts)
    if file := file_of(kind):
        return huggingface_tokenizer.load(file.read_bytes(), str(file))
    if kind.endswith(".json") or kind.startswith((".", "/")) or kind.count("/") > 1:
        raise UserError(f"there is no tokenizer file {kind!r}. A tokenizer is {EXPECTED}.")
    return _from_hub(kind, download)


def file_of(kind: str) -> Path | None:
    """Returns the local file of a tokenizer, or None if `kind` names no file."""
    path = Path(kind).expanduser()
    if kind == "bytes" or kind.startswith("bpe:"):
        return None
    if path.is_dir() and not (path / FILE).is_file():
        raise UserError(f"the folder {path} has no {FILE}. A tokenizer is {EXPECTED}.")
    path = path / FILE if path.is_dir() else path
    return path if path.is_file() else None


def from_json(text: str, where: str) -> Tokenizer:
    """Loads a tokenizer from its JSON text. `where` names the source in errors."""
    if text == Bytes().as_json():
        return Bytes()
    return huggingface_tokenizer.load(text.encode(), where)


def train_bpe(size: int, texts: Iterable[str]) -> Tokenizer:
    """Trains a byte-level BPE. Decoding the tokens of any text gives the text.

    Args:
        size: the number of tokens, at least 257: all bytes and the end token.
        texts: the texts of training.
    """
    check_range("the vocabulary of a BPE", size, 257, 10**6)
    package = huggingface_tokenizer.package()
    model = package.Tokenizer(package.models.BPE())
    model.pre_tokenizer = package.pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = package.decoders.ByteLevel()
    trainer = package.trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[END],
        initial_alphabet=sorted(byte_characters()),
        show_progress=False,
    )
    model.train_from_iterator(iter(texts), trainer)
    return HuggingFace(model)


def byte_vocabulary_json(byte_values: Iterable[int], end: int) -> str:
    """Returns the tokenizer.json of a tokenizer whose i-th token is the i-th byte value."""
    characters = byte_characters()
    vocab = {characters[byte]: token for token, byte in enumerate(byte_values)} | {END: end}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    byte_level["use_regex"] = False
    end_token = {"id": end, "content": END, "special": True}
    end_token |= dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return json.dumps(
        {
            "version": "1.0",
            "added_tokens": [end_token],
            "pre_tokenizer": byte_level,
            "decoder": byte_level,
            "model": {"type": "BPE", "vocab": vocab, "merges": []},
        }
    )


def _from_hub(name: str, download: bool) -> Tokenizer:
    """Loads a tokenizer from the hub's local cache, downloaded first if allowed."""
    hint = did_you_mean(name, ("bytes", "bpe"))
    try:
        import huggingface_hub as hub
    except ImportError:
        raise UserError(
            f"the tokenizer {name!r} is no local file or folder. To load it from the "
            f"hub, pip install huggingface_hub.{hint} A tokenizer is {EXPECTED}."
        ) from None
    try:
        # hf_hub_download makes requests even with local_files_only.
        file = hub.try_to_load_from_cache(name, FILE)
    except ValueError:  # not a valid name of a repository
        file = None
    if not isinstance(file, str):
        if not download:
            raise UserError(
                f"the tokenizer {name!r} is no local file or folder, and not in the hub's "
                f"local cache.{hint} A tokenizer is {EXPECTED}."
            )
        file = _download(hub, name)
    return huggingface_tokenizer.load(Path(file).read_bytes(), name)


def _download(hub: Any, name: str) -> str:
    """Downloads a tokenizer in one attempt, which fails within seconds without a network."""
    try:
        # hf_hub_download would retry six times; this request fails at once.
        hub.get_hf_file_metadata(hub.hf_hub_url(name, FILE), timeout=5)
        return hub.hf_hub_download(name, FILE, etag_timeout=5)
    except Exception as error:  # no network, no such model, no permission: many types
        raise UserError(
            f"the tokenizer {name!r} is no local file, and its download failed "
            f"({type(error).__name__}). Download its {FILE} elsewhere and give its path."
        ) from None
