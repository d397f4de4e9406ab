"""What a name of a data set means: which files or records, in which parts, with which fields.

    text:FILE or text:FOLDER   plain text; *.txt of a folder, in the order of their names
    files:FOLDER               *.parquet or *.jsonl, as Hugging Face keeps data sets
    tfds:BUILDER[/CONFIG]      TensorFlow Datasets, read without TensorFlow
    wikitext103, fineweb_edu, tinystories, yelp    files of the Hugging Face hub, or a copy of them

A `Corpus` is what they all become: places (a file or a split) with a size each, read in pieces.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from jaxformer.core.errors import UserError, unknown
from jaxformer.data import readers
from jaxformer.data.protocols import Corpus, Place
from jaxformer.data.readers import Piece
from jaxformer.data.tokens import PARTS


class Hub(NamedTuple):
    """Where the Hugging Face hub keeps a data set."""

    repository: str
    folder: str
    text: str = "text"
    label: str = ""
    labels: tuple[str, ...] = ()


HUB = {
    "wikitext103": Hub("Salesforce/wikitext", "wikitext-103-raw-v1"),
    "fineweb_edu": Hub("HuggingFaceFW/fineweb-edu", "sample/10BT"),
    "tinystories": Hub("roneneldan/TinyStories", "data"),
    "yelp": Hub("fancyzhx/yelp_polarity", "plain_text", "text", "label", ("negative", "positive")),
}
KNOWN = ("text:FILE", "files:FOLDER", "tfds:BUILDER", *HUB)
# Words of the name of a file, and the part that they say.
WORDS = {"train": "train", "training": "train", "test": "test", "testing": "test"}
WORDS |= {word: "validation" for word in ("validation", "valid", "val", "dev")}
# Pieces of a corpus from a place on, if validation and test have these shares: (part, number of
# the place, piece).
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
) -> Corpus:
    """The data set `name`. `files` is a folder with a copy of what the hub would give."""
    kind, colon, rest = name.partition(":")
    if colon and not rest:
        raise UserError(f"the data set {name!r} names nothing after the colon.")
    if kind == "text" and colon:
        return _text(Path(rest).expanduser(), documents)
    if kind == "files" and colon:
        return _folder(Path(rest).expanduser(), text, label, ())
    if kind == "tfds" and colon:
        from jaxformer.data import tfds  # needs the extra [data]

        return tfds.corpus(rest, text, label, tfds_dir, download)
    if name not in HUB:
        raise unknown("data set", name, KNOWN)
    held = HUB[name]
    folder = Path(files).expanduser() if files else _from_hub(held, download)
    return _folder(folder, held.text, label or held.label, held.labels)


def check_parts(corpus: Corpus, shares: tuple[float, float], pieces: Pieces) -> None:
    """Refuses a share above 0 that leaves its part without text; reads where the parts begin."""
    has = {place.part for place in corpus.places}
    asked: dict[str, float] = dict(zip(PARTS[1:], shares, strict=True))
    missing = {part for part, share in asked.items() if share and part not in has}
    if not missing:
        return
    training = sum(place.bytes for place in corpus.places if place.part == "train")
    first, before = 0, 0
    for number, place in enumerate(corpus.places):
        if place.part == "train" and before <= (1 - sum(shares)) * training:
            first, before = number, before + place.bytes
    found = pieces(corpus, shares, first)
    while missing:
        part = next(found, ("",))[0]
        if not part:
            name = min(missing, key=PARTS.index)
            raise UserError(
                f"--{name}={asked[name]:g} leaves the {name} part without text: no document is in "
                f"two parts, and all of them have {training:,} bytes. Take a longer "
                f"text, more documents, a larger --{name}, or --{name}=0."
            )
        missing.discard(part)


def _text(path: Path, documents: str) -> Corpus:
    if path.is_dir():
        files = sorted(file for file in path.rglob("*.txt") if file.is_file())
        if not files:
            raise UserError(f"the folder {path} has no file that ends in .txt.")
    else:
        files = [path]
    for file in files:
        readers.check_file(file)

    def place(file: Path) -> Place:
        size = file.stat().st_size
        return Place(
            file.name, "train", size, size, lambda at: readers.read_text(file, at, documents)
        )

    return Corpus(tuple(map(place, files)))


def _folder(folder: Path, text: str, label: str, labels: tuple[str, ...]) -> Corpus:
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}.")
    files = [f for end in readers.READERS for f in sorted(folder.rglob(f"*{end}")) if f.is_file()]
    if not files:
        raise UserError(f"the folder {folder} has no file that ends in .parquet or .jsonl.")

    def place(file: Path) -> Place:
        readers.check_file(file)
        read, size = readers.READERS[file.suffix], file.stat().st_size
        rows = readers.parquet_rows(file) if file.suffix == ".parquet" else size
        # Parquet is compressed: about twice as much text as file.
        bytes_ = 2 * size if file.suffix == ".parquet" else size
        name = str(file.relative_to(folder))
        return Place(name, _part(name), rows, bytes_, lambda at: read(file, at, text, label))

    places = sorted(map(place, files), key=lambda place: PARTS.index(place.part))
    if places[0].part != "train":
        raise UserError(
            f"no file of {folder} is for training: the names of {_some(places)} say validation or "
            "test. Name one train, as in train.jsonl."
        )
    return Corpus(tuple(places), labels)


def _part(name: str) -> str:
    """The part that the last such word of a file's name says; what says none is for training."""
    found = [word for word in re.split(r"[^a-z]+", name.lower()) if word in WORDS]
    return WORDS[found[-1]] if found else "train"


def _some(places: list[Place]) -> str:
    names = [place.name for place in places]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _from_hub(held: Hub, download: bool) -> Path:
    """The folder with the files: what is there already, or what the hub gives in one attempt."""
    by_hand = (
        f"download the folder {held.folder} of huggingface.co/datasets/{held.repository} elsewhere "
        "and say --files=FOLDER"
    )
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise UserError(
            f"the hub needs the package huggingface_hub: pip install 'jaxformer[prepare]'; or "
            f"{by_hand}."
        ) from None
    try:
        found = snapshot_download(
            held.repository,
            repo_type="dataset",
            allow_patterns=f"{held.folder}/*",
            local_files_only=not download,
            etag_timeout=5,
        )
    except Exception as error:  # no network, nothing kept, no permission: many kinds
        hint = "" if download else "say --download to fetch it, or "
        raise UserError(
            f"{held.repository} is not on this machine ({type(error).__name__}): {hint}{by_hand}."
        ) from None
    return Path(found) / held.folder
