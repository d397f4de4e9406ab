"""How a run ends, whatever its recipe: its arrays, its curves, its result, and then its figure."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from experiments.cli import describe
from experiments.papers import plots
from jaxformer.core.errors import UserError
from jaxformer.io.atomic_files import write_atomically
from jaxformer.io.run_folder import Workdir
from jaxformer.runtime import figure_style
from jaxformer.runtime.processes import barrier, is_writer
from jaxformer.training import curves
from jaxformer.training.result import Result

UNTRUSTED = 4  # the exit code of a run that ended with chains that are not to be trusted


def write_arrays(workdir: Workdir, arrays: dict[str, Any]) -> None:
    """arrays.npz: everything the figure shows; it is drawn from this file."""
    buffer = io.BytesIO()
    plain: Any = {name: np.asarray(value) for name, value in arrays.items()}
    np.savez_compressed(buffer, **plain)
    write_atomically(workdir / "arrays.npz", buffer.getvalue())


def read_arrays(workdir: Workdir) -> dict[str, np.ndarray]:
    """The arrays of a finished run."""
    file = workdir / "arrays.npz"
    try:
        with np.load(file) as held:
            return dict(held)
    except FileNotFoundError:
        raise UserError(f"{workdir.path} has no arrays.npz to draw: run it to its end.") from None
    except Exception as error:  # a damaged zip fails in many ways
        raise UserError(f"{file} is damaged: {error}.") from None


def redraw(
    workdir: Workdir, name: str, draw: Callable[[ConfigDict, dict[str, np.ndarray]], dict[str, Any]]
) -> Path:
    """The figures of a run, here or in files of another name, from its config and its arrays.

    `draw` gives them by name: "figure" goes into the file itself, "memories" into one beside it.
    """
    file = figure_style.check_file(Path(name or workdir / "figure.png"))
    config = ConfigDict(workdir.read("config.json")["config"])
    try:
        figures = draw(config, read_arrays(workdir))
    except KeyError as error:
        raise UserError(f"{workdir.path} has no array {error}: run it anew to draw it.") from None
    for which, figure in figures.items():
        beside = which if file.stem == "figure" else f"{file.stem}-{which}"
        plots.save(figure, file if which == "figure" else file.with_stem(beside))
    return file


def draw_curves(workdir: Workdir, name: str, result: Result) -> None:
    """curves.png: the chosen members along training."""
    if is_writer():
        chosen = {name: [member["chosen"] for member in result.members]}
        figure = curves.curves({name: workdir.rows()}, result.baselines, chosen)
        plots.save(figure, workdir / "curves.png")


def write(
    workdir: Workdir, result: Result, draw: Callable[[Workdir], object] | None = None
) -> None:
    """The result, with which a run is finished. Its figure comes after it: a drawing that fails
    loses no measurement, and the same command draws it later."""
    workdir.write("result.json", result.as_json())
    barrier()  # nobody reads the record before it is whole
    if draw is not None and is_writer():
        draw(workdir)
    describe.print_result(workdir)


def lacks_figure(workdir: Workdir) -> bool:
    """Did the run end, or was it killed, before its arrays were drawn?"""
    drawn = (workdir / "figure.png").exists()
    return is_writer() and not drawn and (workdir / "arrays.npz").exists()


def code(workdir: Workdir) -> int:
    """The exit code of a finished run: UNTRUSTED, with one line that says why, or 0."""
    result = workdir.read("result.json")
    if result.get("trusted", True):
        return 0
    print(f"not trusted: {'; '.join(result['doubts'])}. The record says so and decides nothing.")
    return UNTRUSTED
