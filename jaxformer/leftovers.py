"""FOLDER.partial, where a command writes what is not whole yet: its own files, or a user's."""

import re
from collections.abc import Collection
from pathlib import Path

from jaxformer.errors import UserError


def own_files(folder: Path, names: Collection[str]) -> list[Path]:
    """The files of a FOLDER.partial, all under `names`; anything else there is refused.

    A file that a kill left half written (`jaxformer.files.write_atomically`) has such a name with
    a dot before it and eight digits after it.
    """
    if not folder.is_dir():
        return []
    files = sorted(folder.iterdir())
    for file in files:
        whole = re.sub(r"^\.(.+)\.[0-9a-f]{8}$", r"\1", file.name)
        if whole not in names or file.is_symlink() or not file.is_file():
            raise UserError(
                f"{folder} holds {file.name!r}, which this program did not write and would lose; "
                "move it away, or give another name."
            )
    return files
