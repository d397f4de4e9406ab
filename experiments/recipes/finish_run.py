"""The end of a run of any recipe: writes its arrays, curves and result, then draws its figure."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from experiments.papers import plots
from jaxformer.core.errors import UserError, one_line
from jaxformer.io import npz_store
from jaxformer.io.run_folder import Workdir
from jaxformer.report import figure_style
from jaxformer.runtime.processes import barrier, is_writer
from jaxformer.training import curves
from jaxformer.training.result import Result

UNTRUSTED = 4  # exit code of a finished run whose Markov chains failed their diagnostics


def write_arrays(workdir: Workdir, arrays: dict[str, Any]) -> None:
    """Writes arrays.npz, from which the figure is drawn."""
    npz_store.write(workdir / "arrays.npz", arrays, is_compressed=True)


def read_arrays(workdir: Workdir) -> dict[str, np.ndarray]:
    """Reads the arrays of a finished run."""
    file = workdir / "arrays.npz"
    try:
        return npz_store.load_verified(file)
    except FileNotFoundError:
        raise UserError(
            f"{workdir.path} has no arrays.npz to draw: finish the run first."
        ) from None
    except ValueError as error:
        raise UserError(f"{file} is damaged: {one_line(error)}.") from None


def redraw(
    workdir: Workdir, name: str, draw: Callable[[ConfigDict, dict[str, np.ndarray]], dict[str, Any]]
) -> Path:
    """Draws the figures of a run from its config and its arrays.

    Args:
        workdir: the folder of the run.
        name: the file of the main figure; "" is figure.png in the folder.
        draw: a function of (config, arrays) that returns figures by name. "figure" is the main
            figure; the names of the others become part of their file names.

    Returns:
        The file of the main figure.
    """
    file = figure_style.check_file(Path(name or workdir / "figure.png"))
    config = ConfigDict(workdir.read("config.json")["config"])
    arrays = read_arrays(workdir)
    try:
        figures = draw(config, arrays)
    except KeyError as error:
        raise UserError(
            f"{workdir.path} has no array {error}: repeat the run to draw it."
        ) from None
    except Exception as error:
        if npz_store.has_checksum(workdir / "arrays.npz"):
            raise
        # Old arrays cannot be verified, and odd shapes raise errors of many classes.
        raise UserError(
            f"{workdir / 'arrays.npz'} cannot be drawn, and has no checksum: repeat the run. "
            f"{type(error).__name__}: {one_line(error, 100)}"
        ) from error
    # The main figure is saved last: if it exists, all others are complete (see `lacks_figure`).
    for figure_name in sorted(figures, key=lambda name: name == "figure"):
        figure = figures[figure_name]
        if figure_name == "figure":
            figure_file = file
        elif file.stem == "figure":
            figure_file = file.with_stem(figure_name)
        else:
            figure_file = file.with_stem(f"{file.stem}-{figure_name}")
        plots.save(figure, figure_file)
    return file


def make_redraw(
    figure: Callable[[ConfigDict, dict[str, np.ndarray]], Any],
) -> Callable[..., Path]:
    """Returns the function `redraw(workdir, name="")` of a recipe with a single figure."""

    def redraw_run(workdir: Workdir, name: str = "") -> Path:
        return redraw(workdir, name, lambda config, arrays: {"figure": figure(config, arrays)})

    return redraw_run


def draw_curves(workdir: Workdir, label: str, result: Result) -> None:
    """Draws curves.png: the learning curves, with the chosen members highlighted.

    `label` names the run in the legend.
    """
    if is_writer():
        chosen = {label: [member["chosen"] for member in result.members]}
        baselines = curves.trivial_lines(result.as_json())
        figure = curves.curves({label: workdir.rows()}, baselines, chosen)
        plots.save(figure, workdir / "curves.png")


def write(
    workdir: Workdir, result: Result, draw: Callable[[Workdir], object] | None = None
) -> None:
    """Writes result.json, which marks the run as finished, then draws the figure.

    If drawing fails, the results are already saved. The figure is drawn when the same command is
    run again.
    """
    workdir.write("result.json", result.as_json())
    barrier()  # no process reads the result before it is complete
    if draw is not None and is_writer():
        draw(workdir)


def lacks_figure(workdir: Workdir) -> bool:
    """Returns whether a run has arrays but no figure, because it was killed between the two."""
    has_figure = (workdir / "figure.png").exists()
    return is_writer() and not has_figure and (workdir / "arrays.npz").exists()


def exit_code(workdir: Workdir) -> int:
    """Returns 0, or prints why a finished run is not trusted and returns UNTRUSTED."""
    result = workdir.read("result.json")
    if result.get("trusted", True):
        return 0
    print(
        f"not trusted: {'; '.join(result['doubts'])}. The record is marked, and no verdict uses it."
    )
    return UNTRUSTED
