"""Preparation of a corpus: text becomes a folder of tokens (`jaxformer.data.tokens`).

`prepare` writes into FOLDER.partial (`jaxformer.data.corpus_writer`) and renames it when all data
is on the disk. Running the same command again resumes an interrupted preparation.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jaxformer.core.errors import UserError, check_range
from jaxformer.core.text_format import byte_size, duration
from jaxformer.data import tokenizer as tokenizers
from jaxformer.data.corpus_writer import NAMES, CorpusWriter, State
from jaxformer.data.datasets import Corpus, check_parts
from jaxformer.data.preparation_settings import differences, snapshot
from jaxformer.data.readers import Piece
from jaxformer.data.round_trip import check_round_trip
from jaxformer.data.token_index import PARTS
from jaxformer.data.tokenizer import Tokenizer
from jaxformer.data.tokens import Tokens, open_tokens
from jaxformer.io.atomic_files import errors_name, write_atomically
from jaxformer.io.partial_folder import list_own_files

BPE_TRAINING_BYTES = 2**23  # of pieces that are evenly spaced over the training text
ENCODE_BATCH_CHARACTERS = 2**22
SAVE_SECONDS = 10.0  # interval between writes of state.json
TRIAL_CHARACTERS = 2**16  # of text with which a tokenizer is tried (`check_round_trip`)
COUNT_SAMPLE_BYTES = 2**20  # of text in which documents are counted
Show = Callable[[str], None]  # prints a line of progress


def prepare(
    corpus: Corpus,
    folder: Path,
    *,
    kind: str,
    shares: tuple[float, float],
    show: Show = lambda text: None,
    more_settings: dict[str, Any] | None = None,
    download: bool = False,
    tokenizer: Tokenizer | None = None,
) -> Tokens:
    """Prepares a corpus and returns its tokens.

    A folder that was prepared with the same settings is only opened.

    Args:
        corpus: the text. Its validation and test parts are kept; a missing part is taken from the
            end of the training text.
        folder: the folder to write. A folder prepared with other settings is refused.
        kind: the tokenizer (see `tokenizer.make`).
        shares: the shares of validation and test for parts that the corpus lacks.
        show: called with a line of progress.
        more_settings: {name: value} of further settings that index.json stores.
        download: whether the tokenizer may be downloaded from the hub.
        tokenizer: the tokenizer that `kind` names, if it is loaded already.
    """
    folder = folder.expanduser().absolute()
    for name, share in zip(("validation", "test"), shares, strict=True):
        check_range(f"the share of {name}", share, 0, 0.45)
    tokenizer_file = tokenizers.file_of(kind)
    tokenizer_files = [tokenizer_file] if tokenizer_file else []
    files = snapshot([*corpus.files, *tokenizer_files])
    settings = {"corpus": corpus.summary, "tokenizer": kind, "shares": [*shares]}
    settings |= {"sources": files.stamp} | (more_settings or {})
    if _is_taken(folder):
        return _open_existing(folder, settings)
    partial = folder.with_name(f"{folder.name}.partial")
    check_space(corpus, partial)
    check_parts(corpus, shares, _pieces)
    with CorpusWriter(partial, settings, corpus.labels) as writer:
        writer.begin(_tokenizer(corpus, partial, kind, shares, show, download, tokenizer))
        _write(corpus, writer, shares, show)
        show("checksums")
        files.check_unchanged()
        writer.finish()
    with errors_name(folder):
        os.rename(partial, folder)
    return open_tokens(str(folder))


def check_space(corpus: Corpus, partial: Path) -> None:
    """Raises UserError if the disk has too little space. Writes nothing."""
    parent = partial
    while not parent.exists():
        parent = parent.parent
    written = sum(file.stat().st_size for file in list_own_files(partial, NAMES))
    need, free = estimate_bytes(corpus) - written, shutil.disk_usage(parent).free
    if need > free:
        raise UserError(
            f"the tokens need about {byte_size(need)}, {parent} has {byte_size(free)} free; make "
            "room, or choose another --out."
        )


def estimate_bytes(corpus: Corpus) -> int:
    """Estimates the bytes of the prepared files from a sample of the text."""
    sample_bytes, documents = 0.0, 0
    for source in corpus.sources:
        # A unit is a byte or a record (`TextSource.size`).
        position, bytes_per_unit = 0, source.bytes / max(source.size, 1)
        for piece in source.read(0):
            position = piece.after
            documents += piece.ends
            if sample_bytes + bytes_per_unit * position >= COUNT_SAMPLE_BYTES:
                break
        sample_bytes += bytes_per_unit * position
        if sample_bytes >= COUNT_SAMPLE_BYTES:
            break
    # Two bytes of tokens for each byte of text: a token has two bytes, or four in a large
    # vocabulary. A byte token covers one byte of text, a BPE token about two.
    # A document needs 16 bytes: an end token of at most four, eight for its offset, four for its
    # class. 2**20 bytes are for the other files.
    all_documents = documents * corpus.bytes / max(sample_bytes, 1)
    return int(2 * corpus.bytes + 16 * all_documents) + 2**20


def part_of(official: str, position: float, existing: set[str], shares: tuple[float, float]) -> str:
    """Returns the part (train, validation or test) to which a piece of text is assigned.

    Args:
        official: the part that the corpus assigns to the piece.
        position: the position of the piece in its official part, from 0 to 1.
        existing: the parts that the corpus has.
        shares: the shares of validation and test, used for parts that the corpus lacks.
    """
    if official != "train":
        return official
    validation, test = (
        0 if part in existing else share for part, share in zip(PARTS[1:], shares, strict=True)
    )
    if position >= 1 - test:
        return "test"
    return "validation" if position >= 1 - test - validation else "train"


def _pieces(
    corpus: Corpus, shares: tuple[float, float], first: int = 0, after: int = 0
) -> Iterator[tuple[str, int, Piece]]:
    """Yields (part, index of the source, piece), starting at `after` in the source `first`."""
    existing = {source.part for source in corpus.sources}
    totals: dict[str, int] = dict.fromkeys(PARTS, 0)
    preceding_bytes = []  # for each source: bytes of earlier sources of the same part
    for source in corpus.sources:
        preceding_bytes.append(totals[source.part])
        totals[source.part] += source.bytes
    for index, source in enumerate(corpus.sources):
        if index < first:
            continue
        start = after if index == first else 0
        for piece in source.read(start):
            read_bytes = preceding_bytes[index] + source.bytes * start / max(source.size, 1)
            position = read_bytes / max(totals[source.part], 1)
            yield part_of(source.part, position, existing, shares), index, piece
            start = piece.after


def _tokenizer(
    corpus,
    partial: Path,
    kind: str,
    shares,
    show: Show,
    download: bool,
    loaded: Tokenizer | None,
) -> Tokenizer:
    """Returns the saved tokenizer of an interrupted preparation, or a new one."""
    file = partial / "tokenizer.json"
    if file.exists():
        return tokenizers.from_json(file.read_text(encoding="utf-8"), str(file))
    show(f"tokenizer {kind}")
    new_tokenizer = loaded or tokenizers.make(kind, _sample(corpus, shares), download)
    check_round_trip(new_tokenizer, kind, _trial_words(corpus, shares))
    write_atomically(file, new_tokenizer.as_json().encode())
    return new_tokenizer


def _sample(corpus: Corpus, shares) -> Iterator[str]:
    """Yields evenly spaced pieces of the training text."""
    spacing = max(corpus.bytes // BPE_TRAINING_BYTES, 1)
    passed = 0  # characters since the last sampled piece
    for part, _, piece in _pieces(corpus, shares):
        if part != "train":
            continue
        passed += len(piece.text)
        if spacing == 1 or passed >= spacing * len(piece.text):
            passed = 0
            yield piece.text


def _trial_words(corpus: Corpus, shares) -> list[str]:
    """Returns the first words of the training text."""
    words, size = [], 0
    for part, _, piece in _pieces(corpus, shares):
        if part == "train":
            words += piece.text[: TRIAL_CHARACTERS - size].split()
            size += len(piece.text)
        if size >= TRIAL_CHARACTERS:
            break
    return words


def _write(corpus: Corpus, writer: CorpusWriter, shares, show: Show) -> None:
    """Reads the corpus from the saved state to its end and writes its tokens."""
    state, save_time = writer.state, -SAVE_SECONDS  # saves after the first batch
    start_share, start_time = _share_read(corpus, state), time.monotonic()
    for batch in _batches(corpus, shares, state):
        encoded = writer.tokenizer.encode([piece.text for _, _, piece in batch])
        for (part, source, piece), ids in zip(batch, encoded, strict=True):
            writer.add(part, source, piece, ids)
        share, now = _share_read(corpus, state), time.monotonic()
        line = f"{share:.0%}: {state.read / 1e6:,.1f} MB of text, {state.tokens:,} tokens"
        if start_share < share < 1:
            seconds = (now - start_time) / (share - start_share) * (1 - share)
            line += f", about {duration(seconds)} left"
        show(line)
        if now - save_time >= SAVE_SECONDS:
            writer.save()
            save_time = time.monotonic()


def _share_read(corpus: Corpus, state: State) -> float:
    """Returns the share of the text that has been read, from 0 to 1."""
    before = sum(source.bytes for source in corpus.sources[: state.source])
    current = corpus.sources[state.source]
    return (before + current.bytes * state.after / max(current.size, 1)) / max(corpus.bytes, 1)


def _batches(corpus, shares, state: State) -> Iterator[list[tuple[str, int, Piece]]]:
    """Yields lists of (part, index of the source, piece) from the saved state on."""
    batch, size = [], 0
    for part, source, piece in _pieces(corpus, shares, state.source, state.after):
        batch.append((part, source, piece))
        size += len(piece.text)
        if size >= ENCODE_BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _is_taken(folder: Path) -> bool:
    """Returns True unless the path is free or an empty folder."""
    is_empty = folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir())
    return folder.exists() and not is_empty


def _open_existing(folder: Path, settings: dict) -> Tokens:
    """Opens the tokens in a folder. Raises UserError if they have other settings."""
    if not folder.is_dir():
        raise UserError(f"{folder} is a file; choose another --out.")
    if not (folder / "index.json").exists():
        names = sorted(file.name for file in folder.iterdir())
        listed = ", ".join(repr(name) for name in names[:3])
        listed += f" and {len(names) - 3} more" if len(names) > 3 else ""
        raise UserError(
            f"{folder} exists and contains {listed}, not prepared tokens; choose another --out."
        )
    tokens = open_tokens(str(folder))
    if changed := differences(tokens.index["asked"], settings):
        raise UserError(
            f"{folder} contains tokens prepared with another {', '.join(changed)}; choose another "
            "--out, or remove the folder."
        )
    return tokens
