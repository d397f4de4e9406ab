"""LASER over many matrices and ranks: one SVD a matrix, one program for all, and it goes on later.

What lies below a matrix is computed once for all its ranks (`blockwise`). Every row is appended to
rows.jsonl as soon as it is known; a second call skips what is there.
"""

import hashlib
import json
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from experiments.papers.associations import blockwise, prompts
from experiments.papers.associations.prompts import Prompts
from jaxformer import surgery
from jaxformer.core import paths
from jaxformer.core.errors import UserError
from jaxformer.io.atomic_files import write_json

ROWS, ABOUT = "rows.jsonl", "search.json"
FULL = ("", 1.0)  # the matrix and the fraction of the uncut model


def search(
    model: Any,
    params: Any,
    asked: Prompts,
    matrices: Sequence[str],
    fractions: Sequence[float],
    against: int,
    done: Sequence[dict[str, Any]] = (),
    at_once: int = 100,
) -> Iterator[dict[str, Any]]:
    """Rows {matrix, fraction, rank, scores}, first that of the uncut model; without those done."""
    known = {(row["matrix"], row["fraction"]) for row in done}
    says = blockwise.reader(model, params, asked, at_once)

    def row(cut: Any, matrix: str, fraction: float, rank: int) -> dict[str, Any]:
        logs = says(cut, matrix)
        found = prompts.scores(logs, asked.targets_B, against)
        return {"matrix": matrix, "fraction": fraction, "rank": rank, **found}

    if FULL not in known:
        yield row(params, *FULL, -1)
    flat = paths.flatten(params)
    for path in matrices:
        open_ = [fraction for fraction in fractions if (path, fraction) not in known]
        if not open_:
            continue
        whole = jnp.asarray(flat[path])
        u, s, vt = surgery.decompose(whole)
        for fraction in open_:
            rank = surgery.rank_of(whole, fraction)
            cut = surgery.recompose(u, s, vt, rank).astype(whole.dtype)
            yield row(paths.replace(params, {path: cut}), path, fraction, rank)


def chosen(params: Any, pattern: str) -> list[str]:
    """The matrices that a pattern names, in the order of their blocks: block_2 before block_10."""
    found = surgery.matrices(params, pattern)
    return sorted(found, key=lambda path: ([int(x) for x in re.findall(r"\d+", path)], path))


class Rows:
    """The rows of one search in a folder; another search in the same folder is refused."""

    def __init__(self, folder: Path, about: dict[str, Any]):
        folder.mkdir(parents=True, exist_ok=True)
        self.file, held = folder / ROWS, folder / ABOUT
        if not held.exists() and any(file.name[0] != "." for file in folder.iterdir()):
            raise UserError(f"{folder} holds other files; rows need a folder of their own.")
        if held.exists() and _json(held.read_bytes()) != json.loads(json.dumps(about)):
            raise UserError(f"{folder} holds another search; choose another --out.")
        write_json(held, about)

    def read(self) -> list[dict[str, Any]]:
        """Whole rows; a line that was cut off is as if it were not there."""
        lines = self.file.read_bytes().splitlines() if self.file.exists() else []
        return [row for row in map(_json, lines) if isinstance(row, dict)]

    def append(self, row: dict[str, Any]) -> None:
        broken = self.file.exists() and not self.file.read_bytes().endswith(b"\n")
        with self.file.open("a") as out:
            out.write("\n" * broken + json.dumps(row, allow_nan=False) + "\n")


def _json(content: bytes) -> Any:
    """Returns the value, or None if the content is damaged or holds NaN, which is no JSON."""
    try:
        return json.loads(content, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def weights(params: Any) -> str:
    """A checksum of all parameters: rows of another model are not gone on with."""
    found = 0
    for path, leaf in paths.flatten(params).items():
        found = zlib.crc32(path.encode(), found)
        found = zlib.crc32(np.ascontiguousarray(leaf).view(np.uint8).data, found)
    return f"{found:08x}"


def fingerprint(asked: Prompts) -> str:
    """Of the prompts and targets of a search."""
    text = b"".join(np.ascontiguousarray(x).tobytes() for x in asked[:3])
    return hashlib.sha256(text).hexdigest()[:16]


def best(rows: Sequence[dict[str, Any]], key: Callable[[dict[str, Any]], float]) -> dict[str, Any]:
    """The row with the highest key among those that cut something."""
    return max((row for row in rows if row["matrix"]), key=key)
