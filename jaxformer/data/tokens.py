"""A prepared text on disk: packed token ids and document boundaries.

index.json       the contents and the sha256 of each file; written last, with its own checksum
tokens.bin       all documents in sequence, each followed by an end token, as uint16 or uint32
documents.bin    the end of each document in tokens.bin, int64
labels.bin       the class of each document, int32, if documents have classes
bytes.bin        the number of bytes of text of each token, int32
tokenizer.json   the tokenizer

A part ("train", "validation" or "test") is a range of whole documents. The files are read with
pread instead of a memory map: large files then need no memory, and a read error is an exception.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from jaxformer.core.errors import UserError, check_choice
from jaxformer.data import tokenizer
from jaxformer.data.token_index import FORMAT, PARTS, Part, fields_valid
from jaxformer.io.atomic_files import dumps, sha256, without_checksum
from jaxformer.io.huggingface_tokenizer import MASK_NAMES

FOLDER_VARIABLE = "JAXFORMER_DATA"  # environment variable; its default is runs/data
MAX_CHECKED_BYTES = 2**26  # the checksums of larger files are compared by `verify` only
HASH_BLOCK_BYTES = 2**24
HAS_MASK = re.compile(rf'"content"\s*:\s*"({"|".join(map(re.escape, MASK_NAMES))})"')
ADDS_TOKENS = re.compile(r'"type"\s*:\s*"(Template|Bert|Roberta)Processing"')


@dataclass(frozen=True, eq=False)
class Tokens:
    """An opened prepared text. Only its index is in memory."""

    folder: Path
    index: Mapping[str, Any]

    @property
    def vocab_size(self) -> int:
        return self.index["vocab_size"]

    @property
    def end(self) -> int:
        """The end token that follows every document."""
        return self.index["end"]

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the classes; empty if documents have none."""
        return tuple(self.index["labels"])

    @property
    def fingerprint(self) -> str:
        """Twelve hexadecimal digits that identify the files."""
        return fingerprint(self.index)

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.index["dtype"]).newbyteorder("<")

    def part(self, name: str) -> Part:
        check_choice("part", name, PARTS)
        return Part(**self.index["parts"][name])

    @cached_property
    def tokenizer(self) -> tokenizer.Tokenizer:
        file = self.folder / "tokenizer.json"
        return tokenizer.from_json(file.read_text(encoding="utf-8"), str(file))

    @cached_property
    def start(self) -> int:
        """The token that the tokenizer puts before a text, and that windows begin with; -1: none.

        It is not in the files.
        """
        # Most tokenizers have none, and a search in the file shows it without loading them.
        return self.tokenizer.start if ADDS_TOKENS.search(self._tokenizer_json) else -1

    @cached_property
    def mask(self) -> int:
        """The mask token of the tokenizer, as BERT's has one; -1: none."""
        return self.tokenizer.mask if HAS_MASK.search(self._tokenizer_json) else -1

    @cached_property
    def _tokenizer_json(self) -> str:
        return (self.folder / "tokenizer.json").read_text(encoding="utf-8")

    @cached_property
    def bytes_of_token(self) -> np.ndarray:
        """The number of bytes of text that each token stands for, (V,).

        The numbers are scaled so that their sum over all tokens is the size of the text.
        """
        table = np.frombuffer((self.folder / "bytes.bin").read_bytes(), "<i4")
        return table * self.index["bytes_scale"]

    def summary(self) -> str:
        """Returns the contents of the folder in one line."""
        parts = [self.part(name) for name in PARTS]
        tokens = [f"{name} {p.stop - p.start:,}" for name, p in zip(PARTS, parts, strict=True)]
        n_bytes = sum(part.bytes for part in parts)
        n_tokens = sum(part.stop - part.start for part in parts)
        return (
            f"{self.folder}: tokens {', '.join(tokens)}; {parts[-1].last:,} documents, "
            f"{n_bytes / max(n_tokens, 1):.3g} bytes a token, vocabulary {self.vocab_size:,}, "
            f"fingerprint {self.fingerprint}"
        )

    def windows(self, starts_B: np.ndarray, length: int) -> np.ndarray:
        """Returns the tokens from each start on, (B, length), in the dtype of the file."""
        width = self.dtype.itemsize
        content = self._pieces("tokens.bin", (starts_B * width).tolist(), length * width)
        tokens_BxT = np.frombuffer(content, self.dtype).reshape(len(starts_B), length)
        if tokens_BxT.size and tokens_BxT.max() >= self.vocab_size:
            raise _damaged(self.folder, f"tokens.bin contains the token {tokens_BxT.max()}")
        return tokens_BxT.astype(self.dtype.newbyteorder("="), copy=False)

    def tokens(self, start: int, stop: int) -> np.ndarray:
        """Returns the tokens start .. stop - 1."""
        return self.windows(np.array([start]), stop - start)[0]

    def documents(self, documents_B: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the first tokens of documents, (B, length), and how many each has, (B,).

        Documents shorter than `length` are padded with end tokens. The end token that follows a
        document is not counted.
        """
        out = np.full((len(documents_B), length), self.end, self.dtype.newbyteorder("="))
        lengths = np.zeros(len(documents_B), np.int32)
        for i, document in enumerate(documents_B.tolist()):
            start = self._end_of(document - 1) if document else 0
            stop = self._end_of(document)
            lengths[i] = min(stop - 1 - start, length)
            if lengths[i] > 0:
                out[i, : lengths[i]] = self.tokens(start, start + int(lengths[i]))
        return out, lengths

    def labels_of(self, documents_B: np.ndarray) -> np.ndarray:
        """Returns the classes of documents, (B,)."""
        classes = [self._read("labels.bin", 4 * i, 4, "<i4")[0] for i in documents_B.tolist()]
        return np.array(classes, np.int32)

    def verify(self) -> None:
        """Reads all files and raises UserError if one differs from its checksum."""
        for name, entry in self.index["files"].items():
            if sha256_of(self.folder / name) != entry["sha256"]:
                raise _damaged(self.folder, f"{name} does not have its sha256")

    def _end_of(self, document: int) -> int:
        return int(self._read("documents.bin", 8 * document, 8, "<i8")[0])

    def _read(self, name: str, offset: int, size: int, dtype: Any) -> np.ndarray:
        return np.frombuffer(self._pieces(name, [offset], size), dtype)

    def _pieces(self, name: str, offsets: list[int], size: int) -> bytearray:
        """Returns `size` bytes from each offset, concatenated."""
        descriptor, content = self._open(name), bytearray(len(offsets) * size)
        view = memoryview(content)
        for i, offset in enumerate(offsets):
            if os.preadv(descriptor, [view[i * size : (i + 1) * size]], offset) < size:
                raise _damaged(self.folder, f"{name} ends before byte {offset + size}")
        return content

    def _open(self, name: str) -> int:
        if name not in self._opened:
            self._opened[name] = os.open(self.folder / name, os.O_RDONLY | os.O_CLOEXEC)
        return self._opened[name]

    @cached_property
    def _opened(self) -> dict[str, int]:
        return {}

    def __del__(self):
        for descriptor in vars(self).get("_opened", {}).values():
            os.close(descriptor)


def open_tokens(name: str) -> Tokens:
    """Opens a prepared text.

    Args:
      name: a path, or the name of a folder in $JAXFORMER_DATA (runs/data by default).
    """
    folder = folder_of(name)
    _check_exists(name)
    try:
        modified_ns = (folder / "index.json").stat().st_mtime_ns
    except OSError:
        modified_ns = 0
    return _load(folder, modified_ns)


def folder_of(name: str) -> Path:
    """Returns the folder of a prepared text; it may not exist."""
    return next((place for place in _places(name) if place.is_dir()), _places(name)[-1]).absolute()


def _places(name: str) -> list[Path]:
    """Returns where a prepared text is looked for: the path, then the folder of all texts."""
    texts = Path(os.environ.get(FOLDER_VARIABLE) or Path("runs") / "data")
    return list(dict.fromkeys([Path(name), texts / name]))


def _check_exists(name: str) -> None:
    """Raises UserError unless there is a folder of this name, with the command that makes one."""
    places = _places(name)
    if any(place.is_dir() for place in places):
        return
    # The name of a path, such as "runs/data/my", already says where the text belongs.
    wanted = places[0] if len(Path(name).parts) > 1 else places[-1]
    for place in places:
        if place.with_name(f"{place.name}.partial").is_dir():
            raise UserError(
                f"the preparation of {place} is not finished; run the same command again: "
                f"{_command(place)}."
            )
    raise UserError(
        f"there is no prepared text in {' or '.join(map(str, places))}: {_command(wanted)}."
    )


def _command(folder: Path) -> str:
    return f"jaxformer prepare text:FILE --out {folder}"


@cache
def _load(folder: Path, modified_ns: int) -> Tokens:
    """Loads and checks the index. `modified_ns` makes the cache reload a changed index."""
    try:
        index = without_checksum(json.loads((folder / "index.json").read_text()))
    except FileNotFoundError:
        raise UserError(
            f"{folder} contains no prepared tokens (no index.json): {_command(folder)}."
        ) from None
    except OSError as error:
        raise UserError(f"cannot read {folder}: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise _damaged(folder, f"index.json: {error}") from None
    if not isinstance(index, dict) or index.get("format") != FORMAT:
        raise _damaged(folder, "index.json was written by another program")
    if wrong := [name for name, is_valid in fields_valid(index).items() if not is_valid]:
        value = repr(index.get(wrong[0]))
        raise _damaged(folder, f"{wrong[0]!r} in index.json cannot be {value:.60}")
    for name, entry in index["files"].items():
        file = folder / name
        size = file.stat().st_size if file.is_file() else 0
        if size != entry["bytes"]:
            raise _damaged(folder, f"{name} has {size:,} bytes, expected {entry['bytes']:,}")
        if size <= MAX_CHECKED_BYTES and sha256_of(file) != entry["sha256"]:
            raise _damaged(folder, f"{name} does not have its sha256")
    return Tokens(folder, index)


def fingerprint(index: Mapping[str, Any]) -> str:
    """Returns twelve hexadecimal digits of a hash of the checksums of all files."""
    sums = {name: entry["sha256"] for name, entry in index["files"].items()}
    return sha256(dumps(sums).encode())[:12]


def sha256_of(file: Path) -> str:
    """Returns the sha256 of a file, which is read in blocks."""
    digest = hashlib.sha256()
    with open(file, "rb") as stream:
        while block := stream.read(HASH_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _damaged(folder: Path, why: str) -> UserError:
    return UserError(f"the prepared tokens in {folder} are damaged: {why}. Prepare them again.")
