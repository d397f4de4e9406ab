"""What the commands of theory share: figures, and files written whole or not at all."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxformer.core.errors import UserError
from jaxformer.io.atomic_files import write_atomically
from jaxformer.runtime import figure_style
from jaxformer.runtime.figure_style import COLOURS, COLUMN, ENDINGS, PAGE

__all__ = ["COLUMN", "ENDINGS", "PAGE"]

MOST_POINTS, MOST_TOKENS = 2000, 10**8  # of a map: what is larger is a slip of the hand
BLUE, RED, _, _, ORANGE, SKY, _ = COLOURS


def check_writable(path: Path, endings: Sequence[str], force: bool) -> None:
    """Called before the work: the ending is right, the folder is there, nothing is overwritten."""
    if path.suffix not in endings:
        raise UserError(f"the file must end in {' or '.join(endings)}, got {str(path)!r}.")
    if not path.parent.is_dir():
        raise UserError(f"there is no folder {str(path.parent)!r} to write {path.name} to.")
    if path.is_dir():
        raise UserError(f"{str(path)!r} is a folder; expected a file name.")
    if path.exists() and not force:
        raise UserError(f"{str(path)!r} is there already; --force overwrites it.")


def save_figure(
    figure: Any, path: Path, arrays: dict[str, np.ndarray] | None = None, quiet: bool = False
) -> None:
    """The figure in the format of its ending and, beside it, its numbers as npz."""
    figure_style.save(figure, path)
    if not quiet:
        print(f"wrote {path}")
    if arrays is not None:
        np.savez(buffer := io.BytesIO(), **arrays)  # type: ignore
        write_atomically(path.with_suffix(".npz"), buffer.getvalue())
        print(f"wrote {path.with_suffix('.npz')}")


def new_figure(columns: int, size: tuple[float, float], **shared: Any) -> tuple[Any, np.ndarray]:
    """A figure without a screen, and its panels side by side."""
    figure_style.apply()
    figure, axes = figure_style.panels(1, columns, size, **shared)
    return figure, axes[0]
