"""Text to tokens and back: bytes, byte-level BPE trained on the text, any Hugging Face tokenizer.

    tokenizer = make("bpe:1024", texts)       trained on an iterable of texts
    tokenizer = make("bytes")                 a token is a byte, 256 ends a document
    tokenizer = make("llama/tokenizer.json")  a file, or the folder that it lies in
    tokenizer = make("gpt2", download=True)   the name of a model on the hub; without `download`
                                              only what the hub's cache here has
    tokenizer.encode(["To be"]) -> [[..]]     tokenizer.decode([..]) -> "To be"

Except for bytes they need the package `tokenizers` of the extra [data].
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from jaxformer.core.errors import UserError, check_range, did_you_mean

END = "<|endoftext|>"
ENDS = (END, "</s>", "<|end_of_text|>", "<eos>", "[SEP]")  # how others call the end of a document
FILE = "tokenizer.json"
KINDS = (
    f"bytes, bpe:SIZE, a {FILE} or its folder, or with --download the name of a model on the "
    "Hugging Face hub"
)


class Tokenizer(Protocol):
    """Whole numbers for text; `end` stands after every document and pads what is short."""

    vocab_size: int
    end: int
    end_text: str  # how the end is called

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]: ...

    def decode(self, tokens: Sequence[int]) -> str: ...

    def n_bytes(self) -> np.ndarray:
        """(V,) how many bytes of text each token stands for; the end stands for none."""
        ...

    def as_json(self) -> str:
        """The content of tokenizer.json, in the format of Hugging Face's `tokenizers`."""
        ...


class Bytes:
    """A token is a byte of UTF-8. Nothing is trained and nothing has to be installed."""

    vocab_size, end, end_text = 257, 256, END

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        return [np.frombuffer(text.encode(), np.uint8).astype(np.int32) for text in texts]

    def decode(self, tokens: Sequence[int]) -> str:
        return bytes(t for t in map(int, tokens) if t < 256).decode(errors="replace")

    def n_bytes(self) -> np.ndarray:
        return np.append(np.ones(256, np.int32), 0)

    def as_json(self) -> str:
        return plain_json(range(256), self.end)


class Pieces:
    """A tokenizer of Hugging Face's package: trained here, or somebody else's."""

    def __init__(self, model: Any):
        self.model, vocab = model, model.get_vocab(with_added_tokens=True)
        self.vocab_size = max(vocab.values()) + 1
        known = [name for name in ENDS if name in vocab]
        if not known:
            raise UserError(
                f"the tokenizer has no token for the end of a document; one of {', '.join(ENDS)} "
                "is needed."
            )
        self.end_text, self.end = known[0], vocab[known[0]]

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        found = self.model.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.asarray(one.ids, np.int32) for one in found]

    def decode(self, tokens: Sequence[int]) -> str:
        return self.model.decode([int(t) for t in tokens], skip_special_tokens=True)

    def n_bytes(self) -> np.ndarray:
        level, found = set(_signs()), np.zeros(self.vocab_size, np.int32)
        special = {t for t, token in self.model.get_added_tokens_decoder().items() if token.special}
        for piece, token in self.model.get_vocab(with_added_tokens=True).items():
            if token in special:
                continue
            if set(piece) <= level:  # byte-level: a sign is a byte
                found[token] = len(piece)
            elif piece.startswith("<0x"):  # a byte that SentencePiece has no piece for
                found[token] = 1
            else:
                found[token] = len(piece.replace("\u2581", " ").encode())
        return found

    def as_json(self) -> str:
        return self.model.to_str()


def make(kind: str, texts: Iterable[str] = (), download: bool = False) -> Tokenizer:
    """The tokenizer that `kind` names; `texts` are what a BPE is trained on.

    Nothing uses the network without `download`.
    """
    if kind == "bytes":
        return Bytes()
    if kind.startswith("bpe:"):
        size = kind.removeprefix("bpe:")
        if not (size.isascii() and size.isdecimal()):
            raise UserError(f"a BPE needs a size of its vocabulary, as in bpe:1024; got {kind!r}.")
        return trained(int(size), texts)
    if file := file_of(kind):
        return _opened(file.read_bytes(), str(file))
    if kind.endswith(".json") or kind.startswith((".", "/")) or kind.count("/") > 1:
        raise UserError(f"there is no tokenizer file {kind!r}. A tokenizer is {KINDS}.")
    return _from_hub(kind, download)


def file_of(kind: str) -> Path | None:
    """The file of a tokenizer that lies on this machine; None where `kind` names another."""
    path = Path(kind).expanduser()
    if kind == "bytes" or kind.startswith("bpe:"):
        return None
    if path.is_dir() and not (path / FILE).is_file():
        raise UserError(f"the folder {path} has no {FILE}. A tokenizer is {KINDS}.")
    path = path / FILE if path.is_dir() else path
    return path if path.is_file() else None


def from_json(text: str, where: str) -> Tokenizer:
    """The tokenizer that lies beside tokens; `where` names it in an error."""
    if text == Bytes().as_json():
        return Bytes()
    return _opened(text.encode(), where)


def trained(size: int, texts: Iterable[str]) -> Tokenizer:
    """A byte-level BPE: every text can be written with it, and comes back as it was."""
    check_range("the vocabulary of a BPE", size, 257, 10**6)
    parts = _package()
    model = parts.Tokenizer(parts.models.BPE())
    model.pre_tokenizer = parts.pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = parts.decoders.ByteLevel()
    trainer = parts.trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[END],
        initial_alphabet=sorted(_signs()),
        show_progress=False,
    )
    model.train_from_iterator(iter(texts), trainer)
    return Pieces(model)


def plain_json(known: Iterable[int], end: int) -> str:
    """tokenizer.json of a tokenizer whose i-th token is the i-th of these bytes."""
    signs = _signs()
    vocab = {signs[byte]: token for token, byte in enumerate(known)} | {END: end}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    level["use_regex"] = False
    added = {"id": end, "content": END, "special": True}
    added |= dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return json.dumps(
        {
            "version": "1.0",
            "added_tokens": [added],
            "pre_tokenizer": level,
            "decoder": level,
            "model": {"type": "BPE", "vocab": vocab, "merges": []},
        }
    )


def _opened(content: bytes, where: str) -> Tokenizer:
    try:
        return Pieces(_package().Tokenizer.from_buffer(content))
    except UserError:
        raise
    except Exception as error:  # the package raises its own kind of Exception
        reason = " ".join(str(error).split())[:120]
        raise UserError(f"{where} is not a tokenizer of Hugging Face ({reason}).") from None


def _from_hub(name: str, download: bool) -> Tokenizer:
    """What the hub's cache on this machine has, or what the hub gives."""
    hint = did_you_mean(name, ("bytes", "bpe"))
    try:
        import huggingface_hub as hub
    except ImportError:
        raise UserError(
            f"the tokenizer {name!r} is no file and no folder here, and the hub needs "
            f"huggingface_hub.{hint} A tokenizer is {KINDS}."
        ) from None
    try:
        # Even with local_files_only, hf_hub_download looks for a list of programs on the hub.
        file = hub.try_to_load_from_cache(name, FILE)
    except ValueError:  # no name that the hub could have
        file = None
    if not isinstance(file, str):
        if not download:
            raise UserError(
                f"the tokenizer {name!r} is no file and no folder here, and the cache of the hub "
                f"does not have it.{hint} A tokenizer is {KINDS}."
            )
        file = _fetched(hub, name)
    return _opened(Path(file).read_bytes(), name)


def _fetched(hub: Any, name: str) -> str:
    """One attempt with a short patience: without a network this ends in seconds."""
    try:
        # This asks once; the download itself would ask six times and wait in between.
        hub.get_hf_file_metadata(hub.hf_hub_url(name, FILE), timeout=5)
        return hub.hf_hub_download(name, FILE, etag_timeout=5)
    except Exception as error:  # no network, no such model, no permission: many kinds
        raise UserError(
            f"the tokenizer {name!r} is no file here, and the hub did not give it "
            f"({type(error).__name__}). Download its {FILE} elsewhere and name the file."
        ) from None


def _package() -> Any:
    try:
        import tokenizers
    except ImportError:
        raise UserError(
            "this tokenizer needs the package `tokenizers`: pip install 'jaxformer[data]'; bytes "
            "need nothing."
        ) from None
    return tokenizers


def _signs() -> list[str]:
    """The printable sign by which byte-level tokenizers write each byte, in the order of bytes."""
    kept = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte) if byte in kept else chr(next(others)) for byte in range(256)]
