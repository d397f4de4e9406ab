"""Copies a finished run into results/: a small record, its curves, its figure with its numbers.

results/NAME.json         what the run found                       (always)
results/NAME.curves.csv   what it logged on the way, thinned       (if it trained)
results/NAME.png          its figure                               (if it drew one)
results/NAME.csv          the figure's numbers, thinned            (the same)
"""

import datetime
import functools
import io
import itertools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments.cli.describe import csv_text
from experiments.ledger import curves, validate_record
from experiments.ledger.record import SCHEMA, run_name
from jaxformer.io.atomic_files import dumps, write_atomically
from jaxformer.io.run_folder import Workdir

RESULTS = Path(__file__).parents[2] / "results"
SUFFIXES = (".json", ".curves.csv", ".png", ".csv")
WHOLE = 1250  # values of an array that is kept whole, so that its figure can be drawn again
AXIS = 24  # entries of one axis of a longer one
FIRST = 5  # entries of an axis before the last two: a run has five seeds
PALETTES = (32, 48, 64, 96, 128, 256)  # colours: the smallest file of those that nobody sees
UNSEEN = 16  # of 255: so far a colour may move where the edge of a line is smoothed,
HAIR, FEW = 2, 0.06  # and by more than a hair only in few places: a colour map would get bands
MANY = 20_000  # colours of a picture that no palette fits; to look for one takes long


def keep(workdir: Workdir) -> Path:
    """The record's file in results/."""
    said = workdir.read("config.json")
    file = place(said["config"], said["config_hash"])
    file.parent.mkdir(exist_ok=True)
    if (workdir / "figure.png").exists():
        write_atomically(beside(file, ".png"), small(workdir / "figure.png"))
    if (workdir / "arrays.npz").exists():
        write_atomically(beside(file, ".csv"), table(workdir / "arrays.npz").encode())
    if text := curves.as_csv(curves.of_rows(workdir.rows())):
        write_atomically(beside(file, ".curves.csv"), text.encode())
    record = as_json(workdir)
    write_atomically(file, compact(record | {"sum": validate_record.sum_of(record)}).encode())
    return file


def place(config: Mapping[str, Any], config_hash: str) -> Path:
    """Where the record of a config lies."""
    return RESULTS / f"{run_name(config, config_hash)}.json"


def beside(file: Path, suffix: str) -> Path:
    """One of a record's files, by its suffix."""
    return file.with_name(file.name.removesuffix(".json") + suffix)


def as_json(workdir: Workdir) -> dict[str, Any]:
    """A finished run as a record holds it."""
    return workdir.read("result.json") | {
        "schema": SCHEMA,
        "config_file": workdir.read("config.json")["config_file"],
        "recorded": datetime.date.today().isoformat(),
    }


def compact(record: Mapping[str, Any]) -> str:
    """JSON with a line for each innermost list or object, so that a diff shows whole numbers."""
    innermost = r"\{[^{}\[\]]*\}|\[[^{}\[\]]*\]"
    text = re.sub(innermost, lambda m: re.sub(r"\n *", " ", m[0]), dumps(record, indent=1))
    return text + "\n"


@functools.cache
def small(figure: Path) -> bytes:
    """The figure in few colours where no eye sees it: a colour map would get bands that way."""
    from PIL import Image

    content = figure.read_bytes()
    with Image.open(io.BytesIO(content)) as image:
        seen, flat = image.convert("RGBA"), Image.new("RGB", image.size, "white")
        flat.paste(seen, mask=seen.getchannel("A"))
    return min(content, *(_png(kept) for kept in (flat, *_fewer_colours(flat))), key=len)


def _png(image) -> bytes:
    written = io.BytesIO()
    image.save(written, "PNG", optimize=True)
    return written.getvalue()


def _fewer_colours(flat) -> Iterator[Any]:
    """The picture in the colours of each palette of which none moves too far."""
    from PIL import Image, ImageChops

    if flat.getcolors(MANY) is None:
        return
    look: dict[str, Any] = {"method": Image.Quantize.MAXCOVERAGE, "kmeans": 2}
    for colours in PALETTES:
        fewer = flat.quantize(colours, dither=Image.Dither.NONE, **look)
        moved = np.asarray(ImageChops.difference(flat, fewer.convert("RGB"))).max(-1)
        if moved.max() <= UNSEEN and (moved > HAIR).mean() < FEW:
            yield fewer


def table(arrays: Path) -> str:
    """The arrays of a figure as CSV, a line for each row of the last axis; long ones are thinned.

    "indices" says which part of the array the values are: "2 0:41:2" is [2, 0:41:2].
    """
    with np.load(arrays) as file:
        lines = [(name, *line) for name in file.files for line in rows(file[name], WHOLE)]
    return csv_text([("array", "indices", "values"), *lines])


def rows(array: np.ndarray, whole: int = 0) -> Iterator[list[str]]:
    """(indices, values) of each row; of an array with more than `whole` values only some."""
    axes = [*map(range, array.shape)]
    if array.size > whole:
        # Of an axis before the last two, such as seeds, the first entries are of use to a reader.
        axes = [axis[:FIRST] for axis in axes[:-2]] + [axis[:: _step(axis)] for axis in axes[-2:]]
    is_real = np.issubdtype(array.dtype, np.inexact)
    for place in itertools.product(*axes[:-1]):
        columns = [f"{r.start}:{r.stop}:{r.step}" for r in axes[-1:]]
        values = np.atleast_1d(array[place])[axes[-1] if axes else slice(None)]
        numbers = [f"{x:.5g}" if is_real else str(x) for x in values]
        yield [" ".join([*map(str, place), *columns]), *numbers]


def _step(axis: range) -> int:
    return -(-len(axis) // AXIS) or 1
