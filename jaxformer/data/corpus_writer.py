"""Writer of a prepared text into FOLDER.partial; it records how much of each file is valid.

    with CorpusWriter(folder, settings, labels) as writer:  takes the lock, keeps earlier output
        writer.begin(tokenizer)                              opens the files
        writer.add(part, source, piece, ids)                 writes one piece after the other
        writer.save()                                        writes state.json to resume from
        writer.finish()                                      writes index.json

A resumed preparation truncates the files to the lengths in the last state.json.
"""

import contextlib
import errno
import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from jaxformer.core.errors import UserError
from jaxformer.data.preparation_settings import differences
from jaxformer.data.readers import Piece
from jaxformer.data.token_index import DATA_FILES, FORMAT, MAX_CLASSES, PARTS
from jaxformer.data.tokenizer import Tokenizer
from jaxformer.data.tokens import sha256_of
from jaxformer.io.atomic_files import (
    errors_name,
    remove_temporaries,
    with_checksum,
    without_checksum,
    write_atomically,
    write_json,
)
from jaxformer.io.file_lock import try_lock
from jaxformer.io.partial_folder import list_own_files

ENTRY_BYTES = {"documents": 8, "labels": 4}  # {file: bytes for each document}
NAMES = (*DATA_FILES, "index.json", "state.json", ".lock")  # all files of the folder
MIN_DOCUMENTS_OF_SEVERAL_CLASSES = 20  # a held-out part of this size needs at least two classes
DISK_FULL_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass
class State:
    """The progress of a preparation: what was read, and how long the files are."""

    source: int = 0  # index into corpus.sources
    after: int = 0  # offset in that source where reading resumes
    read: int = 0  # bytes of text read
    counted: int = 0  # bytes of text that the written tokens stand for
    tokens: int = 0
    documents: int = 0
    is_open: bool = False  # True while the last document has no end token
    part: str = ""  # the part of the last piece
    parts: dict[str, dict[str, int]] = field(default_factory=dict)  # fields of tokens.Part


class CorpusWriter:
    """The folder of a preparation in progress, locked for one process."""

    def __init__(self, folder: Path, settings: Mapping[str, Any], labels: tuple[str, ...]):
        self.folder, self.settings, self.labels = folder, settings, labels
        self.state, self.files, self.stack = State(), {}, ExitStack()

    def __truediv__(self, name: str) -> Path:
        """Returns the path of a file in the folder."""
        return self.folder / name

    def __enter__(self) -> "CorpusWriter":
        list_own_files(self.folder, NAMES)
        with errors_name(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = self.stack.enter_context(open(self / ".lock", "w"))
        if not try_lock(lock):
            raise UserError(f"another process is preparing {self.folder}.")
        self.state = self._restored()
        remove_temporaries(self.folder)
        if not self.state.tokens:
            for file in list_own_files(self.folder, NAMES):
                if file.name != ".lock":
                    file.unlink()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with contextlib.suppress(OSError):  # a full disk may fail again; saved data is safe
            self.stack.close()
            if [file.name for file in self.folder.iterdir()] == [".lock"]:  # nothing was written
                (self / ".lock").unlink()
                self.folder.rmdir()
        if isinstance(error, OSError) and error.errno in DISK_FULL_ERRORS:
            raise UserError(
                f"{self.folder} cannot grow: {error.strerror}. The preparation is not finished; "
                "make room and run the same command again: it resumes."
            ) from None

    def begin(self, tokenizer: Tokenizer) -> None:
        """Opens the files and truncates them to their valid length."""
        self.tokenizer = tokenizer
        self.bytes_of_token = tokenizer.n_bytes().astype(np.int64)
        self.dtype = np.dtype("<u2" if tokenizer.vocab_size <= 2**16 else "<u4")
        sizes = {"tokens": self.dtype.itemsize * self.state.tokens}
        sizes |= {name: width * self.state.documents for name, width in ENTRY_BYTES.items()}
        for name, size in sizes.items():
            file = self / f"{name}.bin"
            with errors_name(file):
                self.files[name] = self.stack.enter_context(open(file, "ab"))  # noqa: SIM115
                self.files[name].truncate(size)

    def add(self, part: str, source: int, piece: Piece, ids: np.ndarray) -> None:
        """Writes the tokens of a piece. A new part ends the open document.

        Args:
            part: "train", "validation" or "test".
            source: the index of the piece's source, where a resumed run continues.
            piece: the piece, as a reader yields it.
            ids: its token ids, (T,).
        """
        state, size = self.state, len(piece.text.encode())
        if part != state.part:
            self.end()
            state.part = part
            empty_part = dict(start=state.tokens, first=state.documents, bytes=0)
            state.parts[part] = empty_part | dict(stop=state.tokens, last=state.documents)
        self._append("tokens", ids, self.dtype)
        state.tokens += len(ids)
        state.counted += int(self.bytes_of_token[ids].sum())
        state.read += size
        state.parts[part]["bytes"] += size
        state.is_open = True
        if piece.ends:
            self.end(self._class_of(piece.label))
        state.source, state.after = source, piece.after

    def end(self, label: int = -1) -> None:
        """Ends the open document: writes its end token, its offset and its class."""
        state = self.state
        if not state.is_open:
            return
        self._append("tokens", [self.tokenizer.end], self.dtype)
        state.tokens += 1
        state.documents += 1
        self._append("documents", [state.tokens], "<i8")
        self._append("labels", [label], "<i4")
        state.is_open = False
        state.parts[state.part].update(stop=state.tokens, last=state.documents)

    def save(self) -> None:
        """Flushes all files to disk and writes state.json."""
        for name, file in self.files.items():
            with errors_name(self / f"{name}.bin"):
                file.flush()
                os.fsync(file.fileno())
        content = {"asked": self.settings, "state": vars(self.state)}
        write_json(self / "state.json", with_checksum(content))

    def finish(self) -> None:
        """Completes the files and writes the index last.

        The caller may then rename FOLDER.partial to FOLDER.
        """
        self.end()
        state = self.state
        if "train" not in state.parts:
            raise UserError("the data set has no text for training: nothing was prepared.")
        self.save()
        empty_part = dict(start=state.tokens, stop=state.tokens, bytes=0)
        empty_part |= dict(first=state.documents, last=state.documents)
        labels = self._labels()
        write_atomically(self / "bytes.bin", self.tokenizer.n_bytes().astype("<i4").tobytes())
        (self / "state.json").unlink()
        # state.json is deleted before labels.bin: a preparation that resumed from state.json would
        # fill a missing labels.bin with zeros.
        if not labels:
            (self / "labels.bin").unlink()
        files = [self / name for name in DATA_FILES if (self / name).exists()]
        index = {
            "format": FORMAT,
            "dtype": self.dtype.name,
            "vocab_size": self.tokenizer.vocab_size,
            "end": self.tokenizer.end,
            "labels": labels,
            "parts": {name: empty_part | state.parts.get(name, {}) for name in PARTS},
            "bytes_scale": state.read / max(state.counted, 1),
            "files": {f.name: {"bytes": f.stat().st_size, "sha256": sha256_of(f)} for f in files},
            "asked": self.settings,
        }
        write_json(self / "index.json", with_checksum(index))
        (self / ".lock").unlink()

    def _labels(self) -> tuple[str, ...]:
        """Returns the names of the classes; empty if no document has one."""
        classes = np.fromfile(self / "labels.bin", "<i4")
        if classes.max() < 0:
            return ()
        names = self.labels or tuple(map(str, range(int(classes.max()) + 1)))
        if classes.max() >= len(names):
            raise UserError(
                f"a document has the class {classes.max()}, but the data set names only the "
                f"{len(names)} classes 0 to {len(names) - 1}."
            )
        self._check_classes_of_parts(classes, names)
        return names

    def _check_classes_of_parts(self, classes: np.ndarray, names: tuple[str, ...]) -> None:
        """Raises UserError if a held-out part has one class, as in a table sorted by class."""
        for part in PARTS[1:]:
            span = self.state.parts.get(part, {"first": 0, "last": 0})
            held_out = classes[span["first"] : span["last"]]
            is_large = len(held_out) >= MIN_DOCUMENTS_OF_SEVERAL_CLASSES
            if is_large and len({*held_out}) == 1 and len({*classes}) > 1:
                raise UserError(
                    f"all {len(held_out):,} documents of the {part} part have the class "
                    f"{names[held_out[0]]!r}: the text is sorted by class. Shuffle its rows, or "
                    "give separate files for validation and test."
                )

    def _class_of(self, label: Any) -> int:
        """Returns the number of a class that is given by its name or number; -1 for None."""
        if label is None:
            return -1
        if label in self.labels:
            return self.labels.index(label)
        if isinstance(label, bool) or not isinstance(label, int):
            raise UserError(
                f"a class must be a whole number, got {label!r:.60}. For classes by name use "
                "--dataset=table:FILE."
            )
        if not 0 <= label < MAX_CLASSES:
            raise UserError(f"a class must be 0 to {MAX_CLASSES - 1:,}, got {label!r:.60}.")
        return label

    def _append(self, name: str, values: Any, dtype: Any) -> None:
        with errors_name(self / f"{name}.bin"):
            self.files[name].write(np.asarray(values).astype(dtype).tobytes())

    def _are_files_complete(self, state: State) -> bool:
        """Returns whether the files are at least as long as a saved state requires."""
        required = {name: width * state.documents for name, width in ENTRY_BYTES.items()}
        required["tokens"] = 2 * state.tokens  # a token has two bytes or four
        return all((self / f"{name}.bin").stat().st_size >= n for name, n in required.items())

    def _restored(self) -> State:
        """Returns the saved state, or a new one if it is damaged or has other settings."""
        try:
            saved = without_checksum(json.loads((self / "state.json").read_text()))
            state = State(**saved["state"])
            is_same = not differences(saved["asked"], self.settings)
            if is_same and self._are_files_complete(state):
                return state
        except (OSError, ValueError, KeyError, TypeError):
            pass
        return State()
