"""Figures and files of the theory commands. Files are written completely or not at all."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxformer.core.errors import UserError
from jaxformer.io.atomic_files import write_atomically
from jaxformer.report import figure_style
from jaxformer.report.figure_style import COLOURS, COLUMN, ENDINGS, PAGE

__all__ = ["COLUMN", "ENDINGS", "PAGE"]

# Limits of flags such as --points and --length, to reject typing errors.
MAX_POINTS, MAX_TOKENS = 2000, 10**8
BLUE, RED, _, _, ORANGE, SKY, _ = COLOURS


def check_writable(path: Path, endings: Sequence[str], force: bool) -> None:
    """Raises UserError unless `path` can be written. Call it before the computation.

    Args:
      path: the output file. Its folder must exist.
      endings: allowed endings, such as ".png".
      force: whether an existing file may be overwritten.
    """
    if path.suffix not in endings:
        raise UserError(f"the file must end in {' or '.join(endings)}, got {str(path)!r}.")
    if not path.parent.is_dir():
        raise UserError(f"there is no folder {str(path.parent)!r} to write {path.name} to.")
    if path.is_dir():
        raise UserError(f"{str(path)!r} is a folder; expected a file name.")
    if path.exists() and not force:
        raise UserError(f"{str(path)!r} already exists; --force overwrites it.")


def check_figure_and_arrays(path: Path, force: bool) -> None:
    """Raises UserError unless a figure and the npz file of its arrays can be written."""
    check_writable(path, ENDINGS, force)
    check_writable(path.with_suffix(".npz"), (".npz",), force)


def save_figure(
    figure: Any, path: Path, arrays: dict[str, np.ndarray] | None = None, quiet: bool = False
) -> None:
    """Writes a figure in the format of its file ending, and its arrays to an npz file.

    Args:
      figure: a Matplotlib figure.
      path: the figure's file; the arrays go to the same name with the ending .npz.
      arrays: the numbers of the figure; None writes no npz file.
      quiet: whether to print nothing.
    """
    figure_style.save(figure, path)
    files = [path]
    if arrays is not None:
        np.savez(buffer := io.BytesIO(), **arrays)  # type: ignore
        files.append(path.with_suffix(".npz"))
        write_atomically(files[-1], buffer.getvalue())
    if not quiet:
        print(*(f"wrote {file}" for file in files), sep="\n")


def new_figure(columns: int, size: tuple[float, float], **shared: Any) -> tuple[Any, np.ndarray]:
    """Returns a figure that needs no display, and its panels (columns,) in one row.

    Args:
      columns: number of panels.
      size: width and height of the figure in inches.
      **shared: arguments of `Figure.subplots`, such as sharey=True.
    """
    figure_style.apply()
    figure, axes = figure_style.panels(1, columns, size, **shared)
    return figure, axes[0]
