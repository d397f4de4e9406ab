"""A search for the best cut (LASER): scores many weight matrices at many ranks, and resumes.

Each matrix has one SVD, and blocks below it are computed once for all its ranks (`blockwise`). Each
row is appended to rows.jsonl as soon as it is known. A second call skips the rows of the file.
"""

import hashlib
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from experiments.papers.associations import blockwise, next_token
from experiments.papers.associations.next_token import PromptBatch
from jaxformer import surgery
from jaxformer.core import paths
from jaxformer.core.errors import UserError
from jaxformer.io.atomic_files import write_json

ROWS_FILE, SEARCH_FILE = "rows.jsonl", "search.json"
UNCUT = ("", 1.0)  # matrix and fraction in the row of the uncut model


def search(
    model: Any,
    params: Any,
    prompts: PromptBatch,
    matrices: Sequence[str],
    fractions: Sequence[float],
    against: int,
    done: Sequence[dict[str, Any]] = (),
    batch_size: int = 100,
) -> Iterator[dict[str, Any]]:
    """Yields a row {matrix, fraction, rank, scores} for each cut, after that of the uncut model.

    Args:
      model: A published model, or any causal model.
      params: Its parameters.
      prompts: The prompts with their targets.
      matrices: The paths of the matrices to cut.
      fractions: Shares of the rank to keep.
      against: A token that is scored beside the targets, or next_token.NO_TOKEN.
      done: Rows of an earlier call, which are not computed again.
      batch_size: Prompts in one step.
    """
    done_cuts = {(row["matrix"], row["fraction"]) for row in done}
    log_probabilities = blockwise.reader(model, params, prompts, batch_size)

    def row(cut: Any, matrix: str, fraction: float, rank: int) -> dict[str, Any]:
        scores = next_token.scores(log_probabilities(cut, matrix), prompts.targets_B, against)
        return {"matrix": matrix, "fraction": fraction, "rank": rank, **scores}

    if UNCUT not in done_cuts:
        yield row(params, *UNCUT, -1)
    flat = paths.flatten(params)
    for path in matrices:
        missing = [fraction for fraction in fractions if (path, fraction) not in done_cuts]
        if not missing:
            continue
        matrix = jnp.asarray(flat[path])
        u, s, vt = surgery.decompose(matrix)
        for fraction in missing:
            rank = surgery.rank_of(matrix, fraction)
            cut = surgery.recompose(u, s, vt, rank).astype(matrix.dtype)
            yield row(paths.replace(params, {path: cut}), path, fraction, rank)


def matching_matrices(params: Any, pattern: str) -> list[str]:
    """Returns the paths of the matrices that match, in block order: block_2 before block_10."""
    matches = surgery.matrices(params, pattern)
    return sorted(matches, key=lambda path: ([int(x) for x in re.findall(r"\d+", path)], path))


class RowFile:
    """The rows of one search in a folder of their own. A folder of another search is refused."""

    def __init__(self, folder: Path, settings: dict[str, Any]):
        folder.mkdir(parents=True, exist_ok=True)
        self.file, settings_file = folder / ROWS_FILE, folder / SEARCH_FILE
        is_new = not settings_file.exists()
        if is_new and any(file.name[0] != "." for file in folder.iterdir()):
            raise UserError(f"{folder} holds other files; rows need a folder of their own.")
        if not is_new and _json(settings_file.read_bytes()) != json.loads(json.dumps(settings)):
            raise UserError(f"{folder} holds another search; choose another --out.")
        write_json(settings_file, settings)

    def read(self) -> list[dict[str, Any]]:
        """Reads all complete rows; damaged lines are omitted."""
        lines = self.file.read_bytes().splitlines() if self.file.exists() else []
        return [row for row in map(_json, lines) if isinstance(row, dict)]

    def append(self, row: dict[str, Any]) -> None:
        is_damaged = self.file.exists() and not self.file.read_bytes().endswith(b"\n")
        with self.file.open("a") as out:
            out.write("\n" * is_damaged + json.dumps(row, allow_nan=False) + "\n")


def _json(content: bytes) -> Any:
    """Returns the value, or None if the content is damaged or holds NaN, which is no JSON."""
    try:
        return json.loads(content, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def weights_checksum(params: Any) -> str:
    """Returns a checksum of all parameters, so that rows of another model are never resumed."""
    checksum = 0
    for path, leaf in paths.flatten(params).items():
        checksum = zlib.crc32(path.encode(), checksum)
        checksum = zlib.crc32(np.ascontiguousarray(leaf).view(np.uint8).data, checksum)
    return f"{checksum:08x}"


def prompts_fingerprint(prompts: PromptBatch) -> str:
    """Returns a hash of the tokens and targets of a search."""
    content = b"".join(np.ascontiguousarray(x).tobytes() for x in prompts[:3])
    return hashlib.sha256(content).hexdigest()[:16]
