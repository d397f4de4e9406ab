"""Writes the record of a finished run into results/.

PLACE.json         metrics, config, environment       (always)
PLACE.curves.csv   training curves, thinned           (if it trained)
PLACE.png          figure                             (if it drew one)
PLACE.csv          arrays of the figure, thinned      (if it drew one)

`places.py` says what PLACE is.
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

from experiments.cli.flags import WORKSPACE
from experiments.ledger import curves, validate_record
from experiments.ledger.places import place
from experiments.ledger.record import SCHEMA
from jaxformer.core.errors import UserError, one_line
from jaxformer.io import npz_store
from jaxformer.io.atomic_files import dumps, write_atomically
from jaxformer.io.run_folder import Workdir
from jaxformer.report.tables import csv_text

RESULTS = WORKSPACE / "results"
SUFFIXES = (".json", ".curves.csv", ".png", ".csv")
MAX_WHOLE_VALUES = 1250  # an array with more values is thinned
MAX_AXIS_ENTRIES = 24  # entries that remain of the last two axes of a thinned array
MAX_LEADING_ENTRIES = 5  # entries that remain of each axis before them, such as five seeds
PALETTE_SIZES = (32, 48, 64, 96, 128, 256)  # the smallest file without a visible error wins
MAX_CHANGE = 16  # the largest change of a colour channel (0 to 255), at antialiased edges
# Larger changes than SMALL_CHANGE at many pixels would show as bands in a colour map.
SMALL_CHANGE, MAX_CHANGED_SHARE = 2, 0.06
MAX_COLOURS = 20_000  # a picture with more colours, such as a photo, gets no palette


def write_record(workdir: Workdir) -> Path:
    """Writes the record and its companion files; returns the record's path."""
    file = record_file(workdir.read("config.json"))
    file.parent.mkdir(parents=True, exist_ok=True)
    if (workdir / "figure.png").exists():
        write_atomically(companion(file, ".png"), smallest_png(workdir / "figure.png"))
    if (workdir / "arrays.npz").exists():
        write_atomically(companion(file, ".csv"), table(workdir / "arrays.npz").encode())
    if text := curves.as_csv(curves.of_rows(workdir.rows())):
        write_atomically(companion(file, ".curves.csv"), text.encode())
    record = as_json(workdir)
    write_atomically(file, compact(record | {"sum": validate_record.sum_of(record)}).encode())
    return file


def record_file(run: Mapping[str, Any]) -> Path:
    """The file of a run's record: the one that is there already, else its place.

    Args:
      run: the content of the run's config.json.
    """
    return recorded(run["config_hash"]) or RESULTS / f"{place(run)}.json"


def recorded(config_hash: str) -> Path | None:
    """The record of a config wherever it lies below results/, or None."""
    return next(iter(sorted(RESULTS.rglob(f"*-{config_hash}.json"))), None)


def companion(file: Path, suffix: str) -> Path:
    """Returns the path of a companion file of a record, which has this suffix."""
    return file.with_name(file.name.removesuffix(".json") + suffix)


def as_json(workdir: Workdir) -> dict[str, Any]:
    """Returns a finished run in the form of a record."""
    return workdir.read("result.json") | {
        "schema": SCHEMA,
        "config_file": workdir.read("config.json")["config_file"],
        "recorded": datetime.date.today().isoformat(),
    }


def compact(record: Mapping[str, Any]) -> str:
    """Returns JSON with a line for each innermost list or object, for readable diffs."""
    # A list or an object without a list or an object inside.
    innermost = r"\{[^{}\[\]]*\}|\[[^{}\[\]]*\]"
    text = re.sub(innermost, lambda m: re.sub(r"\n *", " ", m[0]), dumps(record, indent=1))
    return text + "\n"


@functools.cache
def smallest_png(figure: Path) -> bytes:
    """Returns the figure as the smallest PNG without a visible error."""
    from PIL import Image

    content = figure.read_bytes()
    with Image.open(io.BytesIO(content)) as image:
        transparent = image.convert("RGBA")
        flat = Image.new("RGB", image.size, "white")
        flat.paste(transparent, mask=transparent.getchannel("A"))
    return min(content, *(_png(picture) for picture in (flat, *_fewer_colours(flat))), key=len)


def _png(image) -> bytes:
    written = io.BytesIO()
    image.save(written, "PNG", optimize=True)
    return written.getvalue()


def _fewer_colours(flat) -> Iterator[Any]:
    """Yields the picture in each palette whose colour errors are small enough."""
    from PIL import Image, ImageChops

    if flat.getcolors(MAX_COLOURS) is None:
        return
    options: dict[str, Any] = {"method": Image.Quantize.MAXCOVERAGE, "kmeans": 2}
    for colours in PALETTE_SIZES:
        picture = flat.quantize(colours, dither=Image.Dither.NONE, **options)
        change = np.asarray(ImageChops.difference(flat, picture.convert("RGB"))).max(-1)
        if change.max() <= MAX_CHANGE and (change > SMALL_CHANGE).mean() < MAX_CHANGED_SHARE:
            yield picture


def table(arrays: Path) -> str:
    """Returns the arrays of a figure as CSV, a line for each row; long arrays are thinned.

    The column "indices" is the slice of the array: "2 0:41:2" is [2, 0:41:2].
    """
    try:
        loaded = npz_store.load_verified(arrays)
    except ValueError as error:
        raise UserError(f"{arrays} is damaged: {one_line(error)}.") from None
    lines = [
        (name, *line) for name, array in loaded.items() for line in rows(array, MAX_WHOLE_VALUES)
    ]
    return csv_text([("array", "indices", "values"), *lines])


def rows(array: np.ndarray, max_values: int = 0) -> Iterator[list[str]]:
    """Yields [indices, *values] of each row; arrays of more than `max_values` are thinned."""
    axes = [*map(range, array.shape)]
    if array.size > max_values:
        # Axes before the last two, such as seeds, keep their first entries.
        axes = [axis[:MAX_LEADING_ENTRIES] for axis in axes[:-2]] + [
            axis[:: _step(axis)] for axis in axes[-2:]
        ]
    is_real = np.issubdtype(array.dtype, np.inexact)
    # A single number has no axes, and so no slice in its indices.
    last_slice = [f"{axis.start}:{axis.stop}:{axis.step}" for axis in axes[-1:]]
    last_entries = axes[-1] if axes else slice(None)
    for index in itertools.product(*axes[:-1]):
        values = np.atleast_1d(array[index])[last_entries]
        numbers = [f"{x:.5g}" if is_real else str(x) for x in values]
        yield [" ".join([*map(str, index), *last_slice]), *numbers]


def _step(axis: range) -> int:
    """Returns the smallest step that leaves at most MAX_AXIS_ENTRIES of an axis."""
    return -(-len(axis) // MAX_AXIS_ENTRIES) or 1  # rounded up; 1 for an empty axis
