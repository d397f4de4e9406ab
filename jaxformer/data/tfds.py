"""Text of TensorFlow Datasets, read without TensorFlow from array_record files.

Preparing most official builders needs TensorFlow (the extra [prepare]). Reading a prepared data
set needs only tensorflow_datasets and array_record (the extra [data], which also brings requests).
"""

import os
import sys
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jaxformer.core.errors import UserError, did_you_mean
from jaxformer.data.protocols import Corpus, TextSource
from jaxformer.data.readers import Piece
from jaxformer.data.token_index import PARTS

# {split of TensorFlow Datasets: part of a prepared text}
SPLITS = {"train": "train", "validation": "validation", "valid": "validation", "test": "test"}
INSTALL = "pip install 'jaxformer[prepare]'"
CATALOGUE = "https://www.tensorflow.org/datasets/catalog"
CONNECT_SECONDS = 10  # a server that takes longer to answer counts as unreachable


def corpus(name: str, text: str, label: str, folder: str, download: bool) -> Corpus:
    """Opens a builder as a corpus.

    Args:
        name: the builder, such as "yelp_polarity_reviews" or "wiki40b/en".
        text: the field that contains the text.
        label: the field that contains the class, or "".
        folder: the folder of prepared data sets, or "" for the default of TFDS.
        download: whether a missing data set may be downloaded and prepared.
    """
    builder = _open_builder(name, folder, download)
    fields = builder.info.features
    for field in filter(None, (text, label)):
        if field not in fields:
            hint = did_you_mean(field, [*fields])
            raise UserError(f"tfds:{name} has no field {field!r}.{hint} It has: {[*fields]}.")
    splits = {  # {part: (split, its description)}
        SPLITS[split]: (split, info)
        for split, info in builder.info.splits.items()
        if split in SPLITS
    }
    if "train" not in splits:
        raise UserError(f"tfds:{name} has no split 'train'; it has {[*builder.info.splits]}.")
    sources = []
    for part in PARTS:
        if part in splits:
            split, info = splits[part]
            read = _reader(builder, split, text, label)
            source = TextSource(f"{name}:{split}", part, info.num_examples, info.num_bytes, read)
            sources.append(source)
    names = getattr(fields[label], "names", ()) if label else ()
    return Corpus(tuple(sources), tuple(names))


def summary(name: str, folder: str, download: bool) -> str:
    """Returns a line with the folder, the splits and the fields of a prepared builder."""
    builder = _open_builder(name, folder, download)
    sizes = [f"{split} {info.num_examples:,}" for split, info in builder.info.splits.items()]
    fields = sorted(builder.info.features)
    return f"{builder.data_path}: {', '.join(sizes)}; fields {', '.join(fields)}"


def _reader(builder: Any, split: str, text: str, label: str):
    """Returns a function that yields the pieces of a split from a record on."""

    def read(start: int) -> Iterator[Piece]:
        source = builder.as_data_source(split=split)
        for i in range(start, len(source)):
            row = source[i]
            content = row[text].decode() if isinstance(row[text], bytes) else str(row[text])
            row_class = int(row[label]) if label else None
            yield Piece(content, ends=True, label=row_class, after=i + 1)

    return read


def _open_builder(name: str, folder: str, download: bool) -> Any:
    try:
        import tensorflow_datasets as tfds
    except ImportError:
        raise UserError(
            "tfds: needs the package tensorflow_datasets: pip install 'jaxformer[data]'."
        ) from None
    root = Path(folder or os.environ.get("TFDS_DATA_DIR") or "~/tensorflow_datasets").expanduser()
    try:
        builder = tfds.builder_from_directory(str(_newest_version(root / name)))
    except Exception as error:  # not prepared, or damaged: many error classes
        if not download:
            why = "is not prepared" if not (root / name).is_dir() else f"cannot be read ({error})"
            raise UserError(
                f"tfds:{name} {why} in {root}. Give --download to prepare it there (this needs a "
                "network and, for most builders, TensorFlow: " + INSTALL + "), or --tfds-dir=DIR."
            ) from None
        builder = _prepare(tfds, name, root)
    if not str(builder.info.file_format).lower().endswith("array_record"):
        raise UserError(
            f"tfds:{name} in {root} is stored as {builder.info.file_format}, which only TensorFlow "
            "reads; prepare it again as array_record (--download into another --tfds-dir)."
        )
    return builder


def _newest_version(folder: Path) -> Path:
    versions = [f for f in folder.iterdir() if (f / "dataset_info.json").is_file()]
    if not versions:
        raise FileNotFoundError("none of its versions is complete")
    return max(versions, key=lambda f: [int(n) for n in f.name.split(".") if n.isdecimal()])


def _prepare(tfds: Any, name: str, root: Path) -> Any:
    """Downloads and prepares a builder, and returns it."""
    try:
        builder = tfds.builder(name, data_dir=str(root), file_format="array_record")
    except tfds.core.registered.DatasetNotFoundError:  # its message lists hundreds of names
        known = tfds.list_builders(with_community_datasets=False)  # the others need TensorFlow
        hint = did_you_mean(name.split("/")[0], known)
        if find_spec("tensorflow") is None:
            hint += f" Builders that need TensorFlow are not listed without it: {INSTALL}."
        raise UserError(
            f"TensorFlow Datasets has no builder {name!r}.{hint} All are listed at {CATALOGUE}."
        ) from None
    except Exception as error:  # an unknown configuration, no TensorFlow: many error classes
        raise _preparation_error(name, error) from None
    if not sys.stderr.isatty():
        tfds.disable_progress_bar()
    try:
        _check_servers(builder.url_infos)
        builder.download_and_prepare()
    except Exception as error:  # no TensorFlow, no network, a full disk: many error classes
        if (server := _unreachable_server(error)) is None:
            raise _preparation_error(name, error) from None
        raise UserError(
            f"tfds:{name} could not be downloaded: {server} does not answer. Prepare it on a "
            f"machine with a network, and copy the folder {root / name} from there to here."
        ) from None
    return builder


def _preparation_error(name: str, error: Exception) -> UserError:
    reason = " ".join(str(error).split())[:200]
    lacks_tensorflow = "tensorflow" in reason.lower() and "No module" in reason
    hint = f" Preparing it needs TensorFlow: {INSTALL}." if lacks_tensorflow else ""
    return UserError(f"tfds:{name} could not be prepared ({reason}).{hint}")


def _check_servers(urls: Iterable[str]) -> None:
    """Sends one request to each download server; raises an error if one does not answer.

    TensorFlow Datasets itself sends eleven requests, which takes minutes without a network.
    """
    import requests

    servers = {urlsplit(url).netloc: url for url in urls if url.startswith("http")}
    for url in servers.values():
        requests.head(url, timeout=CONNECT_SECONDS)


def _unreachable_server(error: BaseException | None) -> str | None:
    """Returns the server that did not answer, or None if the error has another cause."""
    import requests

    while error is not None:
        if isinstance(error, requests.ConnectionError | requests.Timeout):
            return urlsplit(str(error.request.url)).hostname if error.request else "the server"
        error = error.__cause__ or error.__context__
    return None
