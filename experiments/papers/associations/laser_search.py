"""A search for the best cut (LASER): scores many weight matrices at many ranks, and resumes.

The SVD of a matrix and the blocks below it are computed once for all ranks (`blockwise`). Each row
is appended to rows.jsonl as soon as it is known. A second call skips the rows of the file. B is the
axis of prompts, V that of the vocabulary.

The best layer for a kind of matrix is chosen on one half of the prompts and reported on the other.
"""

import hashlib
import math
import re
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from experiments.papers.associations import blockwise, next_token
from experiments.papers.associations.next_token import PromptBatch
from jaxformer import surgery
from jaxformer.core import paths

SORTS = ("ratio", "target", "against")
MIN_PROBABILITY = 1e-300  # replaces a probability of 0 in a logarithm
UNCUT = ("", 1.0)  # matrix and fraction in the row of the uncut model, whose rank is given as -1


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
    """Yields a row for the uncut model, then a row for each cut.

    A row has the keys matrix, fraction, rank, the names of `next_token.scores`, and halves. Scores
    are means over all prompts. `halves` has the same means over the even and over the odd prompts,
    counted from 0.

    Args:
      model: A published model, or any causal model.
      params: Its parameters.
      prompts: The prompts with their targets.
      matrices: The paths of the matrices to cut.
      fractions: Shares of the rank to keep.
      against: A wrong token whose probability is scored too, or next_token.NO_TOKEN.
      done: Rows of an earlier call, which are not computed again.
      batch_size: Prompts in one step.
    """
    done_cuts = {(row["matrix"], row["fraction"]) for row in done}
    log_probabilities = blockwise.make_log_probabilities(model, params, prompts, batch_size)

    def row(cut: Any, matrix: str, fraction: float, rank: int) -> dict[str, Any]:
        logs_BxV, targets_B = log_probabilities(cut, matrix), prompts.targets_B
        scores = next_token.scores(logs_BxV, targets_B, against)
        halves = [
            next_token.scores(logs_BxV[half], targets_B[half], against)
            for half in (slice(0, None, 2), slice(1, None, 2))
            if len(targets_B[half])
        ]
        return {"matrix": matrix, "fraction": fraction, "rank": rank, **scores, "halves": halves}

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


def rank_value(scores: dict[str, Any], sort: str) -> float:
    """Returns the number by which cuts are ranked, the highest first.

    Args:
      scores: means over prompts.
      sort: "ratio" is log P(target) / P(against), "target" is the mean of log P(target), "against"
        is -log P(against).
    """
    if scores.get("p_target") is None and scores.get("p_against") is None:
        return -math.inf  # the logits were not finite
    if sort == "target":
        return scores["log_p_target"]
    against = math.log(max(scores["p_against"], MIN_PROBABILITY))
    if sort == "against":
        return -against
    return math.log(max(scores["p_target"], MIN_PROBABILITY)) - against


def best_by_kind(rows: Sequence[dict[str, Any]], sort: str) -> dict[str, dict[str, Any]]:
    """Returns {kind of matrix: the row that is best on the first half of the prompts}.

    The kind of block_7/mlp/in/kernel is mlp/in.
    """
    best: dict[str, dict[str, Any]] = {}
    highest: dict[str, float] = {}
    for row in rows:
        kind, value = kind_of(row["matrix"]), rank_value(row["halves"][0], sort)
        if kind not in best or value > highest[kind]:
            best[kind], highest[kind] = row, value
    return best


def kind_of(matrix: str) -> str:
    """Returns the path of a matrix without its block and without "/kernel": mlp/in."""
    return re.sub(r"block_\d+/", "", matrix).removesuffix("/kernel")


def matching_matrices(params: Any, pattern: str) -> list[str]:
    """Returns the paths of the matrices that match, in block order: block_2 before block_10."""
    matches = surgery.matrices(params, pattern)
    return sorted(matches, key=lambda path: ([int(x) for x in re.findall(r"\d+", path)], path))


def weights_checksum(params: Any) -> str:
    """Returns a checksum of all parameters, so that rows of another model are never resumed."""
    checksum = 0
    for path, leaf in paths.flatten(params).items():
        checksum = zlib.crc32(path.encode(), checksum)
        checksum = zlib.crc32(np.ascontiguousarray(leaf).view(np.uint8).data, checksum)
    return f"{checksum:08x}"


def prompts_fingerprint(prompts: PromptBatch) -> str:
    """Returns a hash of the tokens and targets of a search."""
    arrays = prompts[:3]  # all fields except the notes
    content = b"".join(np.ascontiguousarray(x).tobytes() for x in arrays)
    return hashlib.sha256(content).hexdigest()[:16]
