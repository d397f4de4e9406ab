"""Check of FOLDER.partial, which a command fills and then renames to FOLDER."""

from collections.abc import Collection
from pathlib import Path

from jaxformer.core.errors import UserError
from jaxformer.io.atomic_files import TEMPORARY_NAME


def list_own_files(folder: Path, names: Collection[str]) -> list[Path]:
    """Lists a partial folder, and raises a UserError if it contains other files than expected.

    Args:
        folder: the partial folder; it may be missing.
        names: the files that the command writes there. A temporary file of an interrupted atomic
            write counts as the file that it would have become.
    """
    if not folder.is_dir():
        return []
    files = sorted(folder.iterdir())
    for file in files:
        temporary = TEMPORARY_NAME.fullmatch(file.name)
        name = temporary[1] if temporary else file.name
        if name not in names or file.is_symlink() or not file.is_file():
            raise UserError(
                f"{folder} contains {file.name!r}, which this program did not write and would "
                "delete; move it away, or give another name."
            )
    return files
