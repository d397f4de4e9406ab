"""What is not prepared yet: the files of FOLDER.partial, and how far they are whole.

    with Partial(folder, asked, labels) as partial:    locked; what was written before is kept
        partial.begin(tokenizer)
        partial.add(part, place, piece, ids)           one piece after the other
        partial.save()                                 state.json: from here a later call goes on
        partial.finish()                               index.json

What was written after the last state.json is cut when the same preparation goes on.
"""

import contextlib
import errno
import fcntl
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
from jaxformer.data.tokenizer import Tokenizer
from jaxformer.data.tokens import FORMAT, PARTS, sha256_of
from jaxformer.io.atomic_files import (
    naming,
    remove_temporaries,
    sealed,
    unsealed,
    write_atomically,
    write_json,
)
from jaxformer.io.partial_folder import own_files

WIDTHS = {"documents": 8, "labels": 4}  # bytes an entry
KEPT = ("bytes.bin", "documents.bin", "labels.bin", "tokenizer.json", "tokens.bin")
NAMES = (*KEPT, "index.json", "state.json", ".lock")  # what this program writes there
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass
class State:
    """How far a preparation is: what was read, and how long the files are."""

    place: int = 0  # of corpus.places, and
    after: int = 0  # where to go on in it
    read: int = 0  # bytes of text
    counted: int = 0  # the same by the bytes of tokens
    tokens: int = 0
    documents: int = 0
    is_open: bool = False  # has the last document no end yet?
    part: str = ""
    parts: dict[str, dict[str, int]] = field(default_factory=dict)  # of jaxformer.data.tokens.Part


class Partial:
    """The folder that is being prepared; one process at a time."""

    def __init__(self, folder: Path, asked: Mapping[str, Any], labels: tuple[str, ...]):
        self.folder, self.asked, self.labels = folder, asked, labels
        self.state, self.files, self.stack = State(), {}, ExitStack()

    def __truediv__(self, name: str) -> Path:
        return self.folder / name

    def __enter__(self) -> "Partial":
        own_files(self.folder, NAMES)
        with naming(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = self.stack.enter_context(open(self / ".lock", "w"))
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"another process is preparing {self.folder}.") from None
        self.state = self._restored()
        remove_temporaries(self.folder)
        if not self.state.tokens:
            for file in own_files(self.folder, NAMES):
                if file.name != ".lock":
                    file.unlink()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with contextlib.suppress(OSError):  # a full disk says so again; what counts is on the disk
            self.stack.close()
            if [file.name for file in self.folder.iterdir()] == [".lock"]:  # nothing was begun
                (self / ".lock").unlink()
                self.folder.rmdir()
        if isinstance(error, OSError) and error.errno in FULL:
            raise UserError(
                f"{self.folder} cannot grow: {error.strerror}. The preparation is not finished; "
                "make room, and the same command goes on."
            ) from None

    def begin(self, model: Tokenizer) -> None:
        """Opens the files, cut to where they are whole."""
        self.model, self.table = model, model.n_bytes().astype(np.int64)
        self.kind = np.dtype("<u2" if model.vocab_size <= 2**16 else "<u4")
        sizes = {"tokens": self.kind.itemsize * self.state.tokens}
        sizes |= {name: width * self.state.documents for name, width in WIDTHS.items()}
        for name, size in sizes.items():
            file = self / f"{name}.bin"
            with naming(file):
                self.files[name] = self.stack.enter_context(open(file, "ab"))  # noqa: SIM115
                self.files[name].truncate(size)

    def add(self, part: str, place: int, piece: Piece, ids: np.ndarray) -> None:
        """Writes a piece; no document is in two parts."""
        state, size = self.state, len(piece.text.encode())
        if part != state.part:
            self.end()
            state.part = part
            here = dict(start=state.tokens, first=state.documents, bytes=0)
            state.parts[part] = here | dict(stop=state.tokens, last=state.documents)
        self._put("tokens", ids, self.kind)
        state.tokens += len(ids)
        state.counted += int(self.table[ids].sum())
        state.read += size
        state.parts[part]["bytes"] += size
        state.is_open = True
        if piece.ends:
            self.end(self._class(piece.label))
        state.place, state.after = place, piece.after

    def end(self, label: int = -1) -> None:
        """Ends the document that is open: its last token, where that is, its class."""
        state = self.state
        if not state.is_open:
            return
        self._put("tokens", [self.model.end], self.kind)
        state.tokens += 1
        state.documents += 1
        self._put("documents", [state.tokens], "<i8")
        self._put("labels", [label], "<i4")
        state.is_open = False
        state.parts[state.part].update(stop=state.tokens, last=state.documents)

    def save(self) -> None:
        """All that was added is on the disk, and state.json says so."""
        for name, file in self.files.items():
            with naming(self / f"{name}.bin"):
                file.flush()
                os.fsync(file.fileno())
        said = {"asked": self.asked, "state": vars(self.state)}
        write_json(self / "state.json", sealed(said))

    def finish(self) -> None:
        """The index, after everything else; the folder may take its name then."""
        self.end()
        state = self.state
        if "train" not in state.parts:
            raise UserError("the data set has no text for training: nothing was prepared.")
        self.save()
        here = dict(start=state.tokens, stop=state.tokens, bytes=0)
        here |= dict(first=state.documents, last=state.documents)
        labels = self._labels()
        write_atomically(self / "bytes.bin", self.model.n_bytes().astype("<i4").tobytes())
        (self / "state.json").unlink()
        kept = [self / name for name in KEPT if (self / name).exists()]
        index = {
            "format": FORMAT,
            "dtype": self.kind.name,
            "vocab_size": self.model.vocab_size,
            "end": self.model.end,
            "labels": labels,
            "parts": {name: here | state.parts.get(name, {}) for name in PARTS},
            "bytes_scale": state.read / max(state.counted, 1),
            "files": {f.name: {"bytes": f.stat().st_size, "sha256": sha256_of(f)} for f in kept},
            "asked": self.asked,
        }
        write_json(self / "index.json", sealed(index))
        (self / ".lock").unlink()

    def _labels(self) -> tuple[str, ...]:
        """The names of the classes; the file of classes goes if there are none."""
        classes = np.fromfile(self / "labels.bin", "<i4")
        if classes.max() < 0:
            (self / "labels.bin").unlink()
            return ()
        names = self.labels or tuple(map(str, range(int(classes.max()) + 1)))
        if classes.max() >= len(names):
            raise UserError(f"a class is {classes.max()}, but there are only {len(names)}.")
        return names

    def _class(self, label: Any) -> int:
        if label is None:
            return -1
        if label in self.labels:
            return self.labels.index(label)
        if isinstance(label, bool) or not isinstance(label, int) or label < 0:
            raise UserError(f"a class must be a number from 0 on, got {label!r}.")
        return label

    def _put(self, name: str, values: Any, kind: Any) -> None:
        with naming(self / f"{name}.bin"):
            self.files[name].write(np.asarray(values).astype(kind).tobytes())

    def _restored(self) -> State:
        """Where the preparation was; a new state if it was another one, or is damaged."""
        try:
            held = unsealed(json.loads((self / "state.json").read_text()))
            if not differences(held["asked"], self.asked):
                return State(**held["state"])
        except (OSError, ValueError, KeyError, TypeError):
            pass
        return State()
