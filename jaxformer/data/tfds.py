"""Text of TensorFlow Datasets, read without TensorFlow from array_record files.

Preparing most official builders needs TensorFlow (the extra [prepare]); reading what is prepared
needs only tensorflow_datasets and array_record (the extra [data]).
"""

import contextlib
import functools
import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jaxformer.core.errors import UserError, did_you_mean
from jaxformer.data.datasets import Corpus, Place
from jaxformer.data.readers import Piece
from jaxformer.data.tokens import PARTS

SPLITS = {"train": "train", "validation": "validation", "valid": "validation", "test": "test"}
INSTALL = "pip install 'jaxformer[prepare]'"
CATALOGUE = "https://www.tensorflow.org/datasets/catalog"
PATIENCE = (10, 60)  # seconds for a server to take a call, and to go on with its answer


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
                "network and, for most builders, TensorFlow: " + INSTALL + "), or --tfds-dir=DIR."
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
    """The builder, after it has fetched and written what it needs."""
    try:
        builder = tfds.builder(name, data_dir=str(place), file_format="array_record")
    except tfds.core.registered.DatasetNotFoundError:  # whose own words list hundreds
        known = tfds.list_builders(with_community_datasets=False)  # those need TensorFlow
        hint = did_you_mean(name.split("/")[0], known)
        if find_spec("tensorflow") is None:
            hint += f" Builders that need TensorFlow are not listed without it: {INSTALL}."
        raise UserError(
            f"TensorFlow Datasets has no builder {name!r}.{hint} All are listed at {CATALOGUE}."
        ) from None
    except Exception as error:  # an unknown configuration, no TensorFlow: many kinds
        raise _failed(name, error) from None
    if not sys.stderr.isatty():
        tfds.disable_progress_bar()
    try:
        with _one_attempt():
            builder.download_and_prepare()
    except Exception as error:  # no TensorFlow, no network, a full disk: many kinds
        if (server := _silent(error)) is None:
            raise _failed(name, error) from None
        raise UserError(
            f"tfds:{name} could not be downloaded: {server} does not answer. Prepare it on a "
            f"machine with a network, and copy the folder {place / name} from there to here."
        ) from None
    return builder


def _failed(name: str, error: Exception) -> UserError:
    reason = " ".join(str(error).split())[:200]
    lacks = "tensorflow" in reason.lower() and "No module" in reason
    hint = f" Preparing it needs TensorFlow: {INSTALL}." if lacks else ""
    return UserError(f"tfds:{name} could not be prepared ({reason}).{hint}")


@contextlib.contextmanager
def _one_attempt() -> Iterator[None]:
    """Within, a server is asked once and given seconds to answer.

    TensorFlow Datasets asks eleven times, which takes minutes without a network, and waits for
    ever. It has no option for either.
    """
    from tensorflow_datasets.core.download import downloader

    module: Any = downloader
    before = {name: getattr(module, name) for name in ("MAX_RETRIES", "_open_url")}
    module.MAX_RETRIES = 0
    module._open_url = functools.partial(module._open_url, timeout=PATIENCE)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)


def _silent(error: BaseException | None) -> str | None:
    """The server that did not answer, if that is what went wrong."""
    import requests

    while error is not None:
        if isinstance(error, requests.ConnectionError | requests.Timeout):
            return urlsplit(str(error.request.url)).hostname if error.request else "the server"
        error = error.__cause__ or error.__context__
    return None
