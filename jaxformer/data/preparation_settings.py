"""The settings of a preparation, and whether existing tokens were made with them.

index.json and state.json store the settings. A missing setting of an older version has its default.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxformer.data import tokenizer as tokenizers
from jaxformer.data.readers import READERS
from jaxformer.data.tokens import sha256_of
from jaxformer.io.atomic_files import dumps, sha256

MAX_HASHED_BYTES = 2**30  # larger sources are compared by size and time
DEFAULTS = {"text": "text", "label": "", "sources": ""}
NAMES_FOR_USERS = {
    "corpus": "list of files or size of one",
    "sources": "content of the files",
    "shares": "--validation or --test",
}


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Returns the names of differing settings as users know them.

    Sources are compared only if both name them.
    """
    old, new = DEFAULTS | dict(old), DEFAULTS | dict(new)
    if not (old["sources"] and new["sources"]):
        old["sources"] = new["sources"]
    names = sorted(old.keys() | new.keys())
    others = [name for name in names if dumps(old.get(name)) != dumps(new.get(name))]
    return [NAMES_FOR_USERS.get(name, f"--{name}") for name in others]


def sources(dataset: str, files: str, tokenizer: str) -> list[Path]:
    """Returns the local files that a user named: the text and the tokenizer."""
    kind, _, rest = dataset.partition(":")
    named = rest if kind in ("text", "files") else files
    root, ends = Path(named).expanduser(), (".txt",) if kind == "text" else (*READERS,)
    text_files = [root] if named and root.is_file() else []
    if named and root.is_dir():
        text_files = sorted(f for f in root.rglob("*") if f.suffix in ends and f.is_file())
    model = tokenizers.file_of(tokenizer)
    return text_files + ([model] if model else [])


def stamp(files: Sequence[Path]) -> str:
    """Returns twelve digits of a hash of the files, or of sizes and times if they are large."""
    stats = [file.stat() for file in files]
    identity: list[Any] = [[stat.st_size, stat.st_mtime_ns] for stat in stats]
    if sum(stat.st_size for stat in stats) <= MAX_HASHED_BYTES:
        identity = [sha256_of(file) for file in files]
    return sha256(dumps(identity).encode())[:12] if files else ""
