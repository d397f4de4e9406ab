"""A corpus becomes a folder of tokens (`jaxformer.data.tokens`): in pieces, whole or absent.

Everything is written into FOLDER.partial (`jaxformer.data.partial`), which is renamed when the last
byte is on the disk. The same preparation goes on where it was stopped.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jaxformer.data import tokenizer as tokenizers
from jaxformer.data.datasets import Corpus
from jaxformer.data.partial import Partial, State
from jaxformer.data.readers import Piece
from jaxformer.data.tokenizer import Tokenizer
from jaxformer.data.tokens import PARTS, Tokens, open_tokens
from jaxformer.errors import UserError, check_range
from jaxformer.files import dumps, naming, write_atomically

TRAINED_ON = 2**23  # bytes of the training text that a BPE is trained on, evenly spaced
BATCH = 2**22  # characters of text that are encoded together
SAVED = 2**25  # bytes of text after which state.json is written
Show = Callable[[str], None]


def prepare(
    corpus: Corpus,
    folder: Path,
    *,
    kind: str,
    shares: tuple[float, float],
    show: Show = lambda text: None,
    said: dict[str, Any] | None = None,
) -> Tokens:
    """The prepared folder; `kind` names the tokenizer, `shares` those of validation and test.

    `said` is what else was asked for; a folder that was asked for otherwise is refused.
    Parts that the corpus has are kept; a part that it lacks is the end of its training text.
    """
    folder = folder.expanduser().absolute()
    for name, share in zip(("validation", "test"), shares, strict=True):
        check_range(f"the share of {name}", share, 0, 0.45)
    asked = {"corpus": corpus.said, "tokenizer": kind, "shares": [*shares], **(said or {})}
    if folder.exists():
        return _found(folder, asked)
    check_space(corpus, folder, kind)
    partial = folder.with_name(f"{folder.name}.partial")
    with Partial(partial, asked, corpus.labels) as files:
        files.begin(_tokenizer(corpus, partial, kind, shares, show))
        _write(corpus, files, shares, show)
        show("checksums")
        files.finish()
    with naming(folder):
        os.rename(partial, folder)
    return open_tokens(str(folder))


def check_space(corpus: Corpus, folder: Path, kind: str) -> None:
    """Refuses what the disk cannot hold, before anything is written."""
    parent = folder
    while not parent.exists():
        parent = parent.parent
    # A token is two bytes, of a large vocabulary four; of a BPE it stands for two bytes or more.
    need, free = 2 * corpus.bytes + 2**20, shutil.disk_usage(parent).free
    if need > free:
        raise UserError(
            f"the tokens need about {need / 1e9:.2f} GB, {parent} has {free / 1e9:.2f} GB free."
        )


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


def _tokenizer(corpus, partial: Path, kind: str, shares, show: Show) -> Tokenizer:
    """The one that was trained before, or a new one."""
    file = partial / "tokenizer.json"
    if file.exists():
        return tokenizers.from_json(file.read_text(encoding="utf-8"), str(file))
    show(f"tokenizer {kind}")
    made = tokenizers.make(kind, _sample(corpus, shares))
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
    state, saved = partial.state, partial.state.read
    for batch in _batches(corpus, shares, state):
        found = partial.model.encode([piece.text for _, _, piece in batch])
        for (part, place, piece), ids in zip(batch, found, strict=True):
            partial.add(part, place, piece, ids)
        show(f"{state.read / 1e6:,.1f} MB of text, {state.tokens:,} tokens")
        if state.read - saved >= SAVED:
            saved = state.read
            partial.save()


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


def _found(folder: Path, asked: dict) -> Tokens:
    """The folder is there: it is what was asked for, or an error."""
    tokens = open_tokens(str(folder))
    if dumps(tokens.index["asked"]) != dumps(asked):
        raise UserError(
            f"{folder} holds tokens of another preparation; give another --out or remove it."
        )
    return tokens
