"""Text of TensorFlow Datasets, read without TensorFlow from array_record files.

Preparing most official builders needs TensorFlow (the extra [prepare]); reading what is prepared
needs only tensorflow_datasets and array_record (the extra [data]).
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jaxformer.data.datasets import Corpus, Place
from jaxformer.data.readers import Piece
from jaxformer.data.tokens import PARTS
from jaxformer.errors import UserError, did_you_mean

SPLITS = {"train": "train", "validation": "validation", "valid": "validation", "test": "test"}


def corpus(name: str, text: str, label: str, folder: str, download: bool) -> Corpus:
    """The builder `name`, as in "yelp_polarity_reviews" or "wiki40b/en"."""
    builder = _builder(name, folder, download)
    fields = builder.info.features
    for field in filter(None, (text, label)):
        if field not in fields:
            hint = did_you_mean(field, [*fields])
            raise UserError(f"tfds:{name} has no field {field!r}.{hint} It has: {[*fields]}.")
    found = {
        SPLITS[split]: (split, info)
        for split, info in builder.info.splits.items()
        if split in SPLITS
    }
    if "train" not in found:
        raise UserError(f"tfds:{name} has no split 'train'; it has {[*builder.info.splits]}.")
    places = tuple(
        Place(
            f"{name}:{found[part][0]}",
            part,
            found[part][1].num_examples,
            found[part][1].num_bytes,
            _reader(builder, found[part][0], text, label),
        )
        for part in PARTS
        if part in found
    )
    names = getattr(fields[label], "names", ()) if label else ()
    return Corpus(places, tuple(names))


def words(name: str, folder: str, download: bool) -> str:
    """What the builder holds, in one line: of images too, which are read as they are."""
    builder = _builder(name, folder, download)
    sizes = [f"{split} {info.num_examples:,}" for split, info in builder.info.splits.items()]
    fields = sorted(builder.info.features)
    return f"{builder.data_path}: {', '.join(sizes)}; fields {', '.join(fields)}"


def _reader(builder: Any, split: str, text: str, label: str):
    def read(start: int) -> Iterator[Piece]:
        source = builder.as_data_source(split=split)
        for i in range(start, len(source)):
            row = source[i]
            words = row[text].decode() if isinstance(row[text], bytes) else str(row[text])
            yield Piece(words, True, int(row[label]) if label else None, i + 1)

    return read


def _builder(name: str, folder: str, download: bool) -> Any:
    """The builder with its files prepared."""
    try:
        import tensorflow_datasets as tfds
    except ImportError:
        raise UserError(
            "tfds: needs the package tensorflow_datasets: pip install 'jaxformer[data]'."
        ) from None
    place = Path(folder or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets").expanduser()
    try:
        builder = tfds.builder_from_directory(str(_version(place / name)))
    except Exception as error:  # not prepared, or damaged: many kinds
        if not download:
            why = "is not prepared" if not (place / name).is_dir() else f"cannot be read ({error})"
            raise UserError(
                f"tfds:{name} {why} in {place}. Say --download to prepare it there (this needs a "
                "network and, for most builders, TensorFlow: pip install 'jaxformer[prepare]'), or "
                "--tfds-dir=DIR."
            ) from None
        builder = _prepared(tfds, name, place)
    if not str(builder.info.file_format).lower().endswith("array_record"):
        raise UserError(
            f"tfds:{name} in {place} is kept as {builder.info.file_format}, which needs TensorFlow "
            "to be read; prepare it again as array_record (--download into another --tfds-dir)."
        )
    return builder


def _version(folder: Path) -> Path:
    """The folder of the newest version."""
    versions = [f for f in folder.iterdir() if (f / "dataset_info.json").is_file()]
    if not versions:
        raise FileNotFoundError("no version of it is whole")
    return max(versions, key=lambda f: [int(n) for n in f.name.split(".") if n.isdecimal()])


def _prepared(tfds: Any, name: str, place: Path) -> Any:
    try:
        builder = tfds.builder(name, data_dir=str(place), file_format="array_record")
    except Exception as error:  # an unknown name lists hundreds
        known = did_you_mean(name.split("/")[0], tfds.list_builders())
        raise UserError(
            f"TensorFlow Datasets has no builder {name!r}.{known} ({type(error).__name__})"
        ) from None
    try:
        builder.download_and_prepare()
    except Exception as error:  # no TensorFlow, no network, a full disk: many kinds
        reason = " ".join(str(error).split())[:200]
        lacks = "tensorflow" in reason.lower() and "No module" in reason
        hint = " Preparing it needs TensorFlow: pip install 'jaxformer[prepare]'." if lacks else ""
        raise UserError(f"tfds:{name} could not be prepared ({reason}).{hint}") from None
    return builder
