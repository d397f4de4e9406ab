"""The settings of a preparation, and whether existing tokens were made with them.

index.json and state.json store the settings. Files of older versions lack some settings; DEFAULTS
has their values.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxformer.core.errors import UserError
from jaxformer.data.tokens import sha256_of
from jaxformer.io.atomic_files import dumps, sha256

MAX_HASHED_BYTES = 2**30  # of all sources; larger sources are compared by size and time
DEFAULTS = {"text": "text", "label": "", "sources": ""}
NAMES_FOR_USERS = {
    "corpus": "list of files or size of one",
    "sources": "content of the files",
    "shares": "--validation or --test",
}


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Returns the settings that differ, as flags or as words that a user understands.

    The checksums of the sources are compared only if both have them.
    """
    old, new = DEFAULTS | dict(old), DEFAULTS | dict(new)
    if not (old["sources"] and new["sources"]):
        old["sources"] = new["sources"]
    names = sorted(old.keys() | new.keys())
    changed = [name for name in names if dumps(old.get(name)) != dumps(new.get(name))]
    return [NAMES_FOR_USERS.get(name, f"--{name}") for name in changed]


class Snapshot(NamedTuple):
    """The sizes, times of change and checksums of files before they are read."""

    files: tuple[Path, ...]
    stats: tuple[tuple[int, int], ...]  # bytes, and time of the last change in ns, of each file
    stamp: str  # twelve hexadecimal digits of a hash of all files; "" without files

    def check_unchanged(self) -> None:
        """Raises UserError if a file is not what it was when the snapshot was taken."""
        now = snapshot(self.files)
        changed = [
            str(file)
            for file, old, new in zip(self.files, self.stats, now.stats, strict=True)
            if old != new
        ]
        if changed or now.stamp != self.stamp:
            name = changed[0] if changed else ", ".join(map(str, self.files[:3]))
            raise UserError(
                f"{name} changed while it was read: nothing was prepared. Run the same command "
                "again when the file is complete."
            )


def snapshot(files: Sequence[Path]) -> Snapshot:
    """Returns the state of files.

    Files of more than MAX_HASHED_BYTES together are identified by their sizes and times.
    """
    try:
        stats = tuple((stat.st_size, stat.st_mtime_ns) for stat in map(Path.stat, files))
        identity: list[Any] = [[*stat] for stat in stats]
        if sum(size for size, _ in stats) <= MAX_HASHED_BYTES:
            identity = [sha256_of(file) for file in files]
    except OSError as error:
        raise UserError(f"cannot read {error.filename}: {error.strerror}.") from None
    stamp = sha256(dumps(identity).encode())[:12] if files else ""
    return Snapshot(tuple(files), stats, stamp)
