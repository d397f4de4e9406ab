"""Copies a finished run into results/: a small record, and its figure with the numbers behind it.

results/NAME.json  what the run found, its curves thinned     (always)
results/NAME.png   its figure                                 (if it drew one)
results/NAME.csv   the figure's numbers, thinned              (the same)
"""

import csv
import datetime
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jaxformer.records import SCHEMA, Workdir, write_atomically, write_json

RESULTS = Path(__file__).parents[2] / "results"
ROWS = 50  # of a curve
AXIS = 24  # entries of one axis of an array


def keep(workdir: Workdir) -> Path:
    """The record's file in results/."""
    result, held = workdir.read("result.json"), workdir.read("config.json")
    file = place(held["config"], result["config_hash"])
    file.parent.mkdir(exist_ok=True)
    if (workdir / "figure.png").exists():
        write_atomically(file.with_suffix(".png"), small(workdir / "figure.png"))
    if (workdir / "arrays.npz").exists():
        write_atomically(file.with_suffix(".csv"), table(workdir / "arrays.npz").encode())
    write_json(file, as_record(workdir))
    return file


def place(config: Mapping[str, Any], config_hash: str) -> Path:
    """Where the record of a config lies."""
    words = [config["name"].replace("/", "-"), config.get("variant"), config["scale"]]
    return RESULTS / f"{'-'.join([*filter(None, words), config_hash])}.json"


def as_record(workdir: Workdir) -> dict[str, Any]:
    """A finished run as a record holds it."""
    rows = workdir.rows()
    return workdir.read("result.json") | {
        "schema": SCHEMA,
        "config_file": workdir.read("config.json")["config_file"],
        "recorded": datetime.date.today().isoformat(),
        "curves": {
            "training": _thin([row for row in rows if "validation" not in row]),
            "validation": _thin([row for row in rows if "validation" in row]),
        },
    }


def small(figure: Path) -> bytes:
    """The figure with 256 colours: a third of its size, and no eye sees it."""
    from PIL import Image

    written = io.BytesIO()
    with Image.open(figure) as image:
        image.convert("RGB").quantize(256).save(written, "png", optimize=True)
    return written.getvalue()


def table(arrays: Path) -> str:
    """The arrays of a figure as lines "array,i,j,..,value", long axes thinned."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["array", "indices", "value"])
    with np.load(arrays) as held:
        for name in held.files:
            writer.writerows((name, *entry) for entry in _entries(held[name]))
    return text.getvalue()


def _entries(array: np.ndarray) -> Iterator[tuple[str, Any]]:
    chosen = [range(0, n, -(-n // AXIS) or 1) for n in array.shape[-2:]]
    # Of an axis before the last two, such as seeds, only the first entries are of use to a reader.
    first = [range(min(n, 4)) for n in array.shape[:-2]]
    picked = array[np.ix_(*first, *chosen)] if array.ndim else array
    places = [*first, *chosen]
    for index in np.ndindex(picked.shape):
        value = picked[index]
        number = f"{value:.6g}" if np.issubdtype(picked.dtype, np.number) else str(value)
        yield " ".join(str(p[i]) for p, i in zip(places, index, strict=True)), number


def _thin(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Evenly spaced rows, the last one among them."""
    every = -(-len(rows) // ROWS) or 1
    return rows[::-1][::every][::-1]
