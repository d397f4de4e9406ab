"""Reader of TOML files that are given relative to the current folder or to the repository."""

import tomllib
from pathlib import Path
from typing import Any

from experiments.cli.flags import ROOT
from jaxformer.core.errors import UserError


def read_toml(path: str, missing: str) -> tuple[Path, dict[str, Any]]:
    """Returns the file and its content.

    Args:
        missing: the error message if there is no such file.
    """
    try:
        file = next((p for p in (Path(path), ROOT / path) if p.is_file()), None)
    except (OSError, ValueError):  # the name is too long or contains NUL
        file = None
    if file is None:
        raise UserError(missing)
    try:
        return file, tomllib.loads(file.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError, OSError) as error:
        raise UserError(f"{file} is not TOML: {error}.") from None
