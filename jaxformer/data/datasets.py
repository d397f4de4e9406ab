"""Named data sets as corpora. A name selects the files, their parts and their fields.

    text:FILE or text:FOLDER   plain text; *.txt of a folder, in the order of their names
    files:FOLDER               *.parquet or *.jsonl, as Hugging Face keeps data sets
    table:FILE                 *.csv, *.tsv or *.jsonl with a row for each document; also .gz, .zst
    tfds:BUILDER[/CONFIG]      TensorFlow Datasets, read without TensorFlow
    wikitext103, fineweb_edu, tinystories, yelp    files of the Hugging Face hub, or a copy of them

All of them become a `Corpus`: sources (a file or a split) that are read in pieces.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from jaxformer.core.errors import UserError, check_choice, unknown
from jaxformer.data import readers, row_readers, tables
from jaxformer.data.protocols import Corpus, TextSource
from jaxformer.data.readers import Piece
from jaxformer.data.token_index import PARTS


class HubDataset(NamedTuple):
    """A data set of the Hugging Face hub."""

    repository: str
    folder: str  # in the repository
    text: str = "text"  # the field with the text
    label: str = ""  # the field with the class; "": no classes
    labels: tuple[str, ...] = ()  # the names of the classes


HUB = {
    "wikitext103": HubDataset("Salesforce/wikitext", "wikitext-103-raw-v1"),
    "fineweb_edu": HubDataset("HuggingFaceFW/fineweb-edu", "sample/10BT"),
    "tinystories": HubDataset("roneneldan/TinyStories", "data"),
    "yelp": HubDataset(
        "fancyzhx/yelp_polarity", "plain_text", "text", "label", ("negative", "positive")
    ),
}
KNOWN = ("text:FILE", "files:FOLDER", "table:FILE", "tfds:BUILDER", *HUB)
# {word in a file name: part that it stands for}
PART_OF_WORD = {"train": "train", "training": "train", "test": "test", "testing": "test"}
PART_OF_WORD |= {word: "validation" for word in ("validation", "valid", "val", "dev")}
# Called with (corpus, shares of validation and test, index of the first source). It yields
# (part, index of the source, piece).
Pieces = Callable[[Corpus, tuple[float, float], int], Iterator[tuple[str, int, Piece]]]


def corpus(
    name: str,
    *,
    documents: str = "file",
    text: str = "text",
    label: str = "",
    files: str = "",
    tfds_dir: str = "",
    download: bool = False,
    shares: tuple[float, float] = (0.05, 0.05),
) -> Corpus:
    """Opens the data set `name`.

    Args:
        name: see the top of this module.
        documents: for plain text: each "file" or each "line" is a document.
        text: the field with the text.
        label: the field with the class, or "". Of a table it may be a comparison: "stars>3".
        files: a folder with a copy of the hub's files.
        tfds_dir: the folder of TensorFlow Datasets.
        download: whether files may be downloaded.
        shares: the shares of validation and test. Only a table needs them: its rows are assigned
            to parts at random. `preparation.prepare` cuts the parts of other data sets.
    """
    kind, colon, rest = name.partition(":")
    if colon and not rest:
        raise UserError(f"the data set {name!r} names nothing after the colon.")
    if kind == "text" and colon:
        check_choice("documents", documents, ("file", "line"))
        return _text_corpus(Path(rest).expanduser(), documents)
    if kind == "files" and colon:
        return _folder_corpus(Path(rest).expanduser(), text, label, ())
    if kind == "table" and colon:
        return tables.corpus(Path(rest).expanduser(), text, label, shares)
    if kind == "tfds" and colon:
        from jaxformer.data import tfds  # needs the extra [data]

        return tfds.corpus(rest, text, label, tfds_dir, download)
    check_kind(name)
    if name not in HUB:
        raise unknown("data set", name, KNOWN)
    entry = HUB[name]
    folder = Path(files).expanduser() if files else _from_hub(entry, download)
    return _folder_corpus(folder, entry.text, label or entry.label, entry.labels)


def check_kind(name: str) -> None:
    """Raises UserError if the name of a data set is that of a file, without its kind before it."""
    if name and name not in HUB and Path(name).expanduser().exists():
        kind = "table" if {*Path(name).suffixes} & {*tables.KINDS} else "text"
        raise UserError(f"{name} exists, but a text has a kind: say {kind}:{name}.")


def check_parts(corpus: Corpus, shares: tuple[float, float], pieces: Pieces) -> None:
    """Raises UserError if a positive share leaves its part without text.

    Args:
        corpus: the sources of text.
        shares: the requested shares of the validation and the test part.
        pieces: reads the corpus in pieces; `preparation` passes its own reader.
    """
    existing = {source.part for source in corpus.sources}
    share_of: dict[str, float] = dict(zip(PARTS[1:], shares, strict=True))
    missing = {part for part, share in share_of.items() if share and part not in existing}
    if not missing:
        return
    training = sum(source.bytes for source in corpus.sources if source.part == "train")
    # Missing parts are cut from the end of the training text, so earlier sources are not read.
    # `first` becomes the last source that starts before the cut.
    first, preceding_bytes = 0, 0
    for index, source in enumerate(corpus.sources):
        if source.part == "train" and preceding_bytes <= (1 - sum(shares)) * training:
            first, preceding_bytes = index, preceding_bytes + source.bytes
    remaining = pieces(corpus, shares, first)
    while missing:
        part = next(remaining, ("",))[0]
        if not part:
            name = min(missing, key=PARTS.index)
            raise UserError(
                f"--{name}={share_of[name]:g} leaves the {name} part without text: a part "
                f"consists of whole documents or of blocks of a long one, and the training text "
                f"has {training:,} bytes. Use a longer text, more documents, a larger --{name}, or "
                f"--{name}=0."
            )
        missing.discard(part)


def _text_corpus(path: Path, documents: str) -> Corpus:
    if path.is_dir():
        files = sorted(file for file in path.rglob("*.txt") if file.is_file())
        if not files:
            raise UserError(f"the folder {path} has no file that ends in .txt.")
    else:
        files = [path]
    for file in files:
        readers.check_file(file)

    def source_of(file: Path) -> TextSource:
        def read(start: int):
            return readers.read_text(file, start, documents)

        size = file.stat().st_size
        return TextSource(file.name, "train", size=size, bytes=size, read=read)

    return Corpus(tuple(map(source_of, files)), files=tuple(files))


def _folder_corpus(folder: Path, text: str, label: str, labels: tuple[str, ...]) -> Corpus:
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}.")
    endings = row_readers.READERS
    files = [f for end in endings for f in sorted(folder.rglob(f"*{end}")) if f.is_file()]
    if not files:
        raise UserError(f"the folder {folder} has no file that ends in .parquet or .jsonl.")

    def source_of(file: Path) -> TextSource:
        readers.check_file(file)
        read, size = row_readers.READERS[file.suffix], file.stat().st_size
        rows = row_readers.parquet_rows(file) if file.suffix == ".parquet" else size
        # A compressed parquet file contains about twice its size in text.
        bytes_ = 2 * size if file.suffix == ".parquet" else size
        name = str(file.relative_to(folder))
        return TextSource(
            name, _part(name), rows, bytes_, lambda start: read(file, start, text, label)
        )

    sources = sorted(map(source_of, files), key=lambda source: PARTS.index(source.part))
    if sources[0].part != "train":
        raise UserError(
            f"no file of {folder} is for training: the files {_shorten(sources)} are named "
            "validation or test. Name one of them train, as in train.jsonl."
        )
    return Corpus(tuple(sources), labels, tuple(sorted(files)))


def _part(name: str) -> str:
    """Returns the part that a file name contains as a word, such as "dev"; else "train".

    The last such word counts.
    """
    words = [word for word in re.split(r"[^a-z]+", name.lower()) if word in PART_OF_WORD]
    return PART_OF_WORD[words[-1]] if words else "train"


def _shorten(sources: list[TextSource]) -> str:
    names = [source.name for source in sources]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _from_hub(entry: HubDataset, download: bool) -> Path:
    """Returns the folder of files in the hub's cache, downloaded first if allowed."""
    manual_download = (
        f"download the folder {entry.folder} of huggingface.co/datasets/{entry.repository} "
        "elsewhere and use --files=FOLDER"
    )
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise UserError(
            f"the hub needs the package huggingface_hub: pip install 'jaxformer[prepare]'; or "
            f"{manual_download}."
        ) from None
    try:
        snapshot = snapshot_download(
            entry.repository,
            repo_type="dataset",
            allow_patterns=f"{entry.folder}/*",
            local_files_only=not download,
            etag_timeout=5,
        )
    except Exception as error:  # no network, no cache, no permission: many types
        hint = "" if download else "use --download to fetch it, or "
        raise UserError(
            f"{entry.repository} is not on this machine ({type(error).__name__}): "
            f"{hint}{manual_download}."
        ) from None
    return Path(snapshot) / entry.folder
