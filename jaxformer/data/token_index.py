"""The index of a prepared text: the fields of index.json and their valid values.

A checksum protects index.json from damage. These checks also refuse an index that another program
wrote with a valid checksum.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

FORMAT = 1
MAX_CLASSES = 1000  # of documents
DTYPES = {"uint16": 2, "uint32": 4}  # {dtype of tokens.bin: bytes of a token}
DATA_FILES = ("bytes.bin", "documents.bin", "labels.bin", "tokenizer.json", "tokens.bin")
PARTS = ("train", "validation", "test")


class Part(NamedTuple):
    """A part of a prepared text: tokens start .. stop - 1, documents first .. last - 1."""

    start: int
    stop: int
    first: int
    last: int
    bytes: int  # size of its text before tokenization


def fields_valid(index: Mapping[str, Any]) -> dict[str, bool]:
    """Returns whether each field of an index has the type and the range that readers rely on."""
    fields: dict[str, Any] = dict(index)
    vocab_size, labels, files, parts, scale = (
        fields.get(name) for name in ("vocab_size", "labels", "files", "parts", "bytes_scale")
    )
    is_list_of_names = isinstance(labels, list) and all(isinstance(name, str) for name in labels)
    valid = {
        "vocab_size": _is_count(vocab_size, 1, 2**32),
        "dtype": isinstance(fields.get("dtype"), str) and fields["dtype"] in DTYPES,
        "labels": is_list_of_names and len(fields["labels"]) <= MAX_CLASSES,
        "parts": isinstance(parts, dict) and all(_is_part(parts.get(name)) for name in PARTS),
        "bytes_scale": isinstance(scale, float | int) and 0 <= scale < math.inf,
        "files": isinstance(files, dict) and all(map(_is_file_entry, files.items())),
        "asked": isinstance(fields.get("asked"), dict),
    }
    if all(valid.values()):
        valid["end"] = _is_count(fields.get("end"), 0, fields["vocab_size"] - 1)
        valid["files"] = _are_sizes_right(fields)
    return valid


def _are_sizes_right(fields: Mapping[str, Any]) -> bool:
    """Returns whether all files are listed, with the sizes that the other fields imply."""
    parts, files = [fields["parts"][name] for name in PARTS], fields["files"]
    n_documents = max(part["last"] for part in parts)
    sizes = {
        "tokens.bin": DTYPES[fields["dtype"]] * max(part["stop"] for part in parts),
        "documents.bin": 8 * n_documents,
        "bytes.bin": 4 * fields["vocab_size"],
    }
    if fields["labels"]:
        sizes["labels.bin"] = 4 * n_documents
    are_right = all(name in files and files[name]["bytes"] == size for name, size in sizes.items())
    return "tokenizer.json" in files and are_right


def _is_count(value: Any, low: int = 0, high: float = math.inf) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


def _is_part(part: Any) -> bool:
    is_complete = isinstance(part, dict) and part.keys() == {*Part._fields}
    return (
        is_complete
        and all(map(_is_count, part.values()))
        and part["start"] <= part["stop"]
        and part["first"] <= part["last"]
    )


def _is_file_entry(item: tuple[Any, Any]) -> bool:
    name, entry = item
    return (
        name in DATA_FILES
        and isinstance(entry, dict)
        and _is_count(entry.get("bytes"))
        and isinstance(entry.get("sha256"), str)
    )
