"""FOLDER.partial, where a command writes what is not whole yet: its own files, or a user's."""

from collections.abc import Collection
from pathlib import Path

from jaxformer.core.errors import UserError
from jaxformer.io.atomic_files import TEMPORARY


def own_files(folder: Path, names: Collection[str]) -> list[Path]:
    """The files of a FOLDER.partial, all under `names`; anything else there is refused.

    A half-written temporary file (`atomic_files.TEMPORARY`) counts as the file it was to become.
    """
    if not folder.is_dir():
        return []
    files = sorted(folder.iterdir())
    for file in files:
        half = TEMPORARY.fullmatch(file.name)
        name = half[1] if half else file.name
        if name not in names or file.is_symlink() or not file.is_file():
            raise UserError(
                f"{folder} holds {file.name!r}, which this program did not write and would lose; "
                "move it away, or give another name."
            )
    return files
