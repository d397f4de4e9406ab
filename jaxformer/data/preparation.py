"""A corpus becomes a folder of tokens (`jaxformer.data.tokens`): in pieces, whole or absent.

Writes into FOLDER.partial (`jaxformer.data.corpus_writer`) and renames it when the last byte is
on the disk. The same command resumes an interrupted preparation.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jaxformer.core.errors import UserError, check_range
from jaxformer.data import tokenizer as tokenizers
from jaxformer.data.corpus_writer import NAMES, Partial, State
from jaxformer.data.datasets import Corpus, check_parts
from jaxformer.data.preparation_settings import differences
from jaxformer.data.readers import Piece
from jaxformer.data.tokenizer import Tokenizer
from jaxformer.data.tokens import PARTS, Tokens, open_tokens
from jaxformer.io.atomic_files import naming, write_atomically
from jaxformer.io.partial_folder import own_files
from jaxformer.runtime.progress import clock

TRAINED_ON = 2**23  # bytes of the training text that a BPE is trained on, evenly spaced
BATCH = 2**22  # characters of text that are encoded together
SAVED = 10.0  # seconds after which state.json is written
SAMPLED = 2**20  # bytes of text in which documents are counted
Show = Callable[[str], None]


def prepare(
    corpus: Corpus,
    folder: Path,
    *,
    kind: str,
    shares: tuple[float, float],
    show: Show = lambda text: None,
    said: dict[str, Any] | None = None,
    download: bool = False,
) -> Tokens:
    """The prepared folder; `kind` names the tokenizer, `shares` those of validation and test.

    `said` is what else was asked for; a folder that was asked for otherwise is refused. Only with
    `download` may the hub be asked for the tokenizer.
    Parts that the corpus has are kept; a part that it lacks is the end of its training text.
    """
    folder = folder.expanduser().absolute()
    for name, share in zip(("validation", "test"), shares, strict=True):
        check_range(f"the share of {name}", share, 0, 0.45)
    asked = {"corpus": corpus.summary, "tokenizer": kind, "shares": [*shares], **(said or {})}
    if _is_taken(folder):
        return _found(folder, asked)
    partial = folder.with_name(f"{folder.name}.partial")
    check_space(corpus, partial)
    check_parts(corpus, shares, _pieces)
    with Partial(partial, asked, corpus.labels) as files:
        files.begin(_tokenizer(corpus, partial, kind, shares, show, download))
        _write(corpus, files, shares, show)
        show("checksums")
        files.finish()
    with naming(folder):
        os.rename(partial, folder)
    return open_tokens(str(folder))


def check_space(corpus: Corpus, partial: Path) -> None:
    """Refuses what the disk cannot hold, before anything is written."""
    parent = partial
    while not parent.exists():
        parent = parent.parent
    have = sum(file.stat().st_size for file in own_files(partial, NAMES))
    need, free = needed(corpus) - have, shutil.disk_usage(parent).free
    if need > free:
        raise UserError(
            f"the tokens need about {_size(need)}, {parent} has {_size(free)} free; make room, or "
            "choose another --out."
        )


def needed(corpus: Corpus) -> int:
    """About how many bytes the tokens take, with as many documents as in the first of the text."""
    seen, documents = 0.0, 0
    for place in corpus.places:
        at, unit = 0, place.bytes / max(place.size, 1)
        for piece in place.read(0):
            at, documents = piece.after, documents + piece.ends
            if seen + unit * at >= SAMPLED:
                break
        seen += unit * at
        if seen >= SAMPLED:
            break
    # A token is two bytes, of a large vocabulary four; of a BPE it stands for two bytes or more. A
    # document has an end among the tokens, eight bytes for its place and four for its class.
    return int(2 * corpus.bytes + 16 * documents * corpus.bytes / max(seen, 1)) + 2**20


def part_of(official: str, at: float, has: set[str], shares: tuple[float, float]) -> str:
    """The part of a piece at the fraction `at` of its official part."""
    if official != "train":
        return official
    validation, test = (0 if name in has else s for name, s in zip(PARTS[1:], shares, strict=True))
    if at >= 1 - test:
        return "test"
    return "validation" if at >= 1 - test - validation else "train"


def _pieces(
    corpus: Corpus, shares: tuple[float, float], place: int = 0, after: int = 0
) -> Iterator[tuple[str, int, Piece]]:
    """(part, number of the place, piece) from a place on."""
    has = {one.part for one in corpus.places}
    totals: dict[str, int] = dict.fromkeys(PARTS, 0)
    before = []
    for one in corpus.places:
        before.append(totals[one.part])
        totals[one.part] += one.bytes
    for number, one in enumerate(corpus.places):
        if number < place:
            continue
        start = after if number == place else 0
        for piece in one.read(start):
            at = (before[number] + one.bytes * start / max(one.size, 1)) / max(totals[one.part], 1)
            yield part_of(one.part, at, has, shares), number, piece
            start = piece.after


def _tokenizer(corpus, partial: Path, kind: str, shares, show: Show, download: bool) -> Tokenizer:
    """The one that was trained before, or a new one."""
    file = partial / "tokenizer.json"
    if file.exists():
        return tokenizers.from_json(file.read_text(encoding="utf-8"), str(file))
    show(f"tokenizer {kind}")
    made = tokenizers.make(kind, _sample(corpus, shares), download)
    write_atomically(file, made.as_json().encode())
    return made


def _sample(corpus: Corpus, shares) -> Iterator[str]:
    """Pieces of the training text, evenly spaced."""
    every = max(corpus.bytes // TRAINED_ON, 1)
    taken = 0
    for part, _, piece in _pieces(corpus, shares):
        if part != "train":
            continue
        taken += len(piece.text)
        if every == 1 or taken >= every * len(piece.text):
            taken = 0
            yield piece.text


def _write(corpus: Corpus, partial: Partial, shares, show: Show) -> None:
    """Reads from where the state is to the end."""
    state, saved = partial.state, -SAVED
    first, began = _share(corpus, state), time.monotonic()
    for batch in _batches(corpus, shares, state):
        found = partial.model.encode([piece.text for _, _, piece in batch])
        for (part, place, piece), ids in zip(batch, found, strict=True):
            partial.add(part, place, piece, ids)
        share, now = _share(corpus, state), time.monotonic()
        words = f"{share:.0%}: {state.read / 1e6:,.1f} MB of text, {state.tokens:,} tokens"
        if first < share < 1:
            words += f", about {clock((now - began) / (share - first) * (1 - share))} left"
        show(words)
        if now - saved >= SAVED:
            partial.save()
            saved = time.monotonic()


def _share(corpus: Corpus, state: State) -> float:
    """How much of the text was read, from 0 to 1."""
    before = sum(place.bytes for place in corpus.places[: state.place])
    here = corpus.places[state.place]
    return (before + here.bytes * state.after / max(here.size, 1)) / max(corpus.bytes, 1)


def _batches(corpus, shares, state: State) -> Iterator[list[tuple[str, int, Piece]]]:
    batch, size = [], 0
    for entry in _pieces(corpus, shares, state.place, state.after):
        batch.append(entry)
        size += len(entry[2].text)
        if size >= BATCH:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _is_taken(folder: Path) -> bool:
    """Does something lie there? An empty folder is as good as none."""
    is_empty = folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir())
    return folder.exists() and not is_empty


def _found(folder: Path, asked: dict) -> Tokens:
    """Something is there: it is what was asked for, or an error."""
    if not folder.is_dir():
        raise UserError(f"{folder} is a file, no folder; choose another --out.")
    if not (folder / "index.json").exists():
        names = sorted(file.name for file in folder.iterdir())
        words = ", ".join(repr(name) for name in names[:3])
        words += f" and {len(names) - 3} more" if len(names) > 3 else ""
        raise UserError(
            f"{folder} is there already and holds {words}, no prepared tokens; choose another "
            "--out."
        )
    tokens = open_tokens(str(folder))
    if others := differences(tokens.index["asked"], asked):
        raise UserError(
            f"{folder} holds tokens of another preparation, with another {', '.join(others)}; give "
            "another --out, or remove it."
        )
    return tokens


def _size(n: int) -> str:
    """ "1.2 GB", "3.4 MB", "10 bytes"."""
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if n >= unit:
            return f"{n / unit:,.1f} {name}"
    return f"{n} bytes"
