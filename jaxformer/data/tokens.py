"""A folder of prepared tokens: written once, whole or absent, read by place and never as a whole.

index.json       what the folder holds and the sha256 of each file; written last, with its checksum
tokens.bin       all documents one after the other, each with an end, as uint16 or uint32
documents.bin    where in tokens.bin each document ends, int64
labels.bin       a class for each document, int32, if it has one
bytes.bin        how many bytes of text each token stands for, int32
tokenizer.json   how text becomes tokens

A part ("train", "validation", "test") is a stretch of whole documents. Rows are read with pread and
not through a memory map: a large file then costs no memory, and a bad disk is an error.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxformer.core.errors import UserError, check_choice
from jaxformer.data import tokenizer
from jaxformer.io.atomic_files import dumps, sha256, unsealed

FORMAT = 1
PARTS = ("train", "validation", "test")
HOME = "JAXFORMER_DATA"  # the folder of prepared folders; else runs/data of the current folder
CHECKED = 2**26  # a file up to this size is compared with its checksum when it is opened
BLOCK = 2**24


class Part(NamedTuple):
    """A stretch of tokens.bin, of documents.bin, and the bytes of its text."""

    start: int
    stop: int
    first: int
    last: int
    bytes: int


@dataclass(frozen=True, eq=False)
class Tokens:
    """A prepared folder, opened. Nothing of it is in memory but the index."""

    folder: Path
    index: Mapping[str, Any]

    @property
    def vocab_size(self) -> int:
        return self.index["vocab_size"]

    @property
    def end(self) -> int:
        """The token after every document."""
        return self.index["end"]

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the classes, if documents have one."""
        return tuple(self.index["labels"])

    @property
    def fingerprint(self) -> str:
        """Twelve digits that say which tokens these are."""
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
    def bytes_of_token(self) -> np.ndarray:
        """(V,) bytes of text a token, so scaled that all tokens together have all the bytes."""
        table = np.frombuffer((self.folder / "bytes.bin").read_bytes(), "<i4")
        return table * self.index["bytes_scale"]

    def words(self) -> str:
        """What the folder holds, in one line."""
        held = [self.part(name) for name in PARTS]
        tokens = [f"{name} {p.stop - p.start:,}" for name, p in zip(PARTS, held, strict=True)]
        n_bytes, n = sum(p.bytes for p in held), sum(p.stop - p.start for p in held)
        return (
            f"{self.folder}: tokens {', '.join(tokens)}; {held[-1].last:,} documents, "
            f"{n_bytes / max(n, 1):.3g} bytes a token, vocabulary {self.vocab_size:,}, "
            f"fingerprint {self.fingerprint}"
        )

    def windows(self, starts_B: np.ndarray, length: int) -> np.ndarray:
        """(B, length) the tokens from each start on, in the type of the file."""
        width = self.dtype.itemsize
        content = self._pieces("tokens.bin", (starts_B * width).tolist(), length * width)
        out = np.frombuffer(content, self.dtype).reshape(len(starts_B), length)
        if out.size and out.max() >= self.vocab_size:
            raise _damaged(self.folder, f"tokens.bin has the token {out.max()}")
        return out.astype(self.dtype.newbyteorder("="), copy=False)

    def tokens(self, start: int, stop: int) -> np.ndarray:
        """A stretch of tokens."""
        return self.windows(np.array([start]), stop - start)[0]

    def documents(self, which_B: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
        """(B, length) the first tokens of documents, ends where they are shorter; (B,) lengths.

        A document is read without the end that follows it.
        """
        out = np.full((len(which_B), length), self.end, self.dtype.newbyteorder("="))
        lengths = np.zeros(len(which_B), np.int32)
        for i, document in enumerate(which_B.tolist()):
            start = self._end_of(document - 1) if document else 0
            stop = self._end_of(document)
            lengths[i] = min(stop - 1 - start, length)
            if lengths[i] > 0:
                out[i, : lengths[i]] = self.tokens(start, start + int(lengths[i]))
        return out, lengths

    def labels_of(self, which_B: np.ndarray) -> np.ndarray:
        """(B,) the classes of documents."""
        held = [self._read("labels.bin", 4 * i, 4, "<i4")[0] for i in which_B.tolist()]
        return np.array(held, np.int32)

    def verify(self) -> None:
        """Raises unless every file has its checksum; reads all of them."""
        for name, held in self.index["files"].items():
            if sha256_of(self.folder / name) != held["sha256"]:
                raise _damaged(self.folder, f"{name} does not have its sha256")

    def _end_of(self, document: int) -> int:
        return int(self._read("documents.bin", 8 * document, 8, "<i8")[0])

    def _read(self, name: str, offset: int, size: int, kind: Any) -> np.ndarray:
        return np.frombuffer(self._pieces(name, [offset], size), kind)

    def _pieces(self, name: str, offsets: list[int], size: int) -> bytearray:
        """So many bytes from each offset on, one after the other."""
        number, content = self._open(name), bytearray(len(offsets) * size)
        view = memoryview(content)
        for i, offset in enumerate(offsets):
            if os.preadv(number, [view[i * size : (i + 1) * size]], offset) < size:
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
        for number in vars(self).get("_opened", {}).values():
            os.close(number)


def open_tokens(name: str) -> Tokens:
    """The prepared folder `name`: a path, or a folder of runs/data (or of $JAXFORMER_DATA)."""
    folder = find(name)
    try:
        changed = (folder / "index.json").stat().st_mtime_ns
    except OSError:
        changed = 0
    return _opened(folder, changed)


def find(name: str) -> Path:
    """Where the folder lies."""
    if Path(name).is_dir():
        return Path(name).absolute()
    return (Path(os.environ.get(HOME) or Path("runs") / "data") / name).absolute()


@cache
def _opened(folder: Path, changed: int) -> Tokens:
    try:
        index = unsealed(json.loads((folder / "index.json").read_text()))
    except FileNotFoundError:
        partial = folder.with_name(f"{folder.name}.partial")
        why = f"{folder} holds no prepared tokens"
        if partial.is_dir():
            why = f"the preparation of {folder} is not finished; the same command goes on"
        raise UserError(
            f"{why}: python experiments/prepare.py --dataset text:FILE --out {folder}."
        ) from None
    except OSError as error:
        raise UserError(f"cannot read {folder}: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise _damaged(folder, f"index.json: {error}") from None
    if not isinstance(index, dict) or index.get("format") != FORMAT:
        raise _damaged(folder, "index.json is not of this program")
    for name, held in index["files"].items():
        file = folder / name
        size = file.stat().st_size if file.is_file() else 0
        if size != held["bytes"]:
            raise _damaged(folder, f"{name} has {size:,} bytes of {held['bytes']:,}")
        if size <= CHECKED and sha256_of(file) != held["sha256"]:
            raise _damaged(folder, f"{name} does not have its sha256")
    return Tokens(folder, index)


def fingerprint(index: Mapping[str, Any]) -> str:
    """Twelve digits of the checksums of all files."""
    sums = {name: held["sha256"] for name, held in index["files"].items()}
    return sha256(dumps(sums).encode())[:12]


def sha256_of(file: Path) -> str:
    """The checksum of a file of any size."""
    found = hashlib.sha256()
    with open(file, "rb") as held:
        while block := held.read(BLOCK):
            found.update(block)
    return found.hexdigest()


def _damaged(folder: Path, why: str) -> UserError:
    return UserError(f"the prepared tokens in {folder} are damaged: {why}. Prepare them again.")
