"""What was asked of a preparation, and whether tokens that are there were asked for like that.

index.json and state.json keep it. What an older one does not say counts as its default.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxformer.data import tokenizer as tokenizers
from jaxformer.data.readers import READERS
from jaxformer.data.tokens import sha256_of
from jaxformer.io.atomic_files import dumps, sha256

CONTENT = 2**30  # bytes of files up to which their content is compared, else size and time
DEFAULTS = {"text": "text", "label": "", "sources": ""}
WORDS = {
    "corpus": "list of files or size of one",
    "sources": "content of the files",
    "shares": "--validation or --test",
}


def differences(held: Mapping[str, Any], asked: Mapping[str, Any]) -> list[str]:
    """In what the two differ, in a user's words; files that only one knows are no difference."""
    held, asked = DEFAULTS | dict(held), DEFAULTS | dict(asked)
    if not (held["sources"] and asked["sources"]):
        held["sources"] = asked["sources"]
    names = sorted(held.keys() | asked.keys())
    others = [name for name in names if dumps(held.get(name)) != dumps(asked.get(name))]
    return [WORDS.get(name, f"--{name}") for name in others]


def sources(dataset: str, files: str, tokenizer: str) -> list[Path]:
    """The files here that a user named: those of the text, and that of the tokenizer."""
    kind, _, rest = dataset.partition(":")
    named = rest if kind in ("text", "files") else files
    root, ends = Path(named).expanduser(), (".txt",) if kind == "text" else (*READERS,)
    found = [root] if named and root.is_file() else []
    if named and root.is_dir():
        found = sorted(f for f in root.rglob("*") if f.suffix in ends and f.is_file())
    model = tokenizers.file_of(tokenizer)
    return found + ([model] if model else [])


def stamp(files: Sequence[Path]) -> str:
    """Twelve digits of what files hold, or of their sizes and times if they are large."""
    held = [file.stat() for file in files]
    said: list[Any] = [[one.st_size, one.st_mtime_ns] for one in held]
    if sum(one.st_size for one in held) <= CONTENT:
        said = [sha256_of(file) for file in files]
    return sha256(dumps(said).encode())[:12] if files else ""
